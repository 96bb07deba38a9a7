#include "engine/kernels/mxfp4.h"

#include <cmath>

namespace hayfork::engine {

bool decode_mxfp4(const uint8_t* blocks, const uint8_t* exponents, int64_t n_blocks, float* out) {
  static constexpr float kValues[16] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};  // e2m1
  for (int64_t b = 0; b < n_blocks; ++b) {
    if (exponents[b] == 255) return false;
    const float scale = std::ldexp(1.0F, static_cast<int>(exponents[b]) - 127);
    for (int64_t j = 0; j < 16; ++j) {
      const uint8_t byte = blocks[b * 16 + j];
      out[b * 32 + 2 * j] = kValues[byte & 15] * scale;
      out[b * 32 + 2 * j + 1] = kValues[byte >> 4] * scale;
    }
  }
  return true;
}

}  // namespace hayfork::engine
