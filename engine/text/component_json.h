// Reading the components of tokenizer.json: a typed view of one JSON object, with errors that name the component.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "engine/text/regex.h"

namespace hayfork::engine {

// The component's "type". Throws: corrupt when `json` is not an object with a string of that name.
std::string component_type(const nlohmann::json& json, const std::string& slot);
[[noreturn]] void unsupported_component(const std::string& slot, const std::string& type);
[[noreturn]] void bad_component(const std::string& type, const std::string& why);

// Field `key` of the component; with `fallback` when it is absent or null. Throws: corrupt when it has another type.
bool get_bool(const nlohmann::json& json, const char* key, bool fallback);
std::string get_string(const nlohmann::json& json, const char* key);
std::string get_string(const nlohmann::json& json, const char* key, const std::string& fallback);
int64_t get_integer(const nlohmann::json& json, const char* key, int64_t low, int64_t high);
char32_t get_char(const nlohmann::json& json, const char* key);  // a string of one character
const nlohmann::json& get_list(const nlohmann::json& json, const char* key);

// {"String": s} or {"Regex": r}: finds matches of either kind.
class TextPattern {
 public:
  explicit TextPattern(const nlohmann::json& component);                         // reads its "pattern"
  TextPattern(std::string needle) : literal_(true), text_(std::move(needle)) {}  // NOLINT: a string is a pattern
  Matches find_all(std::string_view text) const;
  bool literal() const { return literal_; }
  const std::string& text() const { return text_; }

 private:
  bool literal_ = true;
  std::string text_;
  std::shared_ptr<const Regex> regex_;
};

}  // namespace hayfork::engine
