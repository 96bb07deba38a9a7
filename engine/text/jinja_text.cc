#include "engine/text/jinja_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include "base/utf8.h"

namespace hayfork::engine::jinja {
namespace {

std::string from_icu(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

icu::UnicodeString to_icu(std::string_view text) {
  return icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

// The character that ends at `end`. Requires: end > 0 and valid UTF-8.
DecodedChar decode_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return decode_utf8(text, start);
}

template <typename Drop>
std::string_view strip(std::string_view text, Side side, const Drop& drop) {
  if (side != Side::right) {
    while (!text.empty()) {
      const DecodedChar c = decode_utf8(text, 0);
      if (!drop(c.code_point)) break;
      text.remove_prefix(c.length);
    }
  }
  if (side != Side::left) {
    while (!text.empty()) {
      const DecodedChar c = decode_before(text, text.size());
      if (!drop(c.code_point)) break;
      text.remove_suffix(c.length);
    }
  }
  return text;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_cased(char32_t c) {
  const auto point = static_cast<UChar32>(c);
  return u_hasBinaryProperty(point, UCHAR_LOWERCASE) || u_hasBinaryProperty(point, UCHAR_UPPERCASE) || u_istitle(point);
}

std::string title_char(std::string_view character) {
  icu::UnicodeString text = to_icu(character);
  return from_icu(text.toTitle(nullptr, icu::Locale::getRoot()));
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
}

std::string_view strip_space(std::string_view text, Side side) {
  return strip(text, side, is_space);
}

std::string strip_chars(std::string_view text, std::string_view chars, Side side) {
  std::u32string set = to_code_points(chars);
  std::sort(set.begin(), set.end());
  return std::string(strip(text, side, [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); }));
}

std::string upper(std::string_view text) {
  return from_icu(to_icu(text).toUpper(icu::Locale::getRoot()));
}
std::string lower(std::string_view text) {
  return from_icu(to_icu(text).toLower(icu::Locale::getRoot()));
}

std::string case_fold(std::string_view text) {
  return from_icu(to_icu(text).foldCase());
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const int first = decode_utf8(text, 0).length;
  // Lower-casing needs the whole text: a final sigma depends on what stands before it.
  const std::string lowered = lower(text);
  const size_t lowered_first = lower(text.substr(0, first)).size();
  return title_char(text.substr(0, first)) + lowered.substr(std::min(lowered_first, lowered.size()));
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    const std::string_view character = text.substr(i, c.length);
    out += in_word ? lower(character) : title_char(character);
    in_word = is_cased(c.code_point);
    i += c.length;
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    const std::string_view character = text.substr(i, c.length);
    const auto point = static_cast<UChar32>(c.code_point);
    if (u_hasBinaryProperty(point, UCHAR_UPPERCASE))
      out += lower(character);
    else if (u_hasBinaryProperty(point, UCHAR_LOWERCASE))
      out += upper(character);
    else
      out += character;
    i += c.length;
  }
  return out;
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

size_t find_last_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  // Backwards through the linear search, so that no choice of strings makes it quadratic.
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_needle(needle.rbegin(), needle.rend());
  const size_t found = find_text(reversed_text, reversed_needle);
  return found == std::string_view::npos ? found : text.size() - found - needle.size();
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t count,
                        size_t max_size) {
  std::string out;
  size_t position = 0;
  if (from.empty()) {  // Python puts `to` before every character and at the end
    while (count != 0 && out.size() <= max_size) {
      out += to;
      --count;
      if (position == text.size()) return out;
      const int length = decode_utf8(text, position).length;
      out += text.substr(position, length);
      position += length;
    }
    return out += text.substr(position);
  }
  while (count != 0 && out.size() <= max_size) {
    const size_t found = find_text(text, from, position);
    if (found == std::string_view::npos) break;
    out += text.substr(position, found - position);
    out += to;
    position = found + from.size();
    --count;
  }
  return out += text.substr(position);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    size_t end = i + c.length;
    if (is_line_end(c.code_point)) {
      if (c.code_point == '\r' && end < text.size() && text[end] == '\n') ++end;
      lines.push_back(text.substr(start, (keep_ends ? end : i) - start));
      start = end;
    }
    i = end;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string slice(std::string_view text, int64_t start, int64_t stop, int64_t step) {
  if (step == 1) {  // without a table of positions: contents can be megabytes
    size_t begin = 0;
    int64_t i = 0;
    for (; i < start && begin < text.size(); ++i) begin += decode_utf8(text, begin).length;
    size_t end = begin;
    for (; i < stop && end < text.size(); ++i) end += decode_utf8(text, end).length;
    return std::string(text.substr(begin, end - begin));
  }
  const std::u32string points = to_code_points(text);
  std::string out;
  for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) append_utf8(out, points[i]);
  return out;
}

std::string quote_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    const auto code = static_cast<uint32_t>(c.code_point);
    if (code == static_cast<unsigned char>(quote) || code == '\\')
      out += {'\\', static_cast<char>(code)};
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (is_printable(c.code_point))
      out += text.substr(i, c.length);
    else if (code < 0x100)
      out += fmt::format("\\x{:02x}", code);
    else if (code < 0x10000)
      out += fmt::format("\\u{:04x}", code);
    else
      out += fmt::format("\\U{:08x}", code);
    i += c.length;
  }
  return out + quote;
}

std::string quote_json(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    const auto code = static_cast<uint32_t>(c.code_point);
    if (code == '"' || code == '\\')
      out += {'\\', static_cast<char>(code)};
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (code == '\f')
      out += "\\f";
    else if (code == '\b')
      out += "\\b";
    else if (code < 0x20 || (ascii && code >= 0x7F && code < 0x10000))
      out += fmt::format("\\u{:04x}", code);
    else if (ascii && code >= 0x10000)
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
    else
      out += text.substr(i, c.length);
    i += c.length;
  }
  return out + '"';
}

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, d, std::chars_format::scientific).ptr;
  std::string text(digits, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  std::string mantissa = text.substr(0, e);
  const std::string sign = mantissa[0] == '-' ? "-" : "";
  mantissa = mantissa.substr(sign.size());
  if (exponent < -4 || exponent >= 16) {  // as float.__repr__ decides
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  std::string all = mantissa.substr(0, 1) + (mantissa.size() > 2 ? mantissa.substr(2) : "");
  if (exponent < 0) return sign + "0." + std::string(-exponent - 1, '0') + all;
  if (static_cast<int>(all.size()) <= exponent + 1)
    return sign + all + std::string(exponent + 1 - all.size(), '0') + ".0";
  return sign + all.substr(0, exponent + 1) + "." + all.substr(exponent + 1);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&#34;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

}  // namespace hayfork::engine::jinja
