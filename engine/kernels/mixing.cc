#include "engine/kernels/mixing.h"

#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine {
namespace cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 15;  // below this a second thread costs more than it saves

template <typename Body>  // body(row)
void for_rows(Matrix x, const Body& body) {
  parallel_for(x.rows, 1 + kGrainElements / (x.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) body(m);
  });
}

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

}  // namespace

void combine(Context&, Matrix out, Matrix x, float a, Matrix y, float b) {
  HAY_CHECK(out.rows == x.rows && out.cols == x.cols && y.rows == x.rows && y.cols == x.cols);
  for_rows(out, [&](int64_t m) {
    const float* in = x.f32(m);
    float* to = out.f32(m);
    if (b == 0) {
      for (int64_t c = 0; c < out.cols; ++c) to[c] = a * in[c];
      return;
    }
    const float* other = y.f32(m);
    for (int64_t c = 0; c < out.cols; ++c) to[c] = a * in[c] + b * other[c];
  });
}

void sigmoid_mul(Context&, Matrix y, Matrix gate, Matrix x) {
  HAY_CHECK(y.rows == x.rows && y.cols == x.cols && gate.rows == x.rows && (gate.cols == x.cols || gate.cols == 1));
  for_rows(y, [&](int64_t m) {
    const float* g = gate.f32(m);
    const float* in = x.f32(m);
    float* out = y.f32(m);
    if (gate.cols == 1) {
      const float s = sigmoid(g[0]);
      for (int64_t c = 0; c < y.cols; ++c) out[c] = s * in[c];
      return;
    }
    for (int64_t c = 0; c < y.cols; ++c) out[c] = sigmoid(g[c]) * in[c];
  });
}

}  // namespace cpu

void combine(Context& context, Matrix out, Matrix x, float a, Matrix y, float b) {
  HAY_DISPATCH(context, combine, (context, out, x, a, y, b));
}
void sigmoid_mul(Context& context, Matrix y, Matrix gate, Matrix x) {
  HAY_DISPATCH(context, sigmoid_mul, (context, y, gate, x));
}

}  // namespace hayfork::engine
