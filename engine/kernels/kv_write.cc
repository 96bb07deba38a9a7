#include <algorithm>

#include "base/error.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

// Row `slot` of head h of block `block` in storage of `dim` columns a row.
int64_t offset(int64_t block, int64_t n_heads, int64_t head, int64_t slot, int64_t dim) {
  return ((block * n_heads + head) * kBlockTokens + slot) * dim;
}

void store(void* to, DType dtype, int64_t at, const float* from, int64_t n) {
  if (dtype == DType::f32) {
    std::copy_n(from, n, static_cast<float*>(to) + at);
  } else {
    std::transform(from, from + n, static_cast<bf16*>(to) + at, [](float x) { return to_bf16(x); });
  }
}

}  // namespace

void kv_write(Context&, const Pass& pass, int64_t first_row, Matrix k, Matrix v, const KvLayer& layer) {
  const int64_t heads = layer.n_kv_heads;
  HAY_CHECK(k.rows == v.rows && k.cols == heads * layer.k_dim && v.cols == heads * layer.v_dim);
  for (int64_t m = 0; m < k.rows; ++m) {
    const Row& row = pass.rows[static_cast<size_t>(first_row + m)];
    HAY_CHECK(row.stream == Stream::base);
    const int64_t block = pass.seqs[static_cast<size_t>(row.seq)].blocks[layer.group][row.pos / kBlockTokens];
    HAY_CHECK(block >= 0, "the block of a row to be written is freed");
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t slot = row.pos % kBlockTokens;
      store(layer.k, layer.dtype, offset(block, heads, h, slot, layer.k_dim), k.f32(m) + h * layer.k_dim, layer.k_dim);
      store(layer.v, layer.dtype, offset(block, heads, h, slot, layer.v_dim), v.f32(m) + h * layer.v_dim, layer.v_dim);
    }
  }
}

}  // namespace hayfork::engine::cpu
