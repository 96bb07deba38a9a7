// The steps a pre-tokenizer pipeline is made of (engine/text/pre_tokenizers.h).
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "engine/text/component_json.h"
#include "engine/text/pre_tokenizers.h"
#include "engine/text/split_behavior.h"
#include "engine/text/splitter.h"

namespace hayfork::engine {

using StepPtr = std::unique_ptr<const PreTokenizerStep>;

StepPtr known_pattern_step(SplitPattern pattern);
StepPtr pattern_step(TextPattern pattern, SplitBehavior behavior, bool invert);
// Characters with any of these unicode::Class bits are the matches.
StepPtr class_step(uint16_t bits, SplitBehavior behavior);
StepPtr char_step(char32_t delimiter, SplitBehavior behavior);
StepPtr whitespace_step();  // \w+|[^\w\s]+ are the pieces
StepPtr scripts_step();     // cuts where the script changes
StepPtr fixed_length_step(size_t n_chars);
StepPtr prefix_space_step();  // a space in front unless there is one
StepPtr byte_level_step();    // every byte becomes its character

struct MetaspaceRule {
  enum class Prepend { always, first, never };
  char32_t replacement;
  Prepend prepend;
  bool split;
};
// Throws: corrupt, as the reference does for contradicting fields. Serves the decoder too.
MetaspaceRule parse_metaspace(const nlohmann::json& json);
StepPtr metaspace_step(const MetaspaceRule& rule);

}  // namespace hayfork::engine
