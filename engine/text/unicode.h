// Facts about characters that decide token ids, at the Unicode versions of the reference library: 16.0 for classes, 9.0
// for normalization (specs: a character newer than that is left alone). All lookups are constant time and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hayfork::engine::unicode {

// Bits of char_class(). kUpperSide and kLowerSide are the two letter sets of the o200k pattern; Lm, Lo and M are in
// both.
enum Class : uint16_t {
  kLetter = 1,      // L
  kNumber = 2,      // N
  kMark = 4,        // M
  kSpace = 8,       // White_Space
  kUpperSide = 16,  // Lu Lt Lm Lo M
  kLowerSide = 32,  // Ll Lm Lo M
  kLineEnd = 64,    // CR, LF
  kWord = 128,      // \w of single_word and of the Whitespace component
  kNumeric = 256,   // what the Digits component takes
  kPunct = 512,     // what the Punctuation component takes
  kAccent = 1024,   // what StripAccents removes
};

enum Category : uint8_t {
  Cn,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Co
};
constexpr int kCategories = 29;

uint16_t char_class_slow(char32_t c);
namespace detail {
extern const uint16_t* const kAsciiClass;
}
inline uint16_t char_class(char32_t c) {
  return c < 128 ? detail::kAsciiClass[c] : char_class_slow(c);
}

Category category(char32_t c);
char32_t lower_case(char32_t c);  // the simple mapping; U+0130 is left to the caller
uint8_t script_class(
    char32_t c);  // 0 for common characters, equal numbers for equal scripts (Hiragana, Katakana = Han)

using Ranges = std::vector<std::pair<char32_t, char32_t>>;  // inclusive, ascending
Ranges category_ranges(std::string_view name);              // "Lu" or "L"; empty when there is no such category
Ranges white_space_ranges();
Ranges alphabetic_ranges();
Ranges word_ranges();  // \w of split patterns

// A character of valid UTF-8 and its length. Requires: i < text.size() and text is valid.
struct Decoded {
  char32_t code;
  uint32_t length;
};
inline Decoded decode(const char* p) {
  const auto byte = [p](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
inline Decoded decode(std::string_view text, size_t i) {
  return decode(text.data() + i);
}

}  // namespace hayfork::engine::unicode
