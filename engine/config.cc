#include "engine/config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"

namespace hayfork::engine {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;  // real ones have a few kilobytes

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= 100 ? text : text.substr(0, 97) + "...";
}

// null, false, 0-length: what a writer puts for "not there".
bool is_empty(const nlohmann::json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_array() || value.is_object() || value.is_string()) && value.size() == 0) || value == "";
}

// transformers 5 writes {"__float__": "Infinity"}; JSON has no such number.
std::optional<double> as_number(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_object() || value.size() != 1 || !value.contains("__float__")) return {};
  const nlohmann::json& word = value["__float__"];
  if (word == "Infinity") return std::numeric_limits<double>::infinity();
  if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  return {};
}

std::optional<int64_t> as_integer(const nlohmann::json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return {};
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return {};  // 8.0 is an integer to Python's readers
  const double x = value.get<double>();
  return std::abs(x) < 9e15 && x == std::floor(x) ? std::optional(static_cast<int64_t>(x)) : std::nullopt;
}

bool contains(const std::vector<std::string_view>& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

}  // namespace

Config::Config(std::shared_ptr<const nlohmann::json> json, std::string where)
    : json_(std::move(json)), where_(std::move(where)) {}

Config Config::parse(std::string_view text, const std::string& where) {
  auto json = std::make_shared<const nlohmann::json>(
      parse_json(text, where, ErrorSubject::model, {.max_depth = 16, .python_literals = true}));
  if (!json->is_object()) {
    throw Error(ErrorCode::corrupt, ErrorSubject::model, fmt::format("{} is not an object", where),
                {.where = where, .why = fmt::format("it holds {}", shown(*json))});
  }
  return {std::move(json), where};
}

Config Config::load(const std::filesystem::path& folder, const std::string& file) {
  return parse(read_file(folder / file, ErrorSubject::model, kMaxConfigBytes), (folder / file).string());
}

void Config::check_keys(const ConfigKeys& keys, const Policy& policy) {
  const auto warn = [&](const std::string& message) {
    if (policy.events != nullptr && *policy.events) (*policy.events)({Event::Level::warn, "HAY-W010", message, ""});
  };
  for (const auto& [key, value] : json_->items()) {
    if (contains(keys.used, key) || contains(keys.inert, key)) continue;
    const bool ignored =
        !policy.strict && std::find(policy.ignored.begin(), policy.ignored.end(), key) != policy.ignored.end();
    if (ignored) {
      warn(fmt::format("{}: key \"{}\" ignored as asked (value {})", where_, key, shown(value)));
      continue;
    }
    const auto fixed = std::find_if(keys.must_be_default.begin(), keys.must_be_default.end(),
                                    [&name = key](const DefaultKey& entry) { return entry.key == name; });
    if (fixed != keys.must_be_default.end()) {
      const auto expected = nlohmann::json::parse(fixed->value);
      // false stands for "not used"; where the default is true it asks for something else.
      if (value.is_null() || value == expected || (value == false && expected != true)) continue;
      throw Error(
          ErrorCode::unsupported, ErrorSubject::model, fmt::format("config key \"{}\" is not supported", key),
          {.where = where_,
           .why = fmt::format("only its default {} is computed, the file has {}", fixed->value, shown(value)),
           .next = policy.strict ? "" : fmt::format("--ignore-config-key {} loads it as if it were not there", key)});
    }
    if (!policy.strict && is_empty(value)) {
      warn(fmt::format("{}: unknown key \"{}\" is {} and has no effect", where_, key, shown(value)));
      continue;
    }
    throw Error(ErrorCode::unsupported, ErrorSubject::model,
                fmt::format("unknown config key \"{}\"", key.substr(0, 100)),
                {.where = where_,
                 .why = fmt::format("its value is {}; it may change what the model computes", shown(value)),
                 .next = policy.strict ? "remove the key"
                                       : fmt::format("--ignore-config-key {} loads the model without it", key)});
  }
  auto readable = std::make_shared<std::vector<std::string>>();
  for (const std::string_view key : keys.used) readable->emplace_back(key);
  std::sort(readable->begin(), readable->end());
  readable_ = std::move(readable);
}

const nlohmann::json* Config::find(std::string_view key) const {
  HAY_CHECK(readable_ == nullptr || std::binary_search(readable_->begin(), readable_->end(), key),
            fmt::format("key {} is read but not listed as used", key));
  const auto it = json_->find(key);
  return it == json_->end() || it->is_null() ? nullptr : &*it;
}

void Config::fail(std::string_view key, const std::string& why) const {
  throw Error(ErrorCode::corrupt, ErrorSubject::model, fmt::format("config key \"{}\" is not usable", key),
              {.where = where_, .why = why});
}

bool Config::has(std::string_view key) const {
  return find(key) != nullptr;
}

bool Config::given(std::string_view key) const {
  return json_->contains(key);
}

int64_t Config::integer(std::string_view key, int64_t low, int64_t high, std::optional<int64_t> fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(key, "it is missing");
    return *fallback;
  }
  const auto x = as_integer(*value);
  if (!x || *x < low || *x > high)
    fail(key, fmt::format("want an integer in {} … {}, found {}", low, high, shown(*value)));
  return *x;
}

double Config::number(std::string_view key, double low, double high, std::optional<double> fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(key, "it is missing");
    return *fallback;
  }
  const auto x = as_number(*value);
  if (!x || !(*x >= low && *x <= high))
    fail(key, fmt::format("want a number in {} … {}, found {}", low, high, shown(*value)));
  return *x;
}

