#include "runs/report/svg.h"

#include <fmt/format.h>

#include "base/steering.h"
#include "base/utf8.h"

namespace hayfork::runs {
namespace {

// XML 1.0 has no other control characters, and no U+FFFE or U+FFFF.
bool is_no_text(char32_t c) {
  return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0) || c == 0xFFFE || c == 0xFFFF;
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    i += static_cast<size_t>(c.length);
    switch (c.code_point) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if (is_steering(c.code_point))
          out += fmt::format("\u27E8U+{:04X}\u27E9", static_cast<uint32_t>(c.code_point));
        else
          append_utf8(out, is_no_text(c.code_point) ? 0xFFFD : c.code_point);
    }
  }
  return out;
}

std::string coordinate(double value) {
  std::string out = fmt::format("{:.2f}", value);
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

std::string svg_text(double x, double y, std::string_view text, const TextStyle& style, double rotate) {
  std::string out =
      fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\"", coordinate(x), coordinate(y), coordinate(style.size));
  if (std::string_view(style.anchor) != "start") out += fmt::format(" text-anchor=\"{}\"", style.anchor);
  if (style.bold) out += " font-weight=\"bold\"";
  out +=
      style.fill != nullptr ? fmt::format(" fill=\"{}\"", style.fill) : fmt::format(" class=\"{}\"", style.css_class);
  if (rotate != 0)
    out += fmt::format(" transform=\"rotate({} {} {})\"", coordinate(rotate), coordinate(x), coordinate(y));
  return out + ">" + xml_text(text) + "</text>\n";
}

std::string svg_line(std::string_view css_class, double x1, double y1, double x2, double y2) {
  return fmt::format("<path class=\"{}\" d=\"M{} {}L{} {}\"/>\n", css_class, coordinate(x1), coordinate(y1),
                     coordinate(x2), coordinate(y2));
}

double text_width(std::string_view text, double size) {
  return 0.62 * size * static_cast<double>(count_code_points(text));
}

}  // namespace hayfork::runs
