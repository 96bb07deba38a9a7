// The byte-level alphabet (GPT-2): every byte has a printable character. 0x21–0x7E, 0xA1–0xAC and 0xAE–0xFF stand for
// themselves; the other 68 in ascending order are U+0100, U+0101, …
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hayfork::engine {

class AlignedText;

extern const std::array<char32_t, 256> kByteToChar;
// The byte of a character of the alphabet, or -1.
int char_to_byte(char32_t c);
// UTF-8 length of a byte's character: 1 or 2.
inline int byte_char_length(unsigned char byte) {
  return kByteToChar[byte] < 0x80 ? 1 : 2;
}
// The bytes a token spells; nothing when it holds a character outside the alphabet. Requires: valid UTF-8.
std::optional<std::string> bytes_of_token(std::string_view token);
std::string token_of_bytes(std::string_view bytes);
// Each byte becomes its character; those of one character keep its place in the original.
void to_byte_level(AlignedText& text);
// "<0x0A>" → 10, else -1. As the reference, which also reads "<0x+A>".
int byte_of_fallback_token(std::string_view token);

}  // namespace hayfork::engine
