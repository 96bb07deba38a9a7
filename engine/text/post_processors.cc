#include "engine/text/post_processors.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "engine/text/byte_level.h"
#include "engine/text/component_json.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

int32_t token_id(const nlohmann::json& value, const std::string& type) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(kMaxId))
    bad_component(type, "a token id is not a number in range");
  return value.get<int32_t>();
}

// Ids of the special token a template item names.
std::vector<int32_t> template_ids(const nlohmann::json& specials, const std::string& name) {
  const auto token = specials.find(name);
  if (token == specials.end() || !token->is_object() || !token->contains("ids") || !(*token)["ids"].is_array())
    bad_component("TemplateProcessing", "special token \"" + name + "\" has no ids");
  std::vector<int32_t> out;
  for (const nlohmann::json& id : (*token)["ids"]) out.push_back(token_id(id, "TemplateProcessing"));
  return out;
}

bool counts_as_space(char32_t c) {
  return c == kByteToChar[' '] || (unicode::char_class(c) & unicode::kSpace) != 0;
}

}  // namespace

PostProcessor::PostProcessor(const nlohmann::json& json) {
  add(json);
}

void PostProcessor::add(const nlohmann::json& json) {
  if (json.is_null()) return;
  const std::string type = component_type(json, "post_processor");
  if (type == "Sequence") {
    for (const nlohmann::json& part : get_list(json, "processors")) add(part);
  } else if (type == "TemplateProcessing") {
    add_template(json);
  } else if (type == "ByteLevel") {
    if (get_bool(json, "trim_offsets", true)) trims_.push_back(get_bool(json, "add_prefix_space", true));
  } else if (type == "RobertaProcessing") {
    if (get_bool(json, "trim_offsets", true)) trims_.push_back(get_bool(json, "add_prefix_space", true));
    add_cls_sep(json);
  } else if (type == "BertProcessing") {
    add_cls_sep(json);
  } else {
    unsupported_component("post_processor", type);
  }
}

void PostProcessor::add_template(const nlohmann::json& json) {
  const auto specials = json.find("special_tokens");
  if (specials == json.end() || !specials->is_object()) bad_component("TemplateProcessing", "no special_tokens");
  std::vector<int32_t> before, after;
  int n_texts = 0;
  for (const nlohmann::json& item : get_list(json, "single")) {
    if (item.is_object() && item.contains("Sequence")) {
      if (get_string(item["Sequence"], "id") != "A")
        bad_component("TemplateProcessing", "\"single\" refers to a second text");
      ++n_texts;
    } else if (item.is_object() && item.contains("SpecialToken")) {
      std::vector<int32_t>& side = n_texts == 0 ? before : after;
      const std::vector<int32_t> ids = template_ids(*specials, get_string(item["SpecialToken"], "id"));
      side.insert(side.end(), ids.begin(), ids.end());
    } else {
      bad_component("TemplateProcessing", "an item of \"single\" is neither Sequence nor SpecialToken");
    }
  }
  if (n_texts != 1)
    unsupported_component("post_processor", "TemplateProcessing whose \"single\" has the text not exactly once");
  prefix_.insert(prefix_.begin(), before.begin(), before.end());
  suffix_.insert(suffix_.end(), after.begin(), after.end());
}

void PostProcessor::add_cls_sep(const nlohmann::json& json) {
  const auto id = [&](const char* key) {
    const nlohmann::json& pair = get_list(json, key);
    if (pair.size() != 2) bad_component("post_processor", "sep and cls should be [text, id]");
    return token_id(pair[1], "post_processor");
  };
  prefix_.insert(prefix_.begin(), id("cls"));
  suffix_.push_back(id("sep"));
}

std::pair<int32_t, int32_t> trim_offsets(std::pair<int32_t, int32_t> range, std::string_view text, bool first,
                                         bool add_prefix_space) {
  int32_t leading = 0;
  int32_t trailing = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const unicode::Decoded c = unicode::decode(text, i);
    const bool space = counts_as_space(c.code);
    inside = inside || !space;
    leading += !inside;
    trailing = space ? trailing + 1 : 0;
    i += c.length;
  }
  // A single space in front of the first token was put there by add_prefix_space: it is not in the text.
  if ((first || range.first == 0) && add_prefix_space && leading == 1) leading = 0;
  if (leading > 0) range.first = std::min(range.first + leading, range.second);
  if (trailing > 0 && range.second >= trailing) range.second = std::max(range.second - trailing, range.first);
  return range;
}

}  // namespace hayfork::engine
