// YAML files of the user (configuration, policies, search spaces) as JSON values, in the order written. One document of
// the YAML 1.2 core schema: null, booleans true and false, integers, finite numbers, text; yes, no, on and off are
// text. Refused: keys that stand twice or are no plain scalar, merge keys, tags of one's own, several documents,
// infinite numbers. Limited in size, depth and number of values, those that aliases repeat included.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace hayfork::datasets {

struct YamlOptions {
  ErrorCode code = ErrorCode::usage;  // of every error but a missing file
  ErrorSubject subject = ErrorSubject::general;
  size_t max_bytes = size_t{1} << 20;
  int max_depth = 32;
  int max_values = 100'000;
  bool typed = true;  // false: every scalar but null stays the text that it is written as
};

// null for an empty document. Throws: options.code with the line and column.
nlohmann::ordered_json parse_yaml(std::string_view text, const std::string& name, const YamlOptions& options = {});
// Throws also: not_found.
nlohmann::ordered_json load_yaml(const std::filesystem::path& path, const YamlOptions& options = {});

}  // namespace hayfork::datasets
