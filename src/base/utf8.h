// UTF-8 in and out. Invalid bytes are replaced by U+FFFD per maximal subpart, as Rust and Python do
// (Unicode 15, section 3.9, table 3-8).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork {

struct DecodedChar {
  char32_t code_point;  // U+FFFD for an invalid run
  int length;           // bytes consumed, at least 1
  bool valid;
};

// The character at `offset`. Requires: offset < text.size().
DecodedChar decode_utf8(std::string_view text, size_t offset);
void append_utf8(std::string& out, char32_t code_point);  // surrogates and values past U+10FFFF become U+FFFD
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);

// Offset of the first invalid byte, or nothing.
std::optional<size_t> find_invalid_utf8(std::string_view text);
std::string replace_invalid_utf8(std::string_view text);
size_t count_code_points(std::string_view text);

// Length of the incomplete but so far valid sequence at the end of `text` (0…3 bytes).
size_t incomplete_utf8_tail(std::string_view text);

// For terminals: control characters other than line feed and tab become \xNN; invalid UTF-8 becomes U+FFFD.
std::string printable(std::string_view text);

}  // namespace hayfork
