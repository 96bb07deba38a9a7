#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

constexpr int64_t kLanes = 16;  // partial sums, so that the order of a row's sum is fixed and the loop is vectorised

float sum_of_squares(const float* x, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j] * x[i + j];
  }
  for (; i < n; ++i) lanes[i % kLanes] += x[i] * x[i];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

}  // namespace

// Zhang & Sennrich 2019, eq. 4. Activations are float32 here, so the casts of kinds A and B are none and both are r ·
// w.
void rmsnorm(Context&, Matrix y, Matrix x, Vector w, float eps, NormKind kind, int64_t group) {
  HAY_CHECK(y.rows == x.rows && y.cols == x.cols && group >= 1 && x.cols % group == 0);
  HAY_CHECK(!w || w.size == group);
  parallel_for(x.rows, 1 + (1 << 15) / (x.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      for (int64_t c = 0; c < x.cols; c += group) {
        const float* in = x.f32(m) + c;
        float* out = y.f32(m) + c;
        const float r = 1.0F / std::sqrt(sum_of_squares(in, group) / static_cast<float>(group) + eps);
        if (!w) {
          for (int64_t i = 0; i < group; ++i) out[i] = in[i] * r;
        } else if (kind == NormKind::zero_centred) {
          for (int64_t i = 0; i < group; ++i) out[i] = in[i] * r * (1.0F + w.data[i]);
        } else {
          for (int64_t i = 0; i < group; ++i) out[i] = in[i] * r * w.data[i];
        }
      }
    }
  });
}

}  // namespace hayfork::engine::cpu
