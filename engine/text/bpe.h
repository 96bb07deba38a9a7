// Byte-pair encoding of one word (Sennrich et al. 2016; the rules of the reference library's BPE model): start from
// characters or bytes, then merge the adjacent pair of lowest rank, leftmost first, until none is left. O(n log n) for
// words of any length. All methods are const and thread-safe; a BpeScratch serves one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/bpe_scratch.h"
#include "engine/text/pair_table.h"
#include "engine/text/vocabulary.h"

namespace hayfork::engine {

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  // Whether words of raw bytes can stand for their byte-level characters (nothing looks at those as characters).
  bool allows_bytes() const {
    return !byte_fallback && continuing_subword_prefix.empty() && end_of_word_suffix.empty();
  }
};

class Bpe {
 public:
  using Merge = std::pair<std::string_view, std::string_view>;  // left, right; the rank is the position in the list

  // With `byte_level`, words are raw bytes while the vocabulary spells them in the byte-level alphabet.
  // Requires: !byte_level or options.allows_bytes(). Throws: corrupt for a merge whose parts or result the vocabulary
  // does not have.
  Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options, bool byte_level);

  // Appends the ids of `word`. With `lengths`, also the length of each token in bytes of the word as the vocabulary
  // spells it (mapped characters when byte_level); what has no token and no unk_token vanishes and has no length.
  // Throws: corrupt when the unk_token is needed but not in the vocabulary.
  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids,
              std::vector<uint32_t>* lengths = nullptr) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  bool byte_level() const { return byte_level_; }

 private:
  void encode_part(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& ids,
                   std::vector<uint32_t>* lengths) const;
  void start_bytes(std::string_view word, BpeScratch& scratch) const;
  void start_chars(std::string_view word, BpeScratch& scratch) const;
  int32_t char_id(std::string_view word, size_t begin, uint32_t length) const;
  bool push_fallback(std::string_view word, size_t begin, uint32_t length, BpeScratch& scratch) const;
  void push_unknown(uint32_t length, BpeScratch& scratch) const;
  void flush_unknown(BpeScratch& scratch) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;
  size_t safe_cut(std::string_view word, size_t begin) const;
  void build_tables();
  void build_merges(const std::vector<Merge>& merges);

  Vocabulary vocabulary_;
  BpeOptions options_;
  bool byte_level_;
  bool plain_chars_;  // no prefix and no suffix: a character's id depends on nothing else
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_{};  // byte_level: of the byte's character; else of its <0xXX>; -1 when missing
  std::vector<int32_t> char_ids_;        // by code point; -1 when missing
  std::vector<std::string> raw_texts_;   // keys of by_raw_
  TextTable by_raw_;                     // byte_level with ignore_merges: raw bytes → id
  PairTable merges_;                     // (left id, right id) → rank, result
  PairTable joints_;  // (last character of left, first of right) of every merge: between others a word can be cut
};

}  // namespace hayfork::engine
