// Sentence splitting as NLTK's Punkt does it for English (Kiss and Strunk 2006), by the rules of NLTK 3.9.1; `newer`
// is 3.10.4: six more quote characters, and another idea of a letter. Parameters are read from four text files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace hayfork::datasets {

using Span = std::pair<size_t, size_t>;  // half-open, in code points

class Punkt {
 public:
  // `folder` holds abbrev_types.txt, collocations.tab, sent_starters.txt and ortho_context.tab.
  // Throws: not_found; corrupt with file and line.
  static Punkt load(const std::filesystem::path& folder, bool newer = false);

  // Spans of the sentences; the white space between them belongs to none.
  std::vector<Span> sentences(std::u32string_view text) const;

  const std::string& sha256() const { return sha256_; }  // of the four files, in the order above

 private:
  friend class PunktReader;
  struct Token;
  struct Candidate;

  bool is_nonword(char32_t c) const;
  bool is_closer(char32_t c) const;
  bool is_quote(char32_t c) const;
  std::vector<Candidate> candidates(std::u32string_view text) const;
  std::vector<Token> tokens(std::u32string_view context) const;
  size_t token_end(std::u32string_view line, size_t at) const;
  Token make_token(std::u32string_view word) const;
  void first_pass(Token& token) const;
  void second_pass(Token& token, const Token& next) const;
  enum class Ortho { yes, no, unknown };
  Ortho ortho(const Token& token) const;
  int context_of(const std::string& key) const;
  bool is_boundary(std::u32string_view context) const;

  bool newer_ = false;
  std::unordered_set<std::string> abbreviations_, starters_, collocations_;  // "first\tsecond"
  std::unordered_map<std::string, int> ortho_;
  std::string sha256_;
};

}  // namespace hayfork::datasets
