#include "metrics/squad.h"

#include <algorithm>
#include <map>

#include <unicode/uchar.h>

#include "base/error.h"
#include "base/utf8.h"
#include "metrics/text.h"

namespace hayfork::metrics {
namespace {

bool is_word(char32_t c) {  // Python's \w: numbers of every kind, "²" too
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & (U_GC_L_MASK | U_GC_N_MASK)) != 0;
}

bool is_space(char32_t c) {
  return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0 || (c >= 0x1C && c <= 0x1F);
}

bool is_punctuation(char32_t c) {  // Python's string.punctuation
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) out.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

double f1(std::string_view prediction, std::string_view reference) {
  const std::vector<std::string> got = words(squad_normalized(prediction)), want = words(squad_normalized(reference));
  if (got.empty() || want.empty()) return got == want ? 1 : 0;
  std::map<std::string, int> left;
  for (const std::string& word : want) ++left[word];
  int same = 0;
  for (const std::string& word : got) same += left[word]-- > 0 ? 1 : 0;
  if (same == 0) return 0;
  const double precision = static_cast<double>(same) / static_cast<double>(got.size());
  const double recall = static_cast<double>(same) / static_cast<double>(want.size());
  return 2 * precision * recall / (precision + recall);
}

}  // namespace

std::string squad_normalized(std::string_view text) {
  std::u32string bare;
  for (const char32_t c : to_code_points(lower(text)))
    if (!is_punctuation(c)) bare += c;
  std::u32string out;
  for (size_t i = 0; i < bare.size();) {
    size_t end = i;
    while (end < bare.size() && is_word(bare[end])) ++end;
    if (end == i) {
      out += is_space(bare[i]) ? U' ' : bare[i];
      ++i;
      continue;
    }
    const std::u32string word = bare.substr(i, end - i);
    out += word == U"a" || word == U"an" || word == U"the" ? U" " : word;
    i = end;
  }
  std::string joined;
  for (const std::string& word : words(to_utf8(out))) joined += (joined.empty() ? "" : " ") + word;
  return joined;
}

double squad_exact(std::string_view prediction, const std::vector<std::string>& references) {
  HAY_CHECK(!references.empty());
  const std::string got = squad_normalized(prediction);
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& want) { return squad_normalized(want) == got; })
             ? 1
             : 0;
}

double squad_f1(std::string_view prediction, const std::vector<std::string>& references) {
  HAY_CHECK(!references.empty());
  double best = 0;
  for (const std::string& want : references) best = std::max(best, f1(prediction, want));
  return best;
}

}  // namespace hayfork::metrics
