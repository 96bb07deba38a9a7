#include "datasets/ruler/punkt.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/utf8.h"

namespace hayfork::datasets {
namespace {

// Orthographic context bits of ortho_context.tab.
constexpr int kUpperStart = 2, kUpperInside = 4, kLowerInside = 32;
constexpr int kUpper = 14, kLower = 112;

bool is_space(char32_t c) {  // Python's \s for text
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool is_ascii_space(char32_t c) {
  return c == ' ' || (c >= 0x09 && c <= 0x0D);
}
bool is_mark(char32_t c) {
  return c == '.' || c == '?' || c == '!';
}
bool is_digit(char32_t c) {
  return u_charType(static_cast<UChar32>(c)) == U_DECIMAL_DIGIT_NUMBER;
}
// A letter, a number that is no digit, or an underscore; newer versions have another idea of what is in a word.
bool is_letter(char32_t c, bool newer) {
  const auto code = static_cast<UChar32>(c);
  if (c == '_') return true;
  if (newer)
    return u_hasBinaryProperty(code, UCHAR_ALPHABETIC) || (U_GET_GC_MASK(code) & (U_GC_M_MASK | U_GC_PC_MASK)) != 0;
  return (U_GET_GC_MASK(code) & U_GC_L_MASK) != 0 || (!is_digit(c) && u_getNumericValue(code) != U_NO_NUMERIC_VALUE);
}
bool never_begins_a_word(char32_t c) {
  static constexpr std::u32string_view kThese = U"(\"`{[:;&#*@)}]-,";
  return kThese.find(c) != std::u32string_view::npos;
}

std::string lower(std::u32string_view word) {
  const std::string text = to_utf8(word);
  if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x80; })) {
    std::string out = text;
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    return out;
  }
  icu::UnicodeString wide = icu::UnicodeString::fromUTF8(text);
  wide.toLower(icu::Locale::getRoot());
  std::string out;
  wide.toUTF8String(out);
  return out;
}

// -? [.,]? digit [digit , . -]* to the end.
bool is_number(std::u32string_view word) {
  size_t i = 0;
  if (i < word.size() && word[i] == '-') ++i;
  if (i < word.size() && (word[i] == '.' || word[i] == ',')) ++i;
  if (i >= word.size() || !is_digit(word[i])) return false;
  return std::all_of(word.begin() + static_cast<std::ptrdiff_t>(i), word.end(),
                     [](char32_t c) { return is_digit(c) || c == ',' || c == '.' || c == '-'; });
}

// End of two or more dashes, or of two or more periods, together or each with a blank; nothing if there is none at
// `at`.
std::optional<size_t> multi_end(std::u32string_view line, size_t at) {
  const auto run = [&](char32_t c) {
    size_t end = at;
    while (end < line.size() && line[end] == c) ++end;
    return end;
  };
  if (const size_t end = run('-'); end >= at + 2) return end;
  if (const size_t end = run('.'); end >= at + 2) return end;
  size_t end = at;
  while (end + 1 < line.size() && line[end] == '.' && is_space(line[end + 1])) end += 2;
  // Two groups at least, and a period after the last: a longer form is cut back to its last period.
  if (end >= at + 4 && end < line.size() && line[end] == '.') return end + 1;
  if (end >= at + 6) return end - 1;
  return std::nullopt;
}

}  // namespace

struct Punkt::Candidate {
  size_t mark;                 // position of the mark
  size_t after_end;            // end of what follows in the context
  std::optional<size_t> next;  // start of the next word
};

struct Punkt::Token {
  std::u32string text;
  std::string type, noperiod, key;
  bool final_period = false, initial = false, ellipsis = false;
  bool upper = false, lower = false;
  bool breaks = false, abbreviation = false;
};

// Lines of the parameter files, cut at line feeds only: one abbreviation ends in a blank.
class PunktReader {
 public:
  PunktReader(const std::filesystem::path& folder, Sha256Stream& digest) : folder_(folder), digest_(digest) {}

  template <typename Line>
  void read(const char* name, Line line) {
    const std::filesystem::path file = folder_ / name;
    const std::string text = read_file(file, ErrorSubject::data, size_t{16} << 20);
    digest_.update(text);
    size_t number = 1;
    for (size_t at = 0; at < text.size(); ++number) {
      const size_t end = std::min(text.find('\n', at), text.size());
      if (!line(std::string_view(text).substr(at, end - at)))
        throw Error(ErrorCode::corrupt, ErrorSubject::data, "a Punkt parameter file is malformed",
                    {file.string() + ", line " + std::to_string(number), "", ""});
      at = end + 1;
    }
  }

