#include "cli/suggest.h"

#include <algorithm>
#include <utility>

namespace hayfork::cli {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1, 0));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::vector<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > 100) word = word.substr(0, 100);
  std::vector<std::pair<int, std::string>> found;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    const bool begins =
        word.size() >= 2 && (candidate.starts_with(word) || (candidate.size() > 2 && word.starts_with(candidate)));
    const int limit = std::max<int>(1, static_cast<int>(std::max(word.size(), candidate.size())) / 3);
    if (distance <= limit) {
      found.emplace_back(distance, candidate);
    } else if (begins) {
      found.emplace_back(limit + 1, candidate);
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> words;
  for (const auto& [distance, candidate] : found) {
    if (words.size() < 3 && distance <= found.front().first + 1) words.push_back(candidate);
  }
  return words;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates, const std::string& otherwise) {
  const std::vector<std::string> words = nearest(word, candidates);
  if (words.empty()) return otherwise;
  std::string text = "did you mean " + words.front();
  for (size_t i = 1; i < words.size(); ++i) text += (i + 1 == words.size() ? " or " : ", ") + words[i];
  return text + "?";
}

}  // namespace hayfork::cli
