#include "engine/text/pre_tokenizers.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/text/component_json.h"
#include "engine/text/pre_tokenizer_steps.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {

PreTokenizerPipeline::PreTokenizerPipeline(const nlohmann::json& json, bool fix_mistral_regex) {
  add(json, fix_mistral_regex);
  if (steps_.size() != 1) only_pattern_.reset();
}

void PreTokenizerPipeline::add_step(std::unique_ptr<const PreTokenizerStep> step) {
  spell_bytes();  // something follows a ByteLevel after all, and sees its characters
  only_cuts_ = only_cuts_ && !step->rewrites();
  steps_.push_back(std::move(step));
}

void PreTokenizerPipeline::spell_bytes() {
  if (!byte_level_) return;
  byte_level_ = false;
  add_step(byte_level_step());
  if (steps_.size() != 1) only_pattern_.reset();
}

void PreTokenizerPipeline::add(const nlohmann::json& json, bool fix_mistral_regex) {
  if (json.is_null()) return;
  const std::string type = component_type(json, "pre_tokenizer");
  const auto behavior = [&] { return parse_split_behavior(get_string(json, "behavior", "Isolated")); };
  if (type == "Sequence") {
    for (const nlohmann::json& part : get_list(json, "pretokenizers")) add(part, fix_mistral_regex);
  } else if (type == "Split") {
    add_split(json, fix_mistral_regex);
  } else if (type == "ByteLevel") {
    add_byte_level(json);
  } else if (type == "Metaspace") {
    const MetaspaceRule rule = parse_metaspace(json);
    needs_offsets_ = needs_offsets_ || rule.prepend == MetaspaceRule::Prepend::first;
    add_step(metaspace_step(rule));
  } else if (type == "Digits") {
    const bool alone = get_bool(json, "individual_digits", false);
    add_step(class_step(unicode::kNumeric, alone ? SplitBehavior::isolated : SplitBehavior::contiguous));
  } else if (type == "Punctuation") {
    add_step(class_step(unicode::kPunct, behavior()));
  } else if (type == "Whitespace") {
    add_step(whitespace_step());
  } else if (type == "WhitespaceSplit") {
    add_step(class_step(unicode::kSpace, SplitBehavior::removed));
  } else if (type == "BertPreTokenizer") {
    add_step(class_step(unicode::kSpace, SplitBehavior::removed));
    add_step(class_step(unicode::kPunct, SplitBehavior::isolated));
  } else if (type == "UnicodeScripts") {
    add_step(scripts_step());
  } else if (type == "CharDelimiterSplit") {
    add_step(char_step(get_char(json, "delimiter"), SplitBehavior::removed));
  } else if (type == "FixedLength") {
    add_step(
        fixed_length_step(json.contains("length") ? static_cast<size_t>(get_integer(json, "length", 1, 1 << 30)) : 5));
  } else {
    unsupported_component("pre_tokenizer", type);
  }
}

void PreTokenizerPipeline::add_split(const nlohmann::json& json, bool fix_mistral_regex) {
  const SplitBehavior behavior = parse_split_behavior(get_string(json, "behavior"));
  const bool invert = get_bool(json, "invert", false);
  const auto pattern = json.find("pattern");
  if (pattern != json.end() && pattern->is_object() && pattern->contains("Regex") && (*pattern)["Regex"].is_string()) {
    std::optional<SplitPattern> known = known_pattern((*pattern)["Regex"].get<std::string>());
    has_llama3_pattern_ = has_llama3_pattern_ || known == SplitPattern::llama3;
    if (fix_mistral_regex && known == SplitPattern::llama3) known = SplitPattern::tekken;
    // Known patterns leave no gaps, so these behaviours come to the same.
    if (known && ((behavior == SplitBehavior::isolated) || (behavior == SplitBehavior::removed && invert))) {
      only_pattern_ = known;
      return add_step(known_pattern_step(*known));
    }
  }
  add_step(pattern_step(TextPattern(json), behavior, invert));
}

void PreTokenizerPipeline::add_byte_level(const nlohmann::json& json) {
  if (get_bool(json, "add_prefix_space", true)) add_step(prefix_space_step());
  if (get_bool(json, "use_regex", true)) {
    only_pattern_ = SplitPattern::gpt2;
    add_step(known_pattern_step(SplitPattern::gpt2));
  } else {
    spell_bytes();  // those of one right before it
  }
  byte_level_ = true;
}

std::vector<AlignedText> PreTokenizerPipeline::run(AlignedText text) const {
  std::vector<AlignedText> pieces;
  pieces.push_back(std::move(text));
  for (const auto& step : steps_) {
    std::vector<AlignedText> next;
    for (AlignedText& piece : pieces) {
      step->rewrite(piece);
      for (const auto& [begin, end] : step->cut(piece.text()))
        if (begin < end) next.push_back(piece.slice(begin, end));
    }
    pieces = std::move(next);
  }
  return pieces;
}

void PreTokenizerPipeline::views(std::string_view text, const std::function<void(std::string_view)>& sink) const {
  HAY_CHECK(only_cuts_);
  if (!only_pattern_) return views_from(0, text, sink);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(*only_pattern_, text, begin);
    sink(text.substr(begin, end - begin));
    begin = end;
  }
}

void PreTokenizerPipeline::views_from(size_t step, std::string_view text,
                                      const std::function<void(std::string_view)>& sink) const {
  if (step == steps_.size()) return sink(text);
  for (const auto& [begin, end] : steps_[step]->cut(text))
    if (begin < end) views_from(step + 1, text.substr(begin, end - begin), sink);
}

}  // namespace hayfork::engine
