// Gate policies from YAML: schema hayfork/gate/1 (docs/gate.md).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "runs/gate.h"

namespace hayfork::cli {

// Throws: usage, naming the key and what is near.
runs::Policy parse_policy(std::string_view text, const std::string& name);
runs::Policy load_policy(const std::filesystem::path& path);  // Throws also: usage for a file that is not there

}  // namespace hayfork::cli
