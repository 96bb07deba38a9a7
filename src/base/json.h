// JSON from outside: every file that users or checkpoints bring goes through parse_json, which limits depth and size,
// refuses duplicate keys and says where a fault is. Accepts Python's Infinity, -Infinity and NaN literals when asked.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/error.h"

namespace hayfork {

struct JsonOptions {
  int max_depth = 64;
  bool python_literals = false;  // Infinity, -Infinity, NaN become {"__float__": "Infinity"} and so on
  bool unique_keys = true;
};

// `name` is the file (and line) for messages. Throws: corrupt with the byte offset.
nlohmann::json parse_json(std::string_view text, const std::string& name, ErrorSubject subject,
                          JsonOptions options = {});
// The same, with the order of keys kept (chat templates need it).
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name, ErrorSubject subject,
                                          JsonOptions options = {});

}  // namespace hayfork
