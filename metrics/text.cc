#include "metrics/text.h"

#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/utf8.h"

namespace hayfork::metrics {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Length in bytes of the thousands separator at `at`, or 0.
size_t separator_length(std::string_view text, size_t at) {
  static constexpr std::string_view kSeparators[] = {",", "'", "_", "\u2019", "\u00A0", "\u202F", "\u2009"};
  for (const std::string_view s : kSeparators)
    if (text.substr(at).starts_with(s)) return s.size();
  return 0;
}

size_t digit_run(std::string_view text, size_t at) {
  size_t n = 0;
  while (at + n < text.size() && is_digit(text[at + n])) ++n;
  return n;
}

// "1,234,567" → "1234567"; "12,34" and "1234,567" stay as they are.
std::string join_thousands(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t n = digit_run(text, i);
    if (n == 0) {
      out += text[i++];
      continue;
    }
    out.append(text.substr(i, n));
    i += n;
    while (n <= 3) {
      const size_t gap = i < text.size() ? separator_length(text, i) : 0;
      if (gap == 0 || digit_run(text, i + gap) != 3) break;
      out.append(text.substr(i + gap, 3));
      i += gap + 3;
    }
  }
  return out;
}

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> out;
  std::string word;
  const std::string folded = lower(text);
  for (size_t i = 0; i < folded.size();) {
    const DecodedChar c = decode_utf8(folded, i);
    if (c.valid && u_isalnum(static_cast<UChar32>(c.code_point)))
      word.append(folded, i, c.length);
    else if (!word.empty())
      out.push_back(std::move(word)), word.clear();
    i += c.length;
  }
  if (!word.empty()) out.push_back(std::move(word));
  return out;
}

std::map<std::string, int> rouge_words(std::string_view text, int& total) {
  std::map<std::string, int> counts;
  std::string word;
  total = 0;
  const auto flush = [&] {
    if (word.empty()) return;
    ++counts[word.size() > 3 ? porter_stem(word) : word];
    ++total;
    word.clear();
  };
  for (const char c : lower(text)) {
    if ((c >= 'a' && c <= 'z') || is_digit(c))
      word += c;
    else
      flush();
  }
  flush();
  return counts;
}

}  // namespace

bool contains(std::string_view text, std::string_view needle) {
  return text.find(needle) != std::string_view::npos;
}

double string_match_all(std::string_view prediction, const std::vector<std::string>& references) {
  HAY_CHECK(!references.empty());
  const std::string text = lower(prediction);
  const auto hit = [&](const std::string& r) { return contains(text, lower(r)); };
  return static_cast<double>(std::count_if(references.begin(), references.end(), hit)) /
         static_cast<double>(references.size());
}

double string_match_part(std::string_view prediction, const std::vector<std::string>& references) {
  HAY_CHECK(!references.empty());
  const std::string text = lower(prediction);
  return std::any_of(references.begin(), references.end(),
                     [&](const std::string& r) { return contains(text, lower(r)); })
             ? 1.0
             : 0.0;
}

std::string nfkc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form = icu::Normalizer2::getNFKCInstance(status);
  const icu::UnicodeString in = icu::UnicodeString::fromUTF8(replace_invalid_utf8(text));
  const icu::UnicodeString out = form->normalize(in, status);
  HAY_CHECK(U_SUCCESS(status));
  std::string result;
  out.toUTF8String(result);
  return result;
}

std::optional<size_t> find_ignoring_case(std::string_view text, std::string_view needle) {
  const auto folded = [](std::string_view in) {
    std::u32string out = to_code_points(in);
    for (char32_t& c : out) c = static_cast<char32_t>(u_tolower(u_toupper(static_cast<UChar32>(c))));
    return out;
  };
  const size_t at = folded(text).find(folded(needle));
  if (at == std::u32string::npos) return std::nullopt;
  size_t bytes = 0;
  for (size_t i = 0; i < at; ++i) bytes += static_cast<size_t>(decode_utf8(text, bytes).length);
  return bytes;
}

std::string lower(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; })) {
    std::string out(text);
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    return out;
  }
  icu::UnicodeString in = icu::UnicodeString::fromUTF8(replace_invalid_utf8(text));
  in.toLower(icu::Locale::getRoot());
  std::string out;
  in.toUTF8String(out);
  return out;
}

std::string upper(std::string_view text) {
  icu::UnicodeString in = icu::UnicodeString::fromUTF8(replace_invalid_utf8(text));
  in.toUpper(icu::Locale::getRoot());
  std::string out;
  in.toUTF8String(out);
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return {};
  const DecodedChar first = decode_utf8(text, 0);
  icu::UnicodeString head(static_cast<UChar32>(first.code_point));
  head.toTitle(nullptr, icu::Locale::getRoot());
  std::string out;
  head.toUTF8String(out);
  // Lowered as a whole: what stands before a capital sigma decides which small one it becomes.
  return out + lower(text).substr(lower(text.substr(0, static_cast<size_t>(first.length))).size());
}

std::string_view first_answer_line(std::string_view text) {
  size_t start = 0;
  for (;;) {
    const size_t end = text.find('\n', start);
    if (end == std::string_view::npos) return text;
    const std::string_view line = text.substr(start, end - start);
    if (line.find_first_not_of(" \t\r\v\f") != std::string_view::npos) return text.substr(0, end);
    start = end + 1;
  }
}

bool holds_number(std::string_view text, std::string_view digits) {
  HAY_CHECK(!digits.empty() && std::all_of(digits.begin(), digits.end(), is_digit));
  // Separators are removed before NFKC too: it turns no-break blanks into plain ones, which part two numbers.
  const std::string joined = join_thousands(nfkc(join_thousands(text)));
  for (size_t at = joined.find(digits); at != std::string::npos; at = joined.find(digits, at + 1)) {
    const size_t end = at + digits.size();
    if ((at == 0 || !is_digit(joined[at - 1])) && (end == joined.size() || !is_digit(joined[end]))) return true;
  }
  return false;
}

double word_recall(std::string_view response, std::string_view reference) {
  const std::vector<std::string> have = words(response), want = words(reference);
  const std::set<std::string> known(have.begin(), have.end()), asked(want.begin(), want.end());
  if (asked.empty()) return 0;
  const auto hits = std::count_if(asked.begin(), asked.end(), [&](const std::string& w) { return known.contains(w); });
  return static_cast<double>(hits) / static_cast<double>(asked.size());
}

Rouge rouge1(std::string_view prediction, std::string_view target) {
  int n_prediction = 0, n_target = 0, overlap = 0;
  const std::map<std::string, int> have = rouge_words(prediction, n_prediction);
  for (const auto& [word, count] : rouge_words(target, n_target))
    if (const auto it = have.find(word); it != have.end()) overlap += std::min(count, it->second);
  Rouge out;
  if (n_prediction > 0) out.precision = static_cast<double>(overlap) / n_prediction;
  if (n_target > 0) out.recall = static_cast<double>(overlap) / n_target;
  if (overlap > 0) out.f = 2 * out.precision * out.recall / (out.precision + out.recall);
  return out;
}

}  // namespace hayfork::metrics
