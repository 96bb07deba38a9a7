// Pre-tokenizers of tokenizer.json: Split (all behaviours), ByteLevel, Metaspace, Digits, Punctuation, Whitespace,
// WhitespaceSplit, UnicodeScripts, BertPreTokenizer, CharDelimiterSplit, FixedLength, Sequence. A pipeline is the flat
// list of their steps; a ByteLevel at its end is left to the model, which then works on bytes instead of their
// characters.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/text/aligned_text.h"
#include "engine/text/regex.h"
#include "engine/text/splitter.h"

namespace hayfork::engine {

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // The pieces of `text` to keep, in order; some may be empty.
  virtual Matches cut(std::string_view text) const = 0;
  // A step that rewrites changes the text before it cuts.
  virtual bool rewrites() const { return false; }
  virtual void rewrite(AlignedText&) const {}
};

class PreTokenizerPipeline {
 public:
  // Throws: unsupported for an unknown type or pattern, corrupt for a malformed one. `fix_mistral_regex`: see
  // TokenizerOptions.
  PreTokenizerPipeline(const nlohmann::json& json, bool fix_mistral_regex);

  // Whether pieces are to be read as bytes by the model: the last component was ByteLevel.
  bool byte_level() const { return byte_level_; }
  // Makes a ByteLevel at the end an ordinary step, for models that look at its characters.
  void spell_bytes();
  // Whether a step looks at offsets, so that they must be tracked even when nobody asked for them.
  bool needs_offsets() const { return needs_offsets_; }
  // Whether pieces are plain ranges of the text, so that views() applies.
  bool only_cuts() const { return only_cuts_; }
  // Whether a step splits by the cl100k pattern, which Mistral checkpoints have by mistake.
  bool has_llama3_pattern() const { return has_llama3_pattern_; }

  // Pieces of `text`, without the empty ones.
  std::vector<AlignedText> run(AlignedText text) const;
  // The same without copies, one call a piece. Requires: only_cuts().
  void views(std::string_view text, const std::function<void(std::string_view)>& sink) const;

 private:
  void add(const nlohmann::json& json, bool fix_mistral_regex);
  void add_split(const nlohmann::json& json, bool fix_mistral_regex);
  void add_byte_level(const nlohmann::json& json);
  void add_step(std::unique_ptr<const PreTokenizerStep> step);
  void views_from(size_t step, std::string_view text, const std::function<void(std::string_view)>& sink) const;

  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
  std::optional<SplitPattern> only_pattern_;  // the only step, if it is a known pattern
  bool byte_level_ = false;
  bool needs_offsets_ = false;
  bool only_cuts_ = true;
  bool has_llama3_pattern_ = false;
};

}  // namespace hayfork::engine
