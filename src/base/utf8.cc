#include "base/utf8.h"

#include <fmt/format.h>

#include "base/steering.h"

namespace hayfork {

DecodedChar decode_utf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(offset);
  if (first < 0x80) return {first, 1, true};
  int length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;  // bounds of the second byte
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;   // no overlong forms
    if (first == 0xED) high = 0x9F;  // no surrogates
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;  // nothing past U+10FFFF
  } else {
    return {0xFFFD, 1, false};
  }
  char32_t code = first & (length == 2 ? 0x1F : length == 3 ? 0x0F : 0x07);
  for (int i = 1; i < length; ++i) {
    if (offset + i >= text.size() || byte(offset + i) < low || byte(offset + i) > high) return {0xFFFD, i, false};
    code = code << 6 | (byte(offset + i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {code, length, true};
}

void append_utf8(std::string& out, char32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = 0xFFFD;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    out += c.code_point;
    i += c.length;
  }
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const DecodedChar c = decode_utf8(text, i);
    if (!c.valid) return i;
    i += c.length;
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    if (c.valid)
      out.append(text, i, c.length);
    else
      out += "\xEF\xBF\xBD";
    i += c.length;
  }
  return out;
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (size_t i = 0; i < text.size(); ++n) i += decode_utf8(text, i).length;
  return n;
}

size_t incomplete_utf8_tail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const unsigned char byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xC0) continue;
    const size_t need = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    const DecodedChar c = decode_utf8(text, text.size() - back);
    return need > back && !c.valid && c.length == static_cast<int>(back) ? back : 0;
  }
  return 0;
}

std::string printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const DecodedChar c = decode_utf8(text, i);
    const bool control = (c.code_point < 0x20 && c.code_point != '\n' && c.code_point != '\t') ||
                         (c.code_point >= 0x7F && c.code_point < 0xA0);
    if (control)
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c.code_point));
    else if (is_steering(c.code_point))
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c.code_point));
    else
      append_utf8(out, c.code_point);
    i += c.length;
  }
  return out;
}

}  // namespace hayfork
