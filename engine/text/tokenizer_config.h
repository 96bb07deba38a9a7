// What stands beside a tokenizer: tokenizer_config.json, special_tokens_map.json, chat_template.jinja and
// additional_chat_templates/. Names of special tokens, chat templates, and a few flags.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace hayfork::engine {

struct TokenizerConfig {
  std::map<std::string, std::string> special_tokens;  // "bos_token" → "<s>"
  std::map<std::string, std::string> chat_templates;  // "default" and others
  std::optional<bool> add_bos_token, add_eos_token;
  bool clean_up_spaces = false;
  std::string model_type;  // of config.json; "" without one
};

// Files that are not there are passed over. Throws: corrupt, naming the file.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& directory);

}  // namespace hayfork::engine
