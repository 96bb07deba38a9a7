// config.json as families read it: every key belongs to one of three lists (used, inert, must be default), every value
// is checked for type and range where it is read, and a key nobody knows ends the load with its name. Knows no family:
// the lists come from engine/models. Numbers that a file can make absurd are bounded here, before anything is
// allocated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/events.h"

namespace hayfork::engine {

// A key that changes the forward pass in a way we do not compute, unless it has this value (JSON text; null and false
// always pass).
struct DefaultKey {
  std::string_view key;
  std::string_view value;
};

// Rulings A12. A key may stand in one list only.
struct ConfigKeys {
  std::vector<std::string_view> used;
  std::vector<std::string_view> inert;
  std::vector<DefaultKey> must_be_default;
};

// One JSON object of the file. Cheap to copy; sub-objects share the parsed file.
class Config {
 public:
  // `where` names the object in messages: "config.json" or "config.json: text_config". Throws: corrupt when `text` is
  // not a JSON object.
  static Config parse(std::string_view text, const std::string& where);
  // Reads <folder>/<file>. Throws: not_found, corrupt.
  static Config load(const std::filesystem::path& folder, const std::string& file);

  struct Policy {
    bool strict = false;                   // unknown keys are errors even when null, and cannot be ignored
    std::span<const std::string> ignored;  // --ignore-config-key
    const EventSink* events = nullptr;  // HAY-W010 for unknown keys that are null, false or empty, and for ignored ones
  };
  // Refuses unknown keys and must-be-default keys with another value; afterwards only `used` keys may be read.
  // Throws: unsupported, naming the key.
  void check_keys(const ConfigKeys& keys, const Policy& policy);

  bool has(std::string_view key) const;    // present and not null
  bool given(std::string_view key) const;  // present, perhaps as null
  // Each throws corrupt when the key is there with another type or out of range, and when it is absent without
  // fallback.
  int64_t integer(std::string_view key, int64_t low, int64_t high, std::optional<int64_t> fallback = {}) const;
  double number(std::string_view key, double low, double high, std::optional<double> fallback = {}) const;
  bool boolean(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string text(std::string_view key, std::optional<std::string> fallback = {}) const;
  // Lists; absent → empty. `null_value` stands for null entries where they are allowed.
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key, int64_t low, int64_t high) const;
  std::vector<double> numbers(std::string_view key, double low, double high) const;
  // An integer or a list of them (eos_token_id); absent → empty.
  std::vector<int64_t> integer_or_list(std::string_view key, int64_t low, int64_t high) const;
  Config object(std::string_view key) const;
  // The value is an object (another form of the key may be a number or a string).
  bool is_object(std::string_view key) const;
  bool is_text(std::string_view key) const;
  bool is_number(std::string_view key) const;
  // Lists whose entries are lists or objects; entry i as an object with key "" is not possible, hence these two.
  std::vector<Config> objects(std::string_view key) const;
  std::vector<std::optional<std::vector<double>>> number_lists(std::string_view key, double low, double high) const;
  std::vector<std::optional<std::vector<bool>>> boolean_lists(std::string_view key) const;

  const std::string& where() const { return where_; }
  std::vector<std::string> keys() const;
  // SHA-256 of the canonical JSON of what may be read (used keys that are present and not null), plus `extra`.
  std::string digest(std::string_view extra) const;
  // An error about a key: corrupt, with the file and key in `where`.
  [[noreturn]] void fail(std::string_view key, const std::string& why) const;

 private:
  Config(std::shared_ptr<const nlohmann::json> json, std::string where);
  const nlohmann::json* find(std::string_view key) const;  // null: absent or null

  std::shared_ptr<const nlohmann::json> json_;
  std::string where_;
  std::shared_ptr<const std::vector<std::string>> readable_;  // null: everything (before check_keys)
};

}  // namespace hayfork::engine
