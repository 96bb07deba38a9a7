// Experts' weights from each layout that checkpoints use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/moe.h"
#include "engine/loader.h"
#include "engine/mixers/moe.h"

namespace hayfork::engine {

// Throws: as Loader.
ExpertWeights load_experts(Loader& loader, const MoeSpec& spec, int64_t hidden);

// One row of MXFP4 (OCP Microscaling 1.0; model_families.md 12): n_blocks blocks of 32 values, 16 bytes each (value 2j
// in the low nibble of byte j), and one exponent byte a block. Writes 32 · n_blocks floats. False: an exponent byte is
// 255, which means NaN.
bool decode_mxfp4(const uint8_t* blocks, const uint8_t* exponents, int64_t n_blocks, float* out);

}  // namespace hayfork::engine
