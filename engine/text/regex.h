// Regular expressions as tokenizer.json means them: Oniguruma's Ruby syntax over Unicode 16.0 classes, run by ICU. The
// pattern is translated first: classes become explicit sets from our own tables, `^ $` match at line ends, `(?m)` lets
// the dot match line ends. What cannot be said the same way in ICU is refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hayfork::engine {

using Matches = std::vector<std::pair<size_t, size_t>>;  // byte ranges, ascending and disjoint; may be empty ranges

class Regex {
 public:
  // Throws: unsupported naming the pattern and what is wrong with it.
  explicit Regex(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // All matches from left to right; an empty one is not taken directly behind another match. Requires: valid UTF-8.
  // Throws: unsupported when matching needs too much time or memory (a pattern that backtracks without end).
  Matches find_all(std::string_view text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Oniguruma (Ruby) to ICU. Throws: unsupported. Exposed for tests.
std::string translate_regex(const std::string& pattern);

// Occurrences of a plain string, left to right. An empty `needle` has none.
Matches find_all(std::string_view text, std::string_view needle);

}  // namespace hayfork::engine
