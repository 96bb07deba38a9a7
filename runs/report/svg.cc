#include "runs/report/svg.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace hayfork::runs {

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
        // XML 1.0 has no other control characters, and no U+FFFE or U+FFFF.
        if ((c.code_point < 0x20 && c.code_point != '\n' && c.code_point != '\t') || c.code_point == 0x7F ||
            c.code_point == 0xFFFE || c.code_point == 0xFFFF)
          append_utf8(out, 0xFFFD);
        else
          append_utf8(out, c.code_point);
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

double text_width(std::string_view text, double size) {
  return 0.62 * size * static_cast<double>(count_code_points(text));
}

}  // namespace hayfork::runs
