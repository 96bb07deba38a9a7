// The names a template may use without defining them: filters, tests and global functions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {

using Filter = Value (*)(Runtime& rt, const Value& subject, Args& args);
using Test = bool (*)(Runtime& rt, const Value& subject, Args& args);

Filter find_filter(std::string_view name);  // null: no such filter here
Filter find_sequence_filter(std::string_view name);
Test find_test(std::string_view name);
std::optional<Value> find_global(Runtime& rt, const std::string& name);

}  // namespace hayfork::engine::jinja
