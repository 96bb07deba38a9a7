// How any text, a model's included, becomes harmless in a format.
#include "runs/report/table_text.h"

#include "base/utf8.h"
#include "runs/report/table.h"

namespace hayfork::runs {
namespace {

struct Range {
  char32_t first, last;
};

// Unicode 15 EastAsianWidth W and F, joined to blocks: what terminals draw two columns wide.
constexpr Range kWide[] = {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x2E80, 0x303E},   {0x3041, 0x33FF},
                           {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},
                           {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                           {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF},
                           {0x20000, 0x2FFFD}, {0x30000, 0x3FFFD}};
// Combining marks of the common scripts, joiners and variation selectors: no column of their own.
constexpr Range kZero[] = {{0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A},  {0x064B, 0x065F},
                           {0x0900, 0x0902}, {0x093C, 0x093C}, {0x0941, 0x0948}, {0x0E31, 0x0E31},  {0x0E34, 0x0E3A},
                           {0x0E47, 0x0E4E}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F},  {0x20D0, 0x20FF},
                           {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0xE0100, 0xE01EF}};

template <size_t N>
bool within(char32_t c, const Range (&ranges)[N]) {
  for (const Range& range : ranges) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

// Whether a spreadsheet would run the text: it begins with = + - @, plain or full-width, behind blanks of any kind; a
// leading tab or line break is taken for a separator by some (OWASP, CSV injection).
bool runs_as_formula(std::string_view text) {
  if (!text.empty() && std::string_view("\t\r\n").find(text[0]) != std::string_view::npos) return true;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    i += static_cast<size_t>(c.length);
    switch (c.code_point) {
      case ' ':
      case '\t':
      case '\r':
      case '\n':
      case 0xA0:
      case 0x200B:
      case 0xFEFF:
        continue;
      default:
        return std::u32string_view(U"=+-@\uFF1D\uFF0B\uFF0D\uFF20").find(c.code_point) != std::u32string_view::npos;
    }
  }
  return false;
}

}  // namespace

int display_width(std::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    i += static_cast<size_t>(c.length);
    width += within(c.code_point, kZero) ? 0 : within(c.code_point, kWide) ? 2 : 1;
  }
  return width;
}

std::string terminal_line(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string out = printable(text);
  for (char& c : out) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return out;
}

std::string md_text(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (std::string_view("\\|`*_[]~").find(c) != std::string_view::npos)
      out += std::string("\\") + c;
    else
      out += c;
  }
  return out;
}

// RFC 4180; a text that a spreadsheet would run as a formula gets an apostrophe before it.
std::string csv_field(std::string_view text) {
  std::string field = replace_invalid_utf8(text);
  std::erase(field, '\0');  // many readers end a line there
  if (runs_as_formula(field)) field.insert(0, 1, '\'');
  if (field.find_first_of(",\"\r\n") == std::string::npos && !field.starts_with(' ') && !field.ends_with(' '))
    return field;
  std::string out = "\"";
  for (const char c : field) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string latex_text(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    // Behind the \\ of the row above, "[" and "*" would be its arguments.
    if ((c == '[' || c == '*') && out.find_first_not_of(' ') == std::string::npos) {
      out += std::string("{") + c + "}";
      continue;
    }
    switch (c) {
      case '\\':
        out += "\\textbackslash{}";
        break;
      case '~':
        out += "\\textasciitilde{}";
        break;
      case '^':
        out += "\\textasciicircum{}";
        break;
      case '<':
        out += "\\textless{}";
        break;
      case '>':
        out += "\\textgreater{}";
        break;
      case '&':
      case '%':
      case '$':
      case '#':
      case '_':
      case '{':
      case '}':
        out += '\\';
        out += c;
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace hayfork::runs
