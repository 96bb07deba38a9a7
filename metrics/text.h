// Judging generated text: does it hold the target, which number does it give, how much does it overlap a reference.
// Pure functions of their arguments; text is UTF-8, and invalid bytes never match anything but themselves.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::metrics {

// Bytes of `needle` anywhere in `text`. An empty needle is in every text.
bool contains(std::string_view text, std::string_view needle);

// Where `needle` begins in `text`, in bytes, letters matched in either case as Python's re.IGNORECASE does: character
// by character, so that the Kelvin sign is a k, the long s an s, but sharp s is not "SS".
std::optional<size_t> find_ignoring_case(std::string_view text, std::string_view needle);

// Share of `references` found in `prediction`, both lower-cased as Python does (RULER: string_match_all,
// scripts/eval/synthetic/constants.py). 0…1. Requires: references not empty.
double string_match_all(std::string_view prediction, const std::vector<std::string>& references);
// 1 when any reference is found, else 0 (RULER: string_match_part).
double string_match_part(std::string_view prediction, const std::vector<std::string>& references);

// Unicode NFKC; invalid UTF-8 becomes U+FFFD first.
std::string nfkc(std::string_view text);
// Lower case as Python's str.lower: full Unicode mapping, no locale. Invalid UTF-8 becomes U+FFFD first.
std::string lower(std::string_view text);
std::string upper(std::string_view text);  // str.upper
// Python's str.capitalize: the first character in title case ("ß" becomes "Ss"), all others lower-cased.
std::string capitalized(std::string_view text);

// Text up to the line feed that follows its first non-blank line: what counts as the answer when nothing stopped it.
std::string_view first_answer_line(std::string_view text);

// Whether `digits` stands in `text` as a number of its own: after NFKC, with thousands separators (, ' ’ _ and no-break
// or thin blanks between groups of three) removed, and no digit on either side. Requires: digits is all 0-9.
bool holds_number(std::string_view text, std::string_view digits);

// |set(words of response) ∩ set(words of reference)| ÷ |set(words of reference)|, words as runs of letters and digits,
// lower-cased. Fu et al. 2024 (Long-Context-Data-Engineering, visualize.py) divide by the word count with repeats, so
// that their perfect answer scores 11/12, and keep punctuation in words; this is the corrected form: perfect is 1.
double word_recall(std::string_view response, std::string_view reference);

struct Rouge {
  double precision = 0, recall = 0, f = 0;
};
// ROUGE-1 as rouge_score computes it with stemming on: words of a-z0-9, those longer than three letters stemmed,
// clipped unigram overlap, F = 2PR/(P+R).
Rouge rouge1(std::string_view prediction, std::string_view target);

// Porter's stemmer with NLTK's extensions (what rouge_score uses). Requires: lower-case ASCII.
std::string porter_stem(std::string_view word);

}  // namespace hayfork::metrics
