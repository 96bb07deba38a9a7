#include "tasks/extras.h"

#include <algorithm>

#include "base/units.h"

namespace hayfork::tasks {
namespace {

std::string join(std::span<const std::string> names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

void check_extras(const TaskOptions& options, std::span<const OptionDef> known, std::string_view task) {
  std::vector<std::string> keys;
  for (const OptionDef& def : known) keys.push_back(def.key);
  for (const auto& [key, value] : options.extra) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::vector<std::string> near = nearest_names(key, keys);
    std::string next = keys.empty() ? "it has no options of its own" : "its options are " + join(keys);
    if (!near.empty()) next = "did you mean " + near.front() + "?";
    throw Error(ErrorCode::usage, ErrorSubject::general, "unknown option " + key + " for task " + std::string(task),
                {"", "", next});
  }
}

std::optional<std::string> extra_text(const TaskOptions& options, const std::string& key) {
  const auto it = options.extra.find(key);
  return it == options.extra.end() ? std::nullopt : std::optional<std::string>(it->second);
}

std::string extra_choice(const TaskOptions& options, const std::string& key, std::span<const std::string> allowed,
                         const std::string& otherwise) {
  const std::string value = extra_text(options, key).value_or(otherwise);
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return value;
  throw Error(ErrorCode::usage, ErrorSubject::general, "unknown " + key + " \"" + value + "\"",
              {"", "", "it is one of " + join(allowed)});
}

int64_t extra_count(const TaskOptions& options, const std::string& key, int64_t otherwise, int64_t low, int64_t high) {
  const std::optional<std::string> text = extra_text(options, key);
  if (!text) return otherwise;
  const int64_t value = parse_count(*text, key);
  if (value < low || value > high)
    throw Error(ErrorCode::usage, ErrorSubject::general, key + " is out of range",
                {"", "found " + *text, "give a number from " + std::to_string(low) + " to " + std::to_string(high)});
  return value;
}

}  // namespace hayfork::tasks
