// MXFP4 (OCP Microscaling 1.0): blocks of 32 four-bit numbers under one power of two.
#pragma once

#include <cstdint>

namespace hayfork::engine {

// One row: n_blocks blocks of 16 bytes (value 2j in the low nibble of byte j) and one exponent byte a block. Writes
// 32 · n_blocks floats. False: an exponent byte is 255, which means NaN.
bool decode_mxfp4(const uint8_t* blocks, const uint8_t* exponents, int64_t n_blocks, float* out);

}  // namespace hayfork::engine
