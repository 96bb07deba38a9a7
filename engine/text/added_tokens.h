// Added tokens: strings that are found in the text before anything else happens to it and become one id each. Leftmost
// match, of several the longest, left to right without overlap; whole words only, or with the white space around them,
// where the token says so. Tokens with `normalized` are looked for in normalized text, the others in the raw text.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/normalizers.h"
#include "engine/text/vocabulary.h"

namespace hayfork::engine {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
  std::string pattern;  // what is looked for, and what decoding starts from: the content, normalized if it says so
};

// A set of strings with the index of the longest one at a place of a text.
class PatternTrie {
 public:
  void insert(std::string_view pattern, int32_t value);  // a later equal pattern replaces the earlier one
  // Longest pattern that `text` begins with at `at`: its value, or -1. `length` is its length.
  int32_t longest_at(std::string_view text, size_t at, size_t& length) const;
  bool empty() const { return nodes_.empty(); }
  // First place from `at` on where a pattern can begin; text.size() when there is none.
  size_t next_start(std::string_view text, size_t at) const;

 private:
  struct Node {
    int32_t value = -1, child = -1, sibling = -1;
    unsigned char byte = 0;
  };
  std::vector<Node> nodes_;
  std::vector<int32_t> roots_;  // by first byte
};

class AddedTokens {
 public:
  // `tokens` in the order of the file; ids are those the reference library gives: the vocabulary's for a known text,
  // otherwise counted on from its size. A token whose id in the file is another one adds a line to `warnings`.
  // Throws: unsupported for a token that the normalizer leaves nothing of.
  AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizer* normalizer,
              std::vector<std::string>& warnings);

  struct Hit {
    int32_t id;  // -1: text between hits
    size_t begin, end;
  };
  // Hits and the text between them, in order. `parse_special` false leaves special tokens in the text.
  std::vector<Hit> split_raw(std::string_view text, bool parse_special) const {
    return split(raw_, text, parse_special);
  }
  std::vector<Hit> split_normalized(std::string_view text, bool parse_special) const {
    return split(normalized_, text, parse_special);
  }
  bool has_normalized() const { return !normalized_.empty(); }

  const AddedToken* by_id(int32_t id) const;
  std::optional<int32_t> find(std::string_view content) const;
  bool special(int32_t id) const;
  // Whether decoding leaves the token out as special: the reference asks by text.
  bool special_text(std::string_view text) const;
  int32_t id_limit() const { return static_cast<int32_t>(index_.size()); }

 private:
  std::vector<Hit> split(const PatternTrie& trie, std::string_view text, bool parse_special) const;

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> index_;                              // id → index into tokens_, -1
  std::map<std::string, int32_t, std::less<>> by_content_;  // → id
  std::map<std::string, bool, std::less<>> special_;
  PatternTrie raw_, normalized_;
};

}  // namespace hayfork::engine
