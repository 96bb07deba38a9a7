// Post-processors of tokenizer.json: TemplateProcessing, ByteLevel (trims offsets), RobertaProcessing, BertProcessing,
// Sequence. They put BOS, EOS and the like around the ids of one text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace hayfork::engine {

class PostProcessor {
 public:
  // Does nothing for a JSON null. Throws: unsupported for an unknown type, corrupt for a malformed one.
  explicit PostProcessor(const nlohmann::json& json);

  // Ids in front of and behind those of the text, when special tokens are wanted.
  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }

  // One entry for each trimming of white space out of the tokens' offsets, as ByteLevel does it: its add_prefix_space.
  const std::vector<bool>& trims() const { return trims_; }

 private:
  void add(const nlohmann::json& json);
  void add_template(const nlohmann::json& json);
  void add_cls_sep(const nlohmann::json& json);
  std::vector<int32_t> prefix_, suffix_;
  std::vector<bool> trims_;
};

// The trimmed range of a token spelled `text` (in the vocabulary's characters). `first`: it is the first of its text.
std::pair<int32_t, int32_t> trim_offsets(std::pair<int32_t, int32_t> range, std::string_view text, bool first,
                                         bool add_prefix_space);

}  // namespace hayfork::engine
