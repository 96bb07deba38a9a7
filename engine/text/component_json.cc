#include "engine/text/component_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

std::string type_of(const nlohmann::json& json) {
  const auto type = json.find("type");
  return type != json.end() && type->is_string() ? type->get<std::string>() : "?";
}

[[noreturn]] void bad_field(const nlohmann::json& json, const char* key, const char* want) {
  bad_component(type_of(json), fmt::format("field \"{}\" should be {}", key, want));
}

const nlohmann::json* field(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

std::string component_type(const nlohmann::json& json, const std::string& slot) {
  const auto type = json.is_object() ? json.find("type") : json.end();
  if (type == json.end() || !type->is_string()) bad_component(slot, "should be an object with a \"type\"");
  return type->get<std::string>();
}

void unsupported_component(const std::string& slot, const std::string& type) {
  throw Error(ErrorCode::unsupported, ErrorSubject::model,
              fmt::format("the tokenizer needs a component that is not supported: {} {}", slot, printable(type)),
              {.where = "tokenizer.json, " + slot, .why = {}, .next = {}});
}

void bad_component(const std::string& type, const std::string& why) {
  throw Error(ErrorCode::corrupt, ErrorSubject::model, "a component of the tokenizer is malformed",
              {.where = "tokenizer.json, " + printable(type), .why = why, .next = {}});
}

bool get_bool(const nlohmann::json& json, const char* key, bool fallback) {
  const nlohmann::json* value = field(json, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) bad_field(json, key, "true or false");
  return value->get<bool>();
}

std::string get_string(const nlohmann::json& json, const char* key) {
  const nlohmann::json* value = field(json, key);
  if (value == nullptr || !value->is_string()) bad_field(json, key, "a string");
  return value->get<std::string>();
}

std::string get_string(const nlohmann::json& json, const char* key, const std::string& fallback) {
  return field(json, key) == nullptr ? fallback : get_string(json, key);
}

int64_t get_integer(const nlohmann::json& json, const char* key, int64_t low, int64_t high) {
  const nlohmann::json* value = field(json, key);
  if (value == nullptr || !value->is_number_integer()) bad_field(json, key, "an integer");
  const bool huge = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(high);
  if (huge || value->get<int64_t>() < low || value->get<int64_t>() > high)
    bad_component(type_of(json), fmt::format("field \"{}\" should be between {} and {}", key, low, high));
  return value->get<int64_t>();
}

char32_t get_char(const nlohmann::json& json, const char* key) {
  const std::string text = get_string(json, key);
  if (count_code_points(text) != 1) bad_field(json, key, "one character");
  return unicode::decode(text, 0).code;
}

const nlohmann::json& get_list(const nlohmann::json& json, const char* key) {
  const nlohmann::json* value = field(json, key);
  if (value == nullptr || !value->is_array()) bad_field(json, key, "a list");
  return *value;
}

TextPattern::TextPattern(const nlohmann::json& component) {
  const nlohmann::json* pattern = field(component, "pattern");
  if (pattern == nullptr || !pattern->is_object() || pattern->size() != 1 || !pattern->begin()->is_string())
    bad_field(component, "pattern", "{\"String\": …} or {\"Regex\": …}");
  text_ = pattern->begin()->get<std::string>();
  if (pattern->contains("Regex") ||
      text_.empty()) {  // an empty string matches between all characters, as an expression
    literal_ = false;
    regex_ = std::make_shared<const Regex>(text_.empty() ? "(?:)" : text_);
  } else if (!pattern->contains("String")) {
    bad_field(component, "pattern", "{\"String\": …} or {\"Regex\": …}");
  }
}

Matches TextPattern::find_all(std::string_view text) const {
  return literal_ ? engine::find_all(text, text_) : regex_->find_all(text);
}

}  // namespace hayfork::engine
