#include "engine/text/byte_level.h"

#include <vector>

#include "base/utf8.h"
#include "engine/text/aligned_text.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_alphabet() {
  std::array<char32_t, 256> out{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    out[static_cast<size_t>(byte)] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  return out;
}

constexpr std::array<int16_t, 0x100 + 68> make_inverse() {
  std::array<int16_t, 0x100 + 68> out{};
  for (int16_t& byte : out) byte = -1;
  const std::array<char32_t, 256> alphabet = make_alphabet();
  for (size_t byte = 0; byte < 256; ++byte) out[alphabet[byte]] = static_cast<int16_t>(byte);
  return out;
}

constexpr std::array<int16_t, 0x100 + 68> kCharToByte = make_inverse();

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

constexpr std::array<char32_t, 256> kByteToChar = make_alphabet();

int char_to_byte(char32_t c) {
  return c < kCharToByte.size() ? kCharToByte[c] : -1;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  for (size_t i = 0; i < token.size();) {
    const unicode::Decoded c = unicode::decode(token, i);
    const int byte = char_to_byte(c.code);
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    i += c.length;
  }
  return out;
}

std::string token_of_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(out, kByteToChar[static_cast<unsigned char>(byte)]);
  return out;
}

void to_byte_level(AlignedText& text) {
  std::vector<CharChange> changes;
  const std::string& s = text.text();
  for (size_t i = 0; i < s.size();) {
    const uint32_t length = unicode::decode(s, i).length;
    for (uint32_t k = 0; k < length; ++k) changes.push_back({kByteToChar[static_cast<unsigned char>(s[i + k])], k > 0});
    i += length;
  }
  text.transform(changes);
}

int byte_of_fallback_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

}  // namespace hayfork::engine
