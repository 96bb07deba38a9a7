// What people and the store want to know about a model: a layer map, one word for its architecture, a label, its reach.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache.h"
#include "engine/lm.h"
#include "engine/models/spec.h"

namespace hayfork::engine {

// Fills family, arch, arch_label, sizes, reach and the layers' state bytes; `info.layers` holds what the mixers said.
void summarize(const ModelSpec& spec, const std::vector<StateSpec>& states, int64_t kv_bytes, ModelInfo& info);

}  // namespace hayfork::engine
