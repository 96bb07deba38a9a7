#include "engine/text/regex.h"

#include <algorithm>

#include <fmt/format.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>

#include "base/error.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

constexpr int32_t kTimeLimit = 2000;  // of one match, in ICU's units of about a millisecond: endless backtracking ends
constexpr int32_t kStackLimit = 256 << 20;  // bytes of backtracking state
constexpr size_t kMaxPattern = 64 << 10;

[[noreturn]] void refuse(const std::string& pattern, const std::string& why) {
  throw Error(ErrorCode::unsupported, ErrorSubject::model, "the tokenizer has a split pattern that cannot be used",
              {.where = "pattern " + pattern.substr(0, 400), .why = why, .next = {}});
}

std::string set_text(const unicode::Ranges& ranges, bool negated) {
  std::string out = negated ? "[^" : "[";
  for (const auto& [first, last] : ranges) {
    out += fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(first));
    if (last != first) out += fmt::format("-\\x{{{:X}}}", static_cast<uint32_t>(last));
  }
  return out + "]";
}

// Walks over a pattern once, replacing what Oniguruma and ICU read differently.
class Translator {
 public:
  explicit Translator(const std::string& pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        bracket();
      } else if (in_set_ == 0 && c == '(' && in_.compare(at_, 2, "(?") == 0) {
        group();
      } else if (in_set_ == 0 && c == '}' && at_ + 1 < in_.size() && in_[at_ + 1] == '+') {
        refuse(in_, "{n,m}+ repeats the repetition in the reference, but is possessive here");
      } else if (in_set_ == 0 && c == '.') {  // ICU's own dot takes CR LF as one character
        out_ += dot_takes_all_.back() ? "[\\x{0}-\\x{10FFFF}]" : "[^\\n]";
        ++at_;
      } else {
        if (c == ']' && in_set_ > 0) --in_set_;
        if (in_set_ == 0 && c == '(') dot_takes_all_.push_back(dot_takes_all_.back());
        if (in_set_ == 0 && c == ')' && dot_takes_all_.size() > 1) dot_takes_all_.pop_back();
        out_ += c;
        ++at_;
      }
    }
    return out_;
  }

 private:
  void bracket() {
    if (in_.compare(at_, 2, "[:") == 0 && in_set_ > 0) return posix();
    ++in_set_;
    out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == '^') out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == ']') {  // a bracket in first place is a literal
      out_ += "\\]";
      ++at_;
    }
  }

  void posix() {
    const size_t end = in_.find(":]", at_);
    if (end == std::string::npos) refuse(in_, "[: without :]");
    std::string name = in_.substr(at_ + 2, end - at_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.erase(0, 1);
    at_ = end + 2;
    unicode::Ranges ranges;
    const auto add = [&](const unicode::Ranges& more) { ranges.insert(ranges.end(), more.begin(), more.end()); };
    if (name == "alpha" || name == "alnum") add(unicode::alphabetic_ranges());
    if (name == "digit" || name == "alnum") add(unicode::category_ranges("Nd"));
    if (name == "punct") add(unicode::category_ranges("P"));
    if (name == "punct") add(unicode::category_ranges("S"));
    if (ranges.empty()) return property(name, negated);
    out_ += set_text(ranges, negated);
  }

  void escape() {
    if (at_ + 1 >= in_.size()) refuse(in_, "ends in a backslash");
    const char c = in_[at_ + 1];
    at_ += 2;
    switch (c) {
      case 's':
        out_ += set_text(unicode::white_space_ranges(), false);
        return;
      case 'S':
        out_ += set_text(unicode::white_space_ranges(), true);
        return;
      case 'd':
        out_ += set_text(unicode::category_ranges("Nd"), false);
        return;
      case 'D':
        out_ += set_text(unicode::category_ranges("Nd"), true);
        return;
      case 'w':
        out_ += set_text(word_ranges(), false);
        return;
      case 'W':
        out_ += set_text(word_ranges(), true);
        return;
      case 'h':
        out_ += "[0-9a-fA-F]";
        return;
      case 'H':
        out_ += "[^0-9a-fA-F]";
        return;
      case 'p':
      case 'P':
        return braced_property(c == 'P');
      case 'b':
      case 'B':
        if (in_set_ == 0) refuse(in_, "word boundaries differ between the reference and this engine");
        break;
      case 'K':
      case 'g':
      case 'k':
        refuse(in_, std::string("construct \\") + c);
      default:
        break;
    }
    out_ += '\\';
    out_ += c;
  }

  // Inside brackets the reference leaves six characters of Latin-1 (superscripts, fractions) out of \w.
  unicode::Ranges word_ranges() const {
    unicode::Ranges all = unicode::word_ranges();
    if (in_set_ == 0) return all;
    unicode::Ranges out;
    for (auto [first, last] : all) {
      for (const char32_t hole : {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE}) {
        if (hole < first || hole > last) continue;
        if (hole > first) out.emplace_back(first, hole - 1);
        first = hole + 1;
      }
      if (first <= last) out.emplace_back(first, last);
    }
    return out;
  }

  void braced_property(bool negated) {
    const size_t end = in_.find('}', at_);
    if (at_ >= in_.size() || in_[at_] != '{' || end == std::string::npos) refuse(in_, "\\p without {name}");
    std::string name = in_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (name.starts_with('^')) {
      negated = !negated;
      name.erase(0, 1);
    }
    property(name, negated);
  }

  void property(std::string name, bool negated) {
    std::string key;
    for (const char c : name)
      if (c != '_' && c != ' ' && c != '-') key += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    static const std::vector<std::pair<std::string_view, std::string_view>> kLongNames = {{"letter", "L"},
                                                                                          {"mark", "M"},
                                                                                          {"number", "N"},
                                                                                          {"punctuation", "P"},
                                                                                          {"punct", "P"},
                                                                                          {"symbol", "S"},
                                                                                          {"separator", "Z"},
                                                                                          {"other", "C"},
                                                                                          {"digit", "Nd"},
                                                                                          {"lowercaseletter", "Ll"},
                                                                                          {"uppercaseletter", "Lu"},
                                                                                          {"titlecaseletter", "Lt"},
                                                                                          {"modifierletter", "Lm"},
                                                                                          {"otherletter", "Lo"},
                                                                                          {"decimalnumber", "Nd"},
                                                                                          {"nonspacingmark", "Mn"},
                                                                                          {"spacingmark", "Mc"},
                                                                                          {"control", "Cc"}};
    if (key == "space" || key == "whitespace") return append(set_text(unicode::white_space_ranges(), negated));
    if (key == "alpha" || key == "alphabetic") return append(set_text(unicode::alphabetic_ranges(), negated));
    if (key == "word") return append(set_text(word_ranges(), negated));
    std::string_view category;
    for (const auto& [long_name, short_name] : kLongNames)
      if (key == long_name) category = short_name;
    if (key.size() == 1 || key.size() == 2) {
      key[0] = static_cast<char>(key[0] - 'a' + 'A');
      category = key;
    }
    if (const unicode::Ranges ranges = unicode::category_ranges(category); !category.empty() && !ranges.empty())
      return append(set_text(ranges, negated));
    append((negated ? "\\P{" : "\\p{") + name + "}");  // scripts and the like: ICU's own data
  }

  void append(const std::string& text) { out_ += text; }

  // (?m) means "the dot matches line ends" in Ruby; the dot is translated here, so the letter goes.
  void group() {
    size_t i = at_ + 2;
    while (i < in_.size() && (in_[i] == 'i' || in_[i] == 'm' || in_[i] == 'x' || in_[i] == '-')) ++i;
    const bool flags = i > at_ + 2 && i < in_.size() && (in_[i] == ':' || in_[i] == ')');
    if (!flags) {
      if (in_.compare(at_, 3, "(?~") == 0 || in_.compare(at_, 3, "(?(") == 0) refuse(in_, "construct (?~ or (?(");
      dot_takes_all_.push_back(dot_takes_all_.back());
      out_ += "(?";
      at_ += 2;
      return;
    }
    const bool scoped = in_[i] == ':';
    if (scoped) dot_takes_all_.push_back(dot_takes_all_.back());
    out_ += "(?";
    bool on = true;
    for (at_ += 2; at_ < i; ++at_) {
      if (in_[at_] == 'm') {
        dot_takes_all_.back() = on;
      } else {
        on = on && in_[at_] != '-';
        out_ += in_[at_];
      }
    }
    if (out_.ends_with("(?") && !scoped) out_ += ":";  // (?m) alone: an empty group
    if (out_.ends_with('-')) out_.pop_back();
    out_ += in_[at_++];
  }

  const std::string& in_;
  std::string out_;
  size_t at_ = 0;
  int in_set_ = 0;
  std::vector<bool> dot_takes_all_ = {false};  // by open group
};

}  // namespace

