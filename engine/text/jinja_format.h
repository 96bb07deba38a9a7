// Python's ways of writing values into text: "…" % values, "…".format(…), json.dumps.
#pragma once

#include <string>

#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {

std::string percent_format(Runtime& rt, const std::string& format, const Value& values);
std::string brace_format(Runtime& rt, const std::string& format, const Args& args);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  const std::string* indent = nullptr;  // absent: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style);

}  // namespace hayfork::engine::jinja
