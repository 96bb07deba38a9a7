// JSON values as values of the template language.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/text/jinja_value.h"

namespace hayfork::engine::jinja {

// Throws: usage for an integer beyond 64 bits. Requires: not nested deeper than kMaxValueDepth.
Value from_json(Runtime& rt, const nlohmann::ordered_json& json);

}  // namespace hayfork::engine::jinja
