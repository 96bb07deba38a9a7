// SentencePiece's precompiled character maps, as tokenizer.json embeds them (base64): a double-array trie over byte
// strings whose values point into a block of NUL-terminated replacements. Applied the way the reference library does,
// which differs from SentencePiece: whole grapheme clusters of up to five bytes first, then single characters, and of
// several matching keys the shortest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/aligned_text.h"

namespace hayfork::engine {

class PrecompiledMap {
 public:
  // Throws: corrupt when the base64 text or the table in it is malformed. "" maps nothing.
  explicit PrecompiledMap(const std::string& base64);
  // The changes, or nothing when no character is mapped.
  std::optional<std::vector<CharChange>> changes(std::string_view text) const;

 private:
  std::optional<std::string_view> replacement(std::string_view key) const;

  std::vector<uint32_t> trie_;
  std::string normalized_;
};

}  // namespace hayfork::engine
