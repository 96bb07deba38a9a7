#include "engine/text/pre_tokenizer_steps.h"

#include <vector>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "engine/text/byte_level.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

// Every character for which `is_match` holds is a match of its own.
template <typename IsMatch>
Matches char_matches(std::string_view text, IsMatch&& is_match) {
  Matches out;
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded c = unicode::decode(text, i);
    if (is_match(c.code)) out.emplace_back(i, i + c.length);
    i += c.length;
  }
  return out;
}

Matches whole(std::string_view text) {
  return {{0, text.size()}};
}

class KnownPatternStep final : public PreTokenizerStep {
 public:
  explicit KnownPatternStep(SplitPattern pattern) : pattern_(pattern) {}
  Matches cut(std::string_view text) const override {
    Matches out;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = piece_end(pattern_, text, begin);
      out.emplace_back(begin, end);
      begin = end;
    }
    return out;
  }

 private:
  SplitPattern pattern_;
};

class PatternStep final : public PreTokenizerStep {
 public:
  PatternStep(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Matches cut(std::string_view text) const override {
    return apply_behavior(with_gaps(pattern_.find_all(text), text.size(), invert_), behavior_);
  }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ClassStep final : public PreTokenizerStep {
 public:
  ClassStep(uint16_t bits, SplitBehavior behavior) : bits_(bits), behavior_(behavior) {}
  Matches cut(std::string_view text) const override {
    const Matches matches = char_matches(text, [this](char32_t c) { return (unicode::char_class(c) & bits_) != 0; });
    return apply_behavior(with_gaps(matches, text.size(), false), behavior_);
  }

 private:
  uint16_t bits_;
  SplitBehavior behavior_;
};

class WhitespaceStep final : public PreTokenizerStep {
 public:
  Matches cut(std::string_view text) const override {
    Matches out;
    int open = 0;  // what the last piece consists of: 1 word characters, 2 others, 0 nothing open
    for (size_t i = 0; i < text.size();) {
      const unicode::Decoded c = unicode::decode(text, i);
      const uint16_t bits = unicode::char_class(c.code);
      const int kind = bits & unicode::kWord ? 1 : bits & unicode::kSpace ? 0 : 2;
      if (kind != 0 && kind == open) {
        out.back().second = i + c.length;
      } else if (kind != 0) {
        out.emplace_back(i, i + c.length);
      }
      open = kind;
      i += c.length;
    }
    return out;
  }
};

class ScriptsStep final : public PreTokenizerStep {
 public:
  // As the reference: what comes before the first character with a script of its own is lost.
  Matches cut(std::string_view text) const override {
    Matches out;
    uint8_t last = 0;
    for (size_t i = 0; i < text.size();) {
      const unicode::Decoded c = unicode::decode(text, i);
      const uint8_t script = unicode::script_class(c.code);
      if (script != 0 && script != last) {
        if (!out.empty()) out.back().second = i;
        out.emplace_back(i, text.size());
      }
      if (script != 0) last = script;
      i += c.length;
    }
    return out;
  }
};

class FixedLengthStep final : public PreTokenizerStep {
 public:
  explicit FixedLengthStep(size_t n_chars) : n_chars_(n_chars) {}
  Matches cut(std::string_view text) const override {
    Matches out;
    size_t n = 0;
    for (size_t i = 0; i < text.size(); ++n) {
      const size_t end = i + unicode::decode(text, i).length;
      if (n % n_chars_ == 0) out.emplace_back(i, end);
      out.back().second = end;
      i = end;
    }
    return out;
  }

 private:
  size_t n_chars_;
};

class PrefixSpaceStep final : public PreTokenizerStep {
 public:
  Matches cut(std::string_view text) const override { return whole(text); }
  bool rewrites() const override { return true; }
  void rewrite(AlignedText& text) const override {
    if (!text.text().starts_with(' ')) text.prepend(" ");
  }
};

class ByteLevelStep final : public PreTokenizerStep {
 public:
  Matches cut(std::string_view text) const override { return whole(text); }
  bool rewrites() const override { return true; }
  void rewrite(AlignedText& text) const override { to_byte_level(text); }
};

class MetaspaceStep final : public PreTokenizerStep {
 public:
  explicit MetaspaceStep(const MetaspaceRule& rule) : rule_(rule) { append_utf8(mark_, rule.replacement); }
  bool rewrites() const override { return true; }
  void rewrite(AlignedText& text) const override {
    text.replace(find_all(text.text(), " "), mark_);
    if (text.text().starts_with(mark_)) return;
    const bool first = rule_.prepend == MetaspaceRule::Prepend::first && text.origin() == 0;
    if (first || rule_.prepend == MetaspaceRule::Prepend::always) text.prepend(mark_);
  }
  Matches cut(std::string_view text) const override {
    if (!rule_.split) return whole(text);
    return apply_behavior(with_gaps(find_all(text, mark_), text.size(), false), SplitBehavior::merged_with_next);
  }

 private:
  MetaspaceRule rule_;
  std::string mark_;
};

}  // namespace

StepPtr known_pattern_step(SplitPattern pattern) {
  return std::make_unique<KnownPatternStep>(pattern);
}
StepPtr pattern_step(TextPattern pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<PatternStep>(std::move(pattern), behavior, invert);
}
StepPtr class_step(uint16_t bits, SplitBehavior behavior) {
  return std::make_unique<ClassStep>(bits, behavior);
}
StepPtr char_step(char32_t delimiter, SplitBehavior behavior) {
  std::string text;
  append_utf8(text, delimiter);
  return pattern_step(TextPattern(std::move(text)), behavior, false);
}
StepPtr whitespace_step() {
  return std::make_unique<WhitespaceStep>();
}
StepPtr scripts_step() {
  return std::make_unique<ScriptsStep>();
}
StepPtr fixed_length_step(size_t n_chars) {
  return std::make_unique<FixedLengthStep>(n_chars);
}
StepPtr prefix_space_step() {
  return std::make_unique<PrefixSpaceStep>();
}
StepPtr byte_level_step() {
  return std::make_unique<ByteLevelStep>();
}
StepPtr metaspace_step(const MetaspaceRule& rule) {
  return std::make_unique<MetaspaceStep>(rule);
}

MetaspaceRule parse_metaspace(const nlohmann::json& json) {
  MetaspaceRule rule{get_char(json, "replacement"), MetaspaceRule::Prepend::always, get_bool(json, "split", true)};
  const std::string scheme = get_string(json, "prepend_scheme", "always");
  if (scheme == "first") {
    rule.prepend = MetaspaceRule::Prepend::first;
  } else if (scheme == "never") {
    rule.prepend = MetaspaceRule::Prepend::never;
  } else if (scheme != "always") {
    bad_component("Metaspace", "unknown prepend_scheme \"" + scheme + "\"");
  }
  if (!get_bool(json, "add_prefix_space", true) && rule.prepend != MetaspaceRule::Prepend::never)
    bad_component("Metaspace", "add_prefix_space false contradicts prepend_scheme \"" + scheme + "\"");
  return rule;
}

}  // namespace hayfork::engine
