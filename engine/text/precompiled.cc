#include "engine/text/precompiled.h"

#include <memory>

#include <unicode/brkiter.h>
#include <unicode/unistr.h>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/text/component_json.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

std::string decode_base64(const std::string& text) {
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    uint32_t value = 0;
    if (c >= 'A' && c <= 'Z') {
      value = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      value = static_cast<uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      value = static_cast<uint32_t>(c - '0' + 52);
    } else if (c == '+' || c == '/') {
      value = c == '+' ? 62 : 63;
    } else if (c == '=') {
      break;
    } else {
      bad_component("Precompiled", "precompiled_charsmap is not base64");
    }
    bits = bits << 6 | value;
    n_bits += 6;
    if (n_bits >= 8) {
      n_bits -= 8;
      out += static_cast<char>(bits >> n_bits & 0xFF);
    }
  }
  return out;
}

uint32_t little_endian(std::string_view bytes, size_t at) {
  uint32_t out = 0;
  for (size_t i = 0; i < 4; ++i) out |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return out;
}

// Units of darts-clone's double array.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) == 1;
}
uint32_t leaf_value(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label(uint32_t unit) {
  return unit & (1u << 31 | 0xFF);
}
uint32_t offset(uint32_t unit) {
  return unit >> 10 << ((unit & 1u << 9) >> 6);
}

}  // namespace

PrecompiledMap::PrecompiledMap(const std::string& base64) {
  const std::string blob = decode_base64(base64);
  if (blob.empty()) return;
  if (blob.size() < 4) bad_component("Precompiled", "the table is cut short");
  const uint32_t trie_bytes = little_endian(blob, 0);
  if (trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4)
    bad_component("Precompiled", "the trie is larger than the table that holds it");
  for (size_t at = 4; at < 4 + static_cast<size_t>(trie_bytes); at += 4) trie_.push_back(little_endian(blob, at));
  normalized_ = blob.substr(4 + trie_bytes);
  if (find_invalid_utf8(normalized_)) bad_component("Precompiled", "a replacement is not UTF-8");
}

std::optional<std::string_view> PrecompiledMap::replacement(std::string_view key) const {
  if (trie_.empty()) return std::nullopt;
  size_t node = offset(trie_[0]);
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return std::nullopt;
    node ^= byte;
    if (node >= trie_.size() || label(trie_[node]) != byte) return std::nullopt;
    const uint32_t unit = trie_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= trie_.size()) return std::nullopt;
    const size_t begin = leaf_value(trie_[node]);
    if (begin > normalized_.size()) return std::nullopt;
    const size_t end = normalized_.find('\0', begin);
    const std::string_view text =
        std::string_view(normalized_).substr(begin, end == std::string::npos ? end : end - begin);
    if (find_invalid_utf8(text)) return std::nullopt;  // the value points into the middle of a character
    return text;
  }
  return std::nullopt;
}

std::optional<std::vector<CharChange>> PrecompiledMap::changes(std::string_view text) const {
  std::vector<CharChange> out;
  bool modified = false;
  const auto replace = [&](std::string_view before, std::string_view after) {
    modified = true;
    const auto difference =
        static_cast<std::ptrdiff_t>(count_code_points(after)) - static_cast<std::ptrdiff_t>(count_code_points(before));
    for (size_t i = 0; i < after.size();) {
      const unicode::Decoded c = unicode::decode(after, i);
      out.push_back({c.code, 0});
      i += c.length;
    }
    for (std::ptrdiff_t i = 0; i < difference; ++i) out[out.size() - 1 - static_cast<size_t>(i)].change = 1;
    if (difference < 0 && !out.empty()) out.back().change += static_cast<int>(difference);
  };
  const auto cluster = [&](std::string_view grapheme) {
    if (grapheme.size() < 6) {
      if (const auto mapped = replacement(grapheme)) return replace(grapheme, *mapped);
    }
    for (size_t i = 0; i < grapheme.size();) {
      const unicode::Decoded c = unicode::decode(grapheme, i);
      const std::string_view part = grapheme.substr(i, c.length);
      i += c.length;
      if (const auto mapped = replacement(part)) {
        replace(part, *mapped);
      } else {
        out.push_back({c.code, 0});
      }
    }
  };

  const icu::UnicodeString wide =
      icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  HAY_CHECK(U_SUCCESS(status), u_errorName(status));
  breaks->setText(wide);
  size_t byte = 0;
  for (int32_t at = 0, next = breaks->next(); next != icu::BreakIterator::DONE; at = next, next = breaks->next()) {
    size_t end = byte;
    for (int32_t i = at; i < next; i = wide.moveIndex32(i, 1)) end += unicode::decode(text, end).length;
    cluster(text.substr(byte, end - byte));
    byte = end;
  }
  if (!modified) return std::nullopt;
  return out;
}

}  // namespace hayfork::engine
