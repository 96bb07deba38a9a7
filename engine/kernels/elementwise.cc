#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 15;  // below this a second thread costs more than it saves

template <typename Body>  // body(row)
void for_rows(Matrix x, const Body& body) {
  parallel_for(x.rows, 1 + kGrainElements / (x.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) body(m);
  });
}

float silu(float x) {
  return x / (1.0F + std::exp(-x));
}

float gelu_tanh(float x) {  // Hendrycks & Gimpel 2016, the tanh approximation
  constexpr float kSqrt2OverPi = 0.7978845608028654F;
  return 0.5F * x * (1.0F + std::tanh(kSqrt2OverPi * (x + 0.044715F * x * x * x)));
}

}  // namespace

void add(Context&, Matrix x, Matrix y, float scale) {
  HAY_CHECK(x.rows == y.rows && x.cols == y.cols);
  for_rows(x, [&](int64_t m) {
    float* out = x.f32(m);
    const float* in = y.f32(m);
    for (int64_t c = 0; c < x.cols; ++c) out[c] += scale * in[c];
  });
}

void act_mul(Context&, Matrix y, Matrix gate, Matrix up, Activation act) {
  HAY_CHECK(y.rows == gate.rows && y.cols == gate.cols && up.rows == y.rows && up.cols == y.cols);
  for_rows(y, [&](int64_t m) {
    float* out = y.f32(m);
    const float* g = gate.f32(m);
    const float* u = up.f32(m);
    for (int64_t c = 0; c < y.cols; ++c) out[c] = (act == Activation::silu ? silu(g[c]) : gelu_tanh(g[c])) * u[c];
  });
}

void affine(Context&, Matrix q, Vector scale, Vector offset) {
  HAY_CHECK(scale.size == q.cols && offset.size == q.cols);
  for_rows(q, [&](int64_t m) {
    float* out = q.f32(m);
    for (int64_t c = 0; c < q.cols; ++c) out[c] = scale.data[c] * out[c] + offset.data[c];
  });
}

void gather_wanted(Context&, Matrix out, Matrix x, std::span<const Row> rows) {
  HAY_CHECK(x.rows == static_cast<int64_t>(rows.size()) && out.cols == x.cols);
  for (int64_t m = 0; m < x.rows; ++m) {
    const int32_t want = rows[static_cast<size_t>(m)].want;
    if (want < 0) continue;
    HAY_CHECK(want < out.rows);
    std::copy_n(x.f32(m), x.cols, out.f32(want));
  }
}

std::vector<int32_t> nonfinite_rows(Context&, Matrix x) {
  std::vector<int32_t> bad;
  for (int64_t m = 0; m < x.rows; ++m) {
    // 0 · v is 0 for a finite v and NaN otherwise.
    float zero = 0;
    for (int64_t c = 0; c < x.cols; ++c) zero += 0.0F * x.f32(m)[c];
    if (zero != 0.0F || std::isnan(zero)) bad.push_back(static_cast<int32_t>(m));
  }
  return bad;
}

}  // namespace hayfork::engine::cpu
