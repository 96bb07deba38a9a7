// What RULER's prompts are made from: word lists, essays, question sets. All are files the user has; none is shipped.
// Loading validates; the digests go into a task's identity.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::datasets {

// wonderwords' three files, one word a line, right-stripped. The release is told by the noun list.
struct WordLists {
  std::vector<std::string> nouns, adjectives, verbs;
  std::string release;  // "2.2.0", "3.0.0" (3.0.1 has the same words), or "unknown"
  std::string sha256;

  // Nouns, adjectives and verbs, distinct and sorted.
  std::vector<std::string> all() const;
};

// The sorted, distinct "adjective-noun" pairs, by code point: six million, of which few are ever made.
class WordPairs {
 public:
  WordPairs() = default;
  explicit WordPairs(const WordLists& lists);
  size_t size() const { return size_; }
  std::string at(size_t index) const;  // Requires: index < size()

 private:
  // Pairs that are neighbours: all nouns under one prefix, or a list of their own where prefixes interleave ("blue" and
  // "blue-eyed").
  struct Group {
    size_t first;
    std::string prefix;
    std::vector<std::string> own;
  };
  std::vector<std::string> nouns_;
  std::vector<Group> groups_;
  size_t size_ = 0;
};

// Looks in `folder` for nounlist.txt, adjectivelist.txt and verblist.txt, also with a "wonderwords_" or
// "wonderwords-<release>_" prefix (the newest release when there are several). Throws: not_found, corrupt.
WordLists load_word_lists(const std::filesystem::path& folder);

// english_words.json: an object index → word, in order of the indices. Throws: not_found, corrupt.
std::vector<std::string> load_english_words(const std::filesystem::path& file);

// Text to words as RULER splits essays: every run of Unicode white space is one blank, then split at blanks (so that
// white space at either end gives an empty word there).
std::vector<std::string> essay_words(std::string_view text);

struct QaQuestion {
  std::string question;
  std::vector<std::string> answers;
  std::vector<int64_t> own;   // indices of documents that hold the answer
  std::vector<int64_t> more;  // others of the same article; may be empty
  std::string article;        // its number in the file; "" when questions are independent
};
struct QaSet {
  std::vector<std::string> documents;  // distinct, sorted by code point
  std::vector<QaQuestion> questions;   // in file order
  std::string sha256;
};
QaSet load_squad(const std::filesystem::path& file);   // SQuAD 2.0 layout; unanswerable questions are left out
QaSet load_hotpot(const std::filesystem::path& file);  // HotpotQA distractor layout

}  // namespace hayfork::datasets
