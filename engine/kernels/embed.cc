#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/packed.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {

void embed(Context&, Matrix x, std::span<const Row> rows, const LinearWeight& table, float multiplier) {
  const PackedWeight& w = packed(table);
  HAY_CHECK(x.rows == static_cast<int64_t>(rows.size()) && x.cols == w.k);
  for (const Row& row : rows) HAY_CHECK(row.token >= 0 && row.token < w.n, "token outside the embedding");
  parallel_for(x.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      w.read_row(rows[static_cast<size_t>(m)].token, x.f32(m));
      if (multiplier != 1.0F) simd().scale(x.f32(m), multiplier, x.cols);
    }
  });
}

}  // namespace hayfork::engine::cpu
