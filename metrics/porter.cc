// M. F. Porter, "An algorithm for suffix stripping", Program 14 (1980) 130–137, with the departures of NLTK's default
// mode, because that is what rouge_score stems with: irregular words, -ies and -ied of four letters, y → i after any
// consonant, -bli, -alli first and again, -fulli, -logi, and *o for two letters. Other bytes than letters (digits)
// count as consonants.
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "metrics/text.h"

namespace hayfork::metrics {
namespace {

bool vowel_letter(char c) {
  return c == 'a' || c == 'e' || c == 'i' || c == 'o' || c == 'u';
}

// y is a consonant at the start and after a vowel.
std::vector<bool> consonants(std::string_view word) {
  std::vector<bool> flags(word.size());
  for (size_t i = 0; i < word.size(); ++i) flags[i] = word[i] == 'y' ? i == 0 || !flags[i - 1] : !vowel_letter(word[i]);
  return flags;
}

// m of [C](VC)^m[V].
int measure(std::string_view stem) {
  const std::vector<bool> flags = consonants(stem);
  int m = 0;
  for (size_t i = 1; i < flags.size(); ++i) m += !flags[i - 1] && flags[i];
  return m;
}

bool has_vowel(std::string_view stem) {
  for (const bool consonant : consonants(stem))
    if (!consonant) return true;
  return false;
}

bool ends_double_consonant(std::string_view word) {
  const size_t n = word.size();
  return n >= 2 && word[n - 1] == word[n - 2] && consonants(word)[n - 1];
}

// *o: consonant, vowel, consonant other than w, x, y.
bool ends_cvc(std::string_view word) {
  const std::vector<bool> c = consonants(word);
  const size_t n = word.size();
  if (n == 2) return !c[0] && c[1];
  if (n < 3) return false;
  const char last = word[n - 1];
  return c[n - 3] && !c[n - 2] && c[n - 1] && last != 'w' && last != 'x' && last != 'y';
}

struct Rule {
  std::string_view suffix, replacement;
};

// The first rule whose suffix fits decides: the word is changed if the stem's measure is above `more_than`, else kept.
// `extra` is a further condition on suffix and stem.
std::string apply(std::string word, std::span<const Rule> rules, int more_than,
                  bool (*extra)(std::string_view suffix, std::string_view stem) = nullptr) {
  for (const Rule& rule : rules) {
    if (!word.ends_with(rule.suffix)) continue;
    const std::string_view stem = std::string_view(word).substr(0, word.size() - rule.suffix.size());
    if (measure(stem) > more_than && (extra == nullptr || extra(rule.suffix, stem)))
      return std::string(stem) + std::string(rule.replacement);
    return word;
  }
  return word;
}

std::string without(const std::string& word, size_t n) {
  return word.substr(0, word.size() - n);
}

std::string step1a(std::string word) {
  if (word.ends_with("ies")) return without(word, word.size() == 4 ? 1 : 2);
  if (word.ends_with("sses")) return without(word, 2);
  if (word.ends_with("ss") || !word.ends_with("s")) return word;
  return without(word, 1);
}

std::string step1b(std::string word) {
  if (word.ends_with("ied")) return without(word, word.size() == 4 ? 1 : 2);
  if (word.ends_with("eed")) return measure(without(word, 3)) > 0 ? without(word, 1) : word;
  std::string stem;
  if (word.ends_with("ed") && has_vowel(without(word, 2)))
    stem = without(word, 2);
  else if (word.ends_with("ing") && has_vowel(without(word, 3)))
    stem = without(word, 3);
  else
    return word;
  if (stem.ends_with("at") || stem.ends_with("bl") || stem.ends_with("iz")) return stem + "e";
  if (ends_double_consonant(stem)) {
    const char last = stem.back();
    return last == 'l' || last == 's' || last == 'z' ? stem : without(stem, 1);
  }
  return measure(stem) == 1 && ends_cvc(stem) ? stem + "e" : stem;
}

std::string step1c(std::string word) {
  if (!word.ends_with("y")) return word;
  const std::string stem = without(word, 1);
  if (stem.size() > 1 && consonants(stem).back()) word.back() = 'i';
  return word;
}

std::string step2(std::string word) {
  static constexpr Rule kRules[] = {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},   {"anci", "ance"},
                                    {"izer", "ize"},    {"bli", "ble"},     {"alli", "al"},     {"entli", "ent"},
                                    {"eli", "e"},       {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
                                    {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"}, {"fulness", "ful"},
                                    {"ousness", "ous"}, {"aliti", "al"},    {"iviti", "ive"},   {"biliti", "ble"},
                                    {"fulli", "ful"}};
  while (word.ends_with("alli") && measure(without(word, 4)) > 0) word = without(word, 2);
  for (const Rule& rule : kRules)
    if (word.ends_with(rule.suffix)) return apply(std::move(word), kRules, 0);
  // The l of -logi counts with the stem, so that geo- and theo- work like archaeo-.
  if (word.ends_with("logi") && measure(without(word, 3)) > 0) return without(word, 1);
  return word;
}

std::string step3(std::string word) {
  static constexpr Rule kRules[] = {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                                    {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
  return apply(std::move(word), kRules, 0);
}

std::string step4(std::string word) {
  static constexpr Rule kRules[] = {{"al", ""},   {"ance", ""}, {"ence", ""}, {"er", ""},    {"ic", ""},
                                    {"able", ""}, {"ible", ""}, {"ant", ""},  {"ement", ""}, {"ment", ""},
                                    {"ent", ""},  {"ion", ""},  {"ou", ""},   {"ism", ""},   {"ate", ""},
                                    {"iti", ""},  {"ous", ""},  {"ive", ""},  {"ize", ""}};
  return apply(std::move(word), kRules, 1, [](std::string_view suffix, std::string_view stem) {
    return suffix != "ion" || stem.ends_with('s') || stem.ends_with('t');
  });
}

std::string step5(std::string word) {
  if (word.ends_with("e")) {
    const std::string stem = without(word, 1);
    const int m = measure(stem);
    if (m > 1 || (m == 1 && !ends_cvc(stem))) word = stem;
  }
  if (word.ends_with("ll") && measure(without(word, 1)) > 1) word.pop_back();
  return word;
}

std::string_view irregular(std::string_view word) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kForms = {{{"sky", "sky"},
                                                                                            {"skies", "sky"},
                                                                                            {"dying", "die"},
                                                                                            {"lying", "lie"},
                                                                                            {"tying", "tie"},
                                                                                            {"news", "news"},
                                                                                            {"innings", "inning"},
                                                                                            {"inning", "inning"},
                                                                                            {"outings", "outing"},
                                                                                            {"outing", "outing"},
                                                                                            {"cannings", "canning"},
                                                                                            {"canning", "canning"},
                                                                                            {"howe", "howe"},
                                                                                            {"proceed", "proceed"},
                                                                                            {"exceed", "exceed"},
                                                                                            {"succeed", "succeed"}}};
  for (const auto& [form, stem] : kForms)
    if (form == word) return stem;
  return {};
}

}  // namespace

std::string porter_stem(std::string_view word) {
  if (const std::string_view stem = irregular(word); !stem.empty()) return std::string(stem);
  if (word.size() <= 2) return std::string(word);
  return step5(step4(step3(step2(step1c(step1b(step1a(std::string(word))))))));
}

}  // namespace hayfork::metrics
