#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/simd/simd.h"
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

}  // namespace

void add(Context&, Matrix x, Matrix y, float scale) {
  HAY_CHECK(x.rows == y.rows && x.cols == y.cols);
  for_rows(x, [&](int64_t m) { simd().add(x.f32(m), y.f32(m), scale, x.cols); });
}

void act_mul(Context&, Matrix y, Matrix gate, Matrix up, Activation act) {
  HAY_CHECK(y.rows == gate.rows && y.cols == gate.cols && up.rows == y.rows && up.cols == y.cols);
  for_rows(y, [&](int64_t m) {
    const auto body = act == Activation::silu ? simd().silu_mul : simd().gelu_mul;
    body(gate.f32(m), up.f32(m), y.f32(m), y.cols);
  });
}

void affine(Context&, Matrix q, Vector scale, Vector offset) {
  HAY_CHECK(scale.size == q.cols && offset.size == q.cols);
  for_rows(q, [&](int64_t m) { simd().affine(q.f32(m), scale.data, offset.data, q.cols); });
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

void mark_nonfinite(Context&, Matrix marks, Matrix x, int32_t layer) {
  auto* layers = static_cast<int32_t*>(marks.data);
  for (int64_t m = 0; m < x.rows; ++m) {
    if (layer == 0) layers[m] = -1;
    if (layers[m] < 0 && !simd().all_finite(x.f32(m), x.cols)) layers[m] = layer;
  }
}

}  // namespace hayfork::engine::cpu
