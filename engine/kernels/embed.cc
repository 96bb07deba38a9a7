#include "base/error.h"
#include "engine/kernels/packed.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {

void embed(Context&, Matrix x, std::span<const Row> rows, const LinearWeight& table, float multiplier) {
  const PackedWeight& w = packed(table);
  HAY_CHECK(x.rows == static_cast<int64_t>(rows.size()) && x.cols == w.k);
  for (int64_t m = 0; m < x.rows; ++m) {
    const int32_t token = rows[static_cast<size_t>(m)].token;
    HAY_CHECK(token >= 0 && token < w.n, "token outside the embedding");
    float* out = x.f32(m);
    w.read_row(token, out);
    if (multiplier != 1.0F) {
      for (int64_t c = 0; c < x.cols; ++c) out[c] *= multiplier;
    }
  }
}

}  // namespace hayfork::engine::cpu