 private:
  const std::filesystem::path& folder_;
  Sha256Stream& digest_;
};

Punkt Punkt::load(const std::filesystem::path& folder, bool newer) {
  Punkt p;
  p.newer_ = newer;
  Sha256Stream digest;
  PunktReader reader(folder, digest);
  reader.read("abbrev_types.txt", [&](std::string_view line) {
    p.abbreviations_.emplace(line);
    return true;
  });
  reader.read("collocations.tab", [&](std::string_view line) {
    p.collocations_.emplace(line);
    return line.find('\t') != std::string_view::npos;
  });
  reader.read("sent_starters.txt", [&](std::string_view line) {
    p.starters_.emplace(line);
    return true;
  });
  reader.read("ortho_context.tab", [&](std::string_view line) {
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos) return false;
    int bits = 0;
    const std::string_view number = line.substr(tab + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
    p.ortho_[std::string(line.substr(0, tab))] = bits;
    return error == std::errc() && end == number.data() + number.size();
  });
  p.sha256_ = hex(digest.finish());
  return p;
}

bool Punkt::is_quote(char32_t c) const {
  return newer_ && (c == 0x2018 || c == 0x2019 || c == 0x201C || c == 0x201D || c == 0xAB || c == 0xBB);
}
bool Punkt::is_nonword(char32_t c) const {
  static constexpr std::u32string_view kThese = U")\";}]*:@'({[!?";
  return kThese.find(c) != std::u32string_view::npos || is_quote(c);
}
bool Punkt::is_closer(char32_t c) const {
  static constexpr std::u32string_view kThese = U"\"')]}";
  return kThese.find(c) != std::u32string_view::npos || is_quote(c);
}

std::vector<Punkt::Candidate> Punkt::candidates(std::u32string_view text) const {
  std::vector<Candidate> out;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (!is_mark(text[i])) continue;
    if (is_nonword(text[i + 1])) {
      out.push_back({i, i + 2, std::nullopt});
      continue;
    }
    size_t next = i + 1;
    while (next < text.size() && is_space(text[next])) ++next;
    if (next == i + 1 || next == text.size()) continue;
    size_t end = next;
    while (end < text.size() && !is_space(text[end])) ++end;
    out.push_back({i, end, next});
  }
  return out;
}

// End of the token at `at`. Requires: no white space there.
size_t Punkt::token_end(std::u32string_view line, size_t at) const {
  if (const auto end = multi_end(line, at)) return *end;
  if (never_begins_a_word(line[at])) return at + 1;
  const auto stop = [&](size_t q) {
    return q >= line.size() || is_space(line[q]) || is_nonword(line[q]) || multi_end(line, q).has_value();
  };
  for (size_t q = at + 1;; ++q)
    if (stop(q) || (line[q] == ',' && stop(q + 1))) return q;
}

Punkt::Token Punkt::make_token(std::u32string_view word) const {
  Token t;
  t.text = word;
  t.type = is_number(word) ? "##number##" : lower(word);
  t.noperiod = t.type.size() > 1 && t.type.back() == '.' ? t.type.substr(0, t.type.size() - 1) : t.type;
  t.final_period = word.back() == '.';
  t.initial = word.size() == 2 && word[1] == '.' && is_letter(word[0], newer_);
  t.ellipsis = word.size() >= 2 && std::all_of(word.begin(), word.end(), [](char32_t c) { return c == '.'; });
  t.upper = u_hasBinaryProperty(static_cast<UChar32>(word[0]), UCHAR_UPPERCASE) != 0;
  t.lower = u_hasBinaryProperty(static_cast<UChar32>(word[0]), UCHAR_LOWERCASE) != 0;
  first_pass(t);
  t.key = t.breaks ? t.noperiod : t.type;
  return t;
}

void Punkt::first_pass(Token& t) const {
  if (t.text.size() == 1 && is_mark(t.text[0])) {
    t.breaks = true;
  } else if (t.final_period && !t.ellipsis && !t.text.ends_with(U"..")) {
    const std::string word = lower(std::u32string_view(t.text).substr(0, t.text.size() - 1));
    const size_t dash = word.rfind('-');
    t.abbreviation =
        abbreviations_.contains(word) || (dash != std::string::npos && abbreviations_.contains(word.substr(dash + 1)));
    t.breaks = !t.abbreviation;
  }
}