std::string translate_regex(const std::string& pattern) {
  return Translator(pattern).run();
}

struct Regex::State {
  std::string source;
  std::unique_ptr<icu::RegexPattern> pattern;
};

Regex::Regex(const std::string& pattern) : state_(std::make_unique<State>()) {
  if (pattern.size() > kMaxPattern) refuse(pattern, "longer than 64 KiB");
  state_->source = pattern;
  UErrorCode status = U_ZERO_ERROR;
  UParseError where{};
  const icu::UnicodeString text = icu::UnicodeString::fromUTF8(translate_regex(pattern));
  state_->pattern.reset(icu::RegexPattern::compile(text, UREGEX_MULTILINE | UREGEX_UNIX_LINES, where, status));
  if (U_FAILURE(status)) refuse(pattern, u_errorName(status));
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

Matches Regex::find_all(std::string_view text) const {
  // ICU matches UTF-16; `byte_of` leads its indices back to bytes.
  icu::UnicodeString wide;
  std::vector<uint32_t> byte_of;
  byte_of.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded c = unicode::decode(text, i);
    wide.append(static_cast<UChar32>(c.code));
    byte_of.insert(byte_of.end(), c.code > 0xFFFF ? 2 : 1, static_cast<uint32_t>(i));
    i += c.length;
  }
  byte_of.push_back(static_cast<uint32_t>(text.size()));

  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(state_->pattern->matcher(wide, status));
  if (U_SUCCESS(status)) matcher->setTimeLimit(kTimeLimit, status);
  if (U_SUCCESS(status)) matcher->setStackLimit(kStackLimit, status);
  Matches out;
  int32_t from = 0;
  int32_t last_end = -1;
  while (U_SUCCESS(status) && from <= wide.length() && matcher->find(from, status)) {
    const int32_t begin = matcher->start(status);
    const int32_t end = matcher->end(status);
    if (begin == end && end == last_end) {
      from = from < wide.length() ? wide.moveIndex32(from, 1) : from + 1;
      continue;
    }
    out.emplace_back(byte_of[static_cast<size_t>(begin)], byte_of[static_cast<size_t>(end)]);
    from = last_end = end;
  }
  if (U_FAILURE(status)) refuse(state_->source, fmt::format("matching {} bytes: {}", text.size(), u_errorName(status)));
  return out;
}

Matches find_all(std::string_view text, std::string_view needle) {
  Matches out;
  if (needle.empty()) return out;
  for (size_t at = text.find(needle); at != std::string_view::npos; at = text.find(needle, at + needle.size()))
    out.emplace_back(at, at + needle.size());
  return out;
}

}  // namespace hayfork::engine
