// Experts' weights from each layout that checkpoints use.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kernels/moe.h"
#include "engine/loader.h"
#include "engine/mixers/moe.h"

namespace hayfork::engine {

// Throws: as Loader.
std::unique_ptr<Experts> load_experts(Loader& loader, const MoeSpec& spec, int64_t hidden);

}  // namespace hayfork::engine
