#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {

// Su et al. 2021, eq. 34, pairs (i, i + half). The angle is the float32 product pos · inv_freq, as in transformers.
RopeAngles rope_angles(Context& context, std::span<const Row> rows, std::span<const RopeTable> tables,
                       std::span<const int32_t> table_of_seq) {
  HAY_CHECK(!tables.empty());
  const size_t half = tables[0].inv_freq.size();
  for (const RopeTable& table : tables) HAY_CHECK(table.inv_freq.size() == half);
  const size_t bytes = rows.size() * half * sizeof(float);
  auto* cos = static_cast<float*>(context.arena().allocate(bytes));
  auto* sin = static_cast<float*>(context.arena().allocate(bytes));
  parallel_for(static_cast<int64_t>(rows.size()), 64, [&](int64_t begin, int64_t end) {
    for (size_t m = static_cast<size_t>(begin); m < static_cast<size_t>(end); ++m) {
      const auto which = static_cast<size_t>(table_of_seq[static_cast<size_t>(rows[m].seq)]);
      const RopeTable& table = tables[which];
      for (size_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(rows[m].pos) * table.inv_freq[i];
        // In double: a float32 cosine differs between C libraries.
        cos[m * half + i] = static_cast<float>(std::cos(static_cast<double>(angle))) * table.attention_factor;
        sin[m * half + i] = static_cast<float>(std::sin(static_cast<double>(angle))) * table.attention_factor;
      }
    }
  });
  return {cos, sin, static_cast<int32_t>(half)};
}

void rope(Context&, Matrix x, int64_t first_row, RopeAngles angles, int32_t head_dim) {
  HAY_CHECK(head_dim >= 2 * angles.half && x.cols % head_dim == 0);
  const int64_t half = angles.half;
  parallel_for(x.rows, 1 + (1 << 15) / (x.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const float* cos = angles.cos + (first_row + m) * half;
      const float* sin = angles.sin + (first_row + m) * half;
      for (int64_t h = 0; h < x.cols; h += head_dim) {
        simd().rotate(x.f32(m) + h, x.f32(m) + h + half, cos, sin, half);
      }
    }
  });
}

}  // namespace hayfork::engine::cpu
