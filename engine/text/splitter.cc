#include "engine/text/splitter.h"

#include <array>

#include "base/error.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

using namespace unicode;  // NOLINT: the class bits are this file's vocabulary

struct Here {
  uint16_t bits;
  uint32_t length;  // 0 at the end of the text
};

inline Here at(std::string_view text, size_t i) {
  if (i >= text.size()) return {0, 0};
  const auto byte = static_cast<unsigned char>(text[i]);
  if (byte < 0x80) return {char_class(byte), 1};
  const Decoded c = unicode::decode(text, i);
  return {char_class(c.code), c.length};
}

inline size_t run(std::string_view text, size_t i, uint16_t any_of) {
  for (;;) {
    const Here h = at(text, i);
    if ((h.bits & any_of) == 0) return i;
    i += h.length;
  }
}

inline size_t run_of_none(std::string_view text, size_t i, uint16_t none_of) {
  for (;;) {
    const Here h = at(text, i);
    if (h.length == 0 || (h.bits & none_of) != 0) return i;
    i += h.length;
  }
}

// Length of 's 't 're 've 'm 'll 'd at i, or 0. Without case, U+017F folds to s as well.
size_t contraction(std::string_view text, size_t i, bool fold) {
  if (i >= text.size() || text[i] != '\'') return 0;
  const auto letter = [&](size_t k) -> char {
    if (i + k >= text.size()) return 0;
    const char c = text[i + k];
    return fold && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = letter(2);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  if (fold && text.substr(i + 1).starts_with("\u017F")) return 3;
  return 0;
}

// \s*[\r\n]+ | \s+(?!\S) | \s+ ; the first only for patterns that have it. Requires: white space at i.
size_t white_space(std::string_view text, size_t i, bool line_ends) {
  size_t end = i;
  size_t last_begin = i;
  size_t after_line_end = 0;
  for (;;) {
    const Here h = at(text, end);
    if ((h.bits & kSpace) == 0) break;
    last_begin = end;
    end += h.length;
    if (h.bits & kLineEnd) after_line_end = end;
  }
  if (line_ends && after_line_end != 0) return after_line_end;
  if (end == text.size() || last_begin == i) return end;
  return last_begin;
}

//  ?[^\s\p{L}\p{N}…]+[\r\n…]* ; 0 when it does not match.
size_t punctuation(std::string_view text, size_t i, uint16_t none_of, bool line_ends, bool slash) {
  const size_t begin = text[i] == ' ' ? i + 1 : i;
  size_t end = run_of_none(text, begin, none_of);
  if (end == begin) return 0;
  while (line_ends && end < text.size() && (text[end] == '\r' || text[end] == '\n' || (slash && text[end] == '/')))
    ++end;
  return end;
}

size_t numbers(std::string_view text, size_t i, int most) {
  for (int n = 0; n < most; ++n) {
    const Here h = at(text, i);
    if ((h.bits & kNumber) == 0) break;
    i += h.length;
  }
  return i;
}

size_t gpt2_end(std::string_view text, size_t i) {
  if (const size_t n = contraction(text, i, false)) return i + n;
  const size_t begin = text[i] == ' ' ? i + 1 : i;
  const Here h = at(text, begin);
  if (h.bits & kLetter) return run(text, begin, kLetter);
  if (h.bits & kNumber) return run(text, begin, kNumber);
  if (const size_t end = punctuation(text, i, kSpace | kLetter | kNumber, false, false)) return end;
  return white_space(text, i, false);
}

// Qwen2, Llama-3 (numbers up to three long) and Qwen3.5 (marks count as letters).
size_t cl100k_end(std::string_view text, size_t i, uint16_t letters, int most_numbers) {
  if (const size_t n = contraction(text, i, true)) return i + n;
  const Here h = at(text, i);
  if ((h.bits & (kLineEnd | kLetter | kNumber)) == 0) {
    const size_t next = i + h.length;
    if (at(text, next).bits & letters) return run(text, next, letters);
  }
  if (h.bits & letters) return run(text, i, letters);
  if (h.bits & kNumber) return numbers(text, i, most_numbers);
  const auto none_of = static_cast<uint16_t>(kSpace | kNumber | letters);
  if (const size_t end = punctuation(text, i, none_of, true, false)) return end;
  return white_space(text, i, true);
}

// [upper side]*[lower side]+ from i, or 0: a greedy first run gives characters back until the second can match.
size_t capitals_then_small(std::string_view text, size_t i) {
  size_t small_end = 0;  // behind the last character of the run that could also begin the second part
  size_t j = i;
  for (;;) {
    const Here h = at(text, j);
    if ((h.bits & kUpperSide) == 0) break;
    j += h.length;
    if (h.bits & kLowerSide) small_end = j;
  }
  if (at(text, j).bits & kLowerSide) return run(text, j, kLowerSide);
  return small_end;
}

// [upper side]+[lower side]* from i, or 0.
size_t capitals_or_more(std::string_view text, size_t i) {
  const size_t j = run(text, i, kUpperSide);
  return j == i ? 0 : run(text, j, kLowerSide);
}

size_t o200k_end(std::string_view text, size_t i, bool contractions, int most_numbers) {
  const Here h = at(text, i);
  const bool prefix = (h.bits & (kLineEnd | kLetter | kNumber)) == 0;
  size_t end = prefix ? capitals_then_small(text, i + h.length) : 0;
  if (end == 0) end = capitals_then_small(text, i);
  if (end == 0 && prefix) end = capitals_or_more(text, i + h.length);
  if (end == 0) end = capitals_or_more(text, i);
  if (end != 0) return contractions ? end + contraction(text, end, true) : end;
  if (h.bits & kNumber) return numbers(text, i, most_numbers);
  if (const size_t stop = punctuation(text, i, kSpace | kLetter | kNumber, true, true)) return stop;
  return white_space(text, i, true);
}

#define HAY_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define HAY_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define HAY_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define HAY_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const std::array<std::string, 6> kExpressions = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    HAY_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" HAY_SPACES,
    HAY_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" HAY_SPACES,
    HAY_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" HAY_SPACES,
    "[^\\r\\n\\p{L}\\p{N}]?" HAY_UPPER "*" HAY_LOWER "+" HAY_CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" HAY_UPPER
    "+" HAY_LOWER "*" HAY_CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" HAY_SPACES,
    "[^\\r\\n\\p{L}\\p{N}]?" HAY_UPPER "*" HAY_LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" HAY_UPPER "+" HAY_LOWER
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" HAY_SPACES,
};

}  // namespace

const std::string& pattern_text(SplitPattern pattern) {
  return kExpressions[static_cast<size_t>(pattern)];
}

std::optional<SplitPattern> known_pattern(std::string_view expression) {
  for (size_t i = 0; i < kExpressions.size(); ++i)
    if (kExpressions[i] == expression) return static_cast<SplitPattern>(i);
  return std::nullopt;
}

size_t piece_end(SplitPattern pattern, std::string_view text, size_t begin) {
  switch (pattern) {
    case SplitPattern::gpt2:
      return gpt2_end(text, begin);
    case SplitPattern::qwen2:
      return cl100k_end(text, begin, kLetter, 1);
    case SplitPattern::qwen3_5:
      return cl100k_end(text, begin, kLetter | kMark, 1);
    case SplitPattern::llama3:
      return cl100k_end(text, begin, kLetter, 3);
    case SplitPattern::o200k:
      return o200k_end(text, begin, true, 3);
    case SplitPattern::tekken:
      return o200k_end(text, begin, false, 1);
  }
  HAY_CHECK(false, "split pattern");
}

}  // namespace hayfork::engine
