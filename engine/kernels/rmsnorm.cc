#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
// Zhang & Sennrich 2019, eq. 4. Activations are float32 here, so the casts of kinds A and B are none and both are r ·
// w.
void rmsnorm(Context&, Matrix y, Matrix x, Vector w, float eps, NormKind kind, int64_t group) {
  HAY_CHECK(y.rows == x.rows && y.cols == x.cols && group >= 1 && x.cols % group == 0);
  HAY_CHECK(!w || w.size == group);
  const float offset = kind == NormKind::zero_centred ? 1.0F : 0.0F;
  parallel_for(x.rows, 1 + (1 << 15) / (x.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t c = 0; c < x.cols; c += group) {
        simd().rmsnorm(x.f32(m) + c, y.f32(m) + c, w.data, offset, eps, group);
      }
    }
  });
}

}  // namespace hayfork::engine::cpu