bool Config::boolean(std::string_view key, std::optional<bool> fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(key, "it is missing");
    return *fallback;
  }
  if (!value->is_boolean()) fail(key, fmt::format("want true or false, found {}", shown(*value)));
  return value->get<bool>();
}

std::string Config::text(std::string_view key, std::optional<std::string> fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    if (!fallback) fail(key, "it is missing");
    return *fallback;
  }
  if (!value->is_string()) fail(key, fmt::format("want a string, found {}", shown(*value)));
  return value->get<std::string>();
}

std::vector<std::string> Config::texts(std::string_view key) const {
  std::vector<std::string> list;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) fail(key, fmt::format("want a list of strings, found {}", shown(*value)));
  for (const auto& item : *value) {
    if (!item.is_string()) fail(key, fmt::format("want a list of strings, found {} in it", shown(item)));
    list.push_back(item.get<std::string>());
  }
  return list;
}

std::vector<int64_t> Config::integers(std::string_view key, int64_t low, int64_t high) const {
  const nlohmann::json* value = find(key);
  if (value != nullptr && !value->is_array())
    fail(key, fmt::format("want a list of integers, found {}", shown(*value)));
  return integer_or_list(key, low, high);
}

std::vector<int64_t> Config::integer_or_list(std::string_view key, int64_t low, int64_t high) const {
  std::vector<int64_t> list;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return list;
  const auto take = [&](const nlohmann::json& item) {
    const auto x = as_integer(item);
    if (!x || *x < low || *x > high)
      fail(key, fmt::format("want integers in {} … {}, found {}", low, high, shown(item)));
    list.push_back(*x);
  };
  if (value->is_array()) {
    for (const auto& item : *value) take(item);
  } else {
    take(*value);
  }
  return list;
}

std::vector<double> Config::numbers(std::string_view key, double low, double high) const {
  std::vector<double> list;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) fail(key, fmt::format("want a list of numbers, found {}", shown(*value)));
  for (const auto& item : *value) {
    const auto x = as_number(item);
    if (!x || !(*x >= low && *x <= high))
      fail(key, fmt::format("want numbers in {} … {}, found {}", low, high, shown(item)));
    list.push_back(*x);
  }
  return list;
}

Config Config::object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) fail(key, "it is missing");
  if (!value->is_object()) fail(key, fmt::format("want an object, found {}", shown(*value)));
  return {std::shared_ptr<const nlohmann::json>(json_, value), fmt::format("{}: {}", where_, key)};
}

bool Config::is_object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  return value != nullptr && value->is_object();
}

bool Config::is_text(std::string_view key) const {
  const nlohmann::json* value = find(key);
  return value != nullptr && value->is_string();
}

bool Config::is_number(std::string_view key) const {
  const nlohmann::json* value = find(key);
  return value != nullptr && value->is_number();
}

std::vector<Config> Config::objects(std::string_view key) const {
  std::vector<Config> list;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return list;
  if (value->is_object()) return {object(key)};
  if (!value->is_array()) fail(key, fmt::format("want an object or a list of objects, found {}", shown(*value)));
  for (const auto& item : *value) {
    if (!item.is_object()) fail(key, fmt::format("want a list of objects, found {} in it", shown(item)));
    list.push_back(
        {std::shared_ptr<const nlohmann::json>(json_, &item), fmt::format("{}: {}[{}]", where_, key, list.size())});
  }
  return list;
}

std::vector<std::optional<std::vector<double>>> Config::number_lists(std::string_view key, double low,
                                                                     double high) const {
  std::vector<std::optional<std::vector<double>>> lists;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return lists;
  if (!value->is_array()) fail(key, fmt::format("want a list, found {}", shown(*value)));
  for (const auto& entry : *value) {
    auto& list = lists.emplace_back();
    if (entry.is_null()) continue;
    if (!entry.is_array()) fail(key, fmt::format("want null or a list of numbers, found {}", shown(entry)));
    list.emplace();
    for (const auto& item : entry) {
      const auto x = as_number(item);
      if (!x || !(*x >= low && *x <= high))
        fail(key, fmt::format("want numbers in {} … {}, found {}", low, high, shown(item)));
      list->push_back(*x);
    }
  }
  return lists;
}

std::vector<std::optional<std::vector<bool>>> Config::boolean_lists(std::string_view key) const {
  std::vector<std::optional<std::vector<bool>>> lists;
  const nlohmann::json* value = find(key);
  if (value == nullptr) return lists;
  if (!value->is_array()) fail(key, fmt::format("want a list, found {}", shown(*value)));
  for (const auto& entry : *value) {
    auto& list = lists.emplace_back();
    if (entry.is_null()) continue;
    if (!entry.is_array()) fail(key, fmt::format("want null or a list of booleans, found {}", shown(entry)));
    list.emplace();
    for (const auto& item : entry) {
      if (!item.is_boolean()) fail(key, fmt::format("want booleans, found {}", shown(item)));
      list->push_back(item.get<bool>());
    }
  }
  return lists;
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : json_->items()) names.push_back(key);
  return names;
}

std::string Config::digest(std::string_view extra) const {
  nlohmann::json resolved = nlohmann::json::object();
  for (const auto& [key, value] : json_->items()) {
    const bool readable = readable_ == nullptr || std::binary_search(readable_->begin(), readable_->end(), key);
    if (readable && !value.is_null()) resolved[key] = value;
  }
  resolved["."] = std::string(extra);
  return sha256_hex(canonical_json(resolved));
}

}  // namespace hayfork::engine
