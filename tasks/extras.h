// Reads a task's own options (TaskOptions::extra) with their types; what is wrong is a usage error that names the key.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/tasks.h"

namespace hayfork::tasks {

// Throws: usage for a key that `known` does not have, with the nearest ones.
void check_extras(const TaskOptions& options, std::span<const OptionDef> known, std::string_view task);

std::optional<std::string> extra_text(const TaskOptions& options, const std::string& key);
// One of `allowed`. Throws: usage listing them.
std::string extra_choice(const TaskOptions& options, const std::string& key, std::span<const std::string> allowed,
                         const std::string& otherwise);
// Throws: usage when it is no whole number within [low, high].
int64_t extra_count(const TaskOptions& options, const std::string& key, int64_t otherwise, int64_t low, int64_t high);

}  // namespace hayfork::tasks
