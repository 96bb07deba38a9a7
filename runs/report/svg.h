// Pieces of SVG and HTML text for charts: escaping, numbers in a fixed form, elements.
#pragma once

#include <string>
#include <string_view>

namespace hayfork::runs {

// For text and for attribute values: & < > " ' escaped, control characters and invalid UTF-8 replaced by U+FFFD; what
// changes the direction of text or breaks lines unseen is shown by its number: "⟨U+202E⟩".
std::string xml_text(std::string_view text);
// At most two decimals, no trailing zeros, never "-0".
std::string coordinate(double value);

constexpr const char* kSvgFont = "font-family=\"DejaVu Sans, Verdana, Helvetica, sans-serif\"";

struct TextStyle {
  double size = 12;
  const char* anchor = "start";  // start, middle, end
  const char* css_class = "ink";
  const char* fill = nullptr;  // instead of the class
  bool bold = false;
};
std::string svg_text(double x, double y, std::string_view text, const TextStyle& style = {}, double rotate = 0);
// A straight line; its class colours it.
std::string svg_line(std::string_view css_class, double x1, double y1, double x2, double y2);
// Width of a line of that size, on the safe side.
double text_width(std::string_view text, double size);

}  // namespace hayfork::runs
