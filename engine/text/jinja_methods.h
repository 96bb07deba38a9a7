// Methods of str, list, tuple and dict, and the names that exist in Python but are refused (they change a value) or
// unknown here.
#pragma once

#include <string_view>

#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {

using Method = Value (*)(Runtime& rt, const Value& self, Args& args);

// A method, or null. `name` is exactly Python's.
Method find_string_method(std::string_view name);
Method find_class_method(std::string_view name);  // isalpha and its like
Method find_container_method(Kind kind, std::string_view name);

}  // namespace hayfork::engine::jinja