std::vector<Punkt::Token> Punkt::tokens(std::u32string_view context) const {
  std::vector<Token> out;
  for (size_t at = 0; at <= context.size();) {
    const size_t end = std::min(context.find(U'\n', at), context.size());
    const std::u32string_view line = context.substr(at, end - at);
    for (size_t p = 0; p < line.size();) {
      if (is_space(line[p])) {
        ++p;
        continue;
      }
      const size_t q = token_end(line, p);
      out.push_back(make_token(line.substr(p, q - p)));
      p = q;
    }
    at = end + 1;
  }
  return out;
}

int Punkt::context_of(const std::string& key) const {
  const auto it = ortho_.find(key);
  return it == ortho_.end() ? 0 : it->second;
}

Punkt::Ortho Punkt::ortho(const Token& t) const {
  static constexpr std::u32string_view kPunctuation = U";:,.!?";
  if (t.text.size() == 1 && kPunctuation.find(t.text[0]) != std::u32string_view::npos) return Ortho::no;
  const int c = context_of(t.key);
  if (t.upper && (c & kLower) != 0 && (c & kUpperInside) == 0) return Ortho::yes;
  if (t.lower && ((c & kUpper) != 0 || (c & 16) == 0)) return Ortho::no;
  return Ortho::unknown;
}

void Punkt::second_pass(Token& t, const Token& next) const {
  if (!t.final_period) return;
  if (collocations_.contains(t.noperiod + "\t" + next.key)) {
    t.breaks = false;
    t.abbreviation = true;
    return;
  }
  if ((t.abbreviation || t.ellipsis) && !t.initial) {
    if (ortho(next) == Ortho::yes || (next.upper && starters_.contains(next.key))) {
      t.breaks = true;
      return;
    }
  }
  if (t.initial || t.noperiod == "##number##") {
    const Ortho o = ortho(next);
    if (o == Ortho::no || (o == Ortho::unknown && t.initial && next.upper && (context_of(next.key) & kLower) == 0)) {
      t.breaks = false;
      t.abbreviation = true;
    }
  }
}

bool Punkt::is_boundary(std::u32string_view context) const {
  std::vector<Token> all = tokens(context);
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    second_pass(all[i], all[i + 1]);
    if (all[i].breaks) return true;
  }
  return false;
}

std::vector<Span> Punkt::sentences(std::u32string_view text) const {
  // Marks within one run of non-blanks belong together: only the last of them is judged, with the word before it.
  std::vector<Span> slices;
  size_t last = 0, word_start = 0, word_end = 0;
  std::optional<Candidate> previous;
  const auto judge = [&] {
    const std::u32string context = std::u32string(text.substr(word_start, word_end - word_start)) +
                                   std::u32string(text.substr(previous->mark, previous->after_end - previous->mark));
    if (!is_boundary(context)) return;
    slices.emplace_back(last, previous->mark + 1);
    last = previous->next.value_or(previous->mark + 1);
  };
  for (const Candidate& c : candidates(text)) {
    size_t start = word_start;
    for (size_t k = c.mark; k > word_end + 1; --k)
      if (is_ascii_space(text[k - 1])) {
        start = k;
        break;
      }
    if (previous && word_end <= start) judge();
    word_start = start;
    word_end = c.mark;
    previous = c;
  }
  if (previous) judge();
  size_t end = text.size();
  while (end > 0 && is_space(text[end - 1])) --end;
  slices.emplace_back(last, end);

  // Closing quotes and brackets at the start of a slice go to the one before it.
  std::vector<Span> out;
  size_t moved = 0;
  for (size_t i = 0; i < slices.size(); ++i) {
    const size_t start = slices[i].first + moved;
    moved = 0;
    if (i + 1 < slices.size()) {
      const auto [next, next_end] = slices[i + 1];
      size_t run = next;
      while (run < next_end && is_closer(text[run])) ++run;
      const bool closes = run > next && (run == next_end || is_space(text[run]) ||
                                         (run + 1 < next_end && text[run] == '-' && text[run + 1] == '-'));
      if (closes) {
        out.emplace_back(start, run);
        size_t rest = run;
        while (rest < next_end && is_space(text[rest])) ++rest;
        moved = rest - next;
        continue;
      }
    }
    if (start < slices[i].second) out.emplace_back(start, slices[i].second);
  }
  return out;
}

}  // namespace hayfork::datasets
