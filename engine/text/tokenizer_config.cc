#include "engine/text/tokenizer_config.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_map.h"
#include "base/files.h"
#include "base/json.h"
#include "base/utf8.h"

namespace hayfork::engine {
namespace {

constexpr size_t kMaxConfigBytes = 64 << 20;
constexpr size_t kMaxTemplateBytes = 4 << 20;

nlohmann::json read_object(const std::filesystem::path& path) {
  if (!file_exists(path, ErrorSubject::model)) return nlohmann::json::object();
  const std::string text = read_file(path, ErrorSubject::model, kMaxConfigBytes);
  nlohmann::json json = parse_json(text, path.string(), ErrorSubject::model, {.python_literals = true});
  if (!json.is_object()) {
    throw Error(ErrorCode::corrupt, ErrorSubject::model, "a tokenizer's configuration is malformed",
                {.where = path.string(), .why = "not an object", .next = {}});
  }
  return json;
}

// A special token is written as a string, or as an added token with its content.
std::optional<std::string> token_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return std::nullopt;
}

void read_special_tokens(const nlohmann::json& config, const nlohmann::json& map, TokenizerConfig& out) {
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    // The map is older; a name that the configuration sets, to null too, is decided there.
    const nlohmann::json& source = config.contains(name) ? config : map;
    if (!source.contains(name)) continue;
    if (const auto text = token_text(source[name])) out.special_tokens[name] = *text;
  }
  const auto extra = config.find("extra_special_tokens");
  if (extra == config.end() || !extra->is_object()) return;
  for (const auto& [name, value] : extra->items())
    if (const auto text = token_text(value)) out.special_tokens[name] = *text;
}

void read_templates(const nlohmann::json& config, TokenizerConfig& out) {
  const auto templates = config.find("chat_template");
  if (templates == config.end()) return;
  if (templates->is_string()) out.chat_templates["default"] = templates->get<std::string>();
  if (!templates->is_array()) return;
  for (const nlohmann::json& item : *templates) {
    if (item.is_object() && item.contains("name") && item["name"].is_string() && item.contains("template") &&
        item["template"].is_string())
      out.chat_templates[item["name"].get<std::string>()] = item["template"].get<std::string>();
  }
}

std::string read_template(const std::filesystem::path& path) {
  return replace_invalid_utf8(read_file(path, ErrorSubject::model, kMaxTemplateBytes));
}

// Files take precedence over the configuration.
void read_template_files(const std::filesystem::path& directory, TokenizerConfig& out) {
  const std::filesystem::path single = directory / "chat_template.jinja";
  if (file_exists(single, ErrorSubject::model)) out.chat_templates["default"] = read_template(single);
  const std::filesystem::path more = directory / "additional_chat_templates";
  if (!folder_exists(more, ErrorSubject::model)) return;
  for (const auto& entry : std::filesystem::directory_iterator(more)) {
    if (entry.path().extension() == ".jinja")
      out.chat_templates[entry.path().stem().string()] = read_template(entry.path());
  }
}

std::optional<bool> flag(const nlohmann::json& config, const char* name) {
  const auto value = config.find(name);
  if (value == config.end() || !value->is_boolean()) return std::nullopt;
  return value->get<bool>();
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::filesystem::path& directory) {
  TokenizerConfig out;
  const nlohmann::json config = read_object(directory / "tokenizer_config.json");
  read_special_tokens(config, read_object(directory / "special_tokens_map.json"), out);
  read_templates(config, out);
  read_template_files(directory, out);
  out.add_bos_token = flag(config, "add_bos_token");
  out.add_eos_token = flag(config, "add_eos_token");
  out.clean_up_spaces = flag(config, "clean_up_tokenization_spaces").value_or(false);
  const nlohmann::json model = read_object(directory / "config.json");
  if (model.contains("model_type") && model["model_type"].is_string())
    out.model_type = model["model_type"].get<std::string>();
  return out;
}

}  // namespace hayfork::engine
