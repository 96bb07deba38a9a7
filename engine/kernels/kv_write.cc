#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/kv_layout.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

constexpr int64_t kGrainElements = 1 << 14;  // below this a second thread costs more than it saves

void write_row(const KvLayer& layer, int64_t block, int64_t slot, const float* k, const float* v) {
  for (int64_t h = 0; h < layer.n_kv_heads; ++h, k += layer.k_dim, v += layer.v_dim) {
    float* to = static_cast<float*>(layer.k) + kv_head_offset(layer, block, h, layer.k_dim) + slot;
    for (int64_t d = 0; d < layer.k_dim; ++d) to[d * kBlockTokens] = k[d];
    to = static_cast<float*>(layer.v) + kv_head_offset(layer, block, h, layer.v_dim);
    std::copy_n(v, layer.v_dim, to + slot * layer.v_dim);
  }
}

void write_row_bf16(const KvLayer& layer, int64_t block, int64_t slot, const float* k, const float* v) {
  constexpr int64_t kStep = 64;
  bf16 part[kStep];
  for (int64_t h = 0; h < layer.n_kv_heads; ++h, k += layer.k_dim, v += layer.v_dim) {
    bf16* to = static_cast<bf16*>(layer.k) + kv_head_offset(layer, block, h, layer.k_dim);
    for (int64_t d = 0; d < layer.k_dim; d += kStep) {
      const int64_t n = std::min(kStep, layer.k_dim - d);
      simd().to_bf16(k + d, part, n);
      for (int64_t i = 0; i < n; ++i) to[k_offset(layer, slot, d + i)] = part[i];
    }
    to = static_cast<bf16*>(layer.v) + kv_head_offset(layer, block, h, layer.v_dim);
    for (int64_t d = 0; d < layer.v_dim; d += kStep) {
      const int64_t n = std::min(kStep, layer.v_dim - d);
      simd().to_bf16(v + d, part, n);
      bf16* pairs = to + v_offset(layer, slot, d);
      for (int64_t i = 0; i < n; ++i) pairs[2 * i] = part[i];
    }
  }
}

template <typename T>
void read_row(const KvLayer& layer, int64_t block, int64_t slot, float* k, float* v) {
  for (int64_t h = 0; h < layer.n_kv_heads; ++h) {
    const T* from = static_cast<const T*>(layer.k) + kv_head_offset(layer, block, h, layer.k_dim);
    for (int64_t d = 0; d < layer.k_dim; ++d) k[h * layer.k_dim + d] = to_float(from[k_offset(layer, slot, d)]);
    from = static_cast<const T*>(layer.v) + kv_head_offset(layer, block, h, layer.v_dim);
    for (int64_t d = 0; d < layer.v_dim; ++d) v[h * layer.v_dim + d] = to_float(from[v_offset(layer, slot, d)]);
  }
}

void check_shapes(Matrix k, Matrix v, const KvLayer& layer) {
  HAY_CHECK(k.rows == v.rows && k.cols == layer.n_kv_heads * layer.k_dim && v.cols == layer.n_kv_heads * layer.v_dim);
}

}  // namespace

void kv_write(Context&, const Pass& pass, int64_t first_row, Matrix k, Matrix v, const KvLayer& layer) {
  check_shapes(k, v, layer);
  parallel_for(k.rows, 1 + kGrainElements / (k.cols + v.cols), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      const Row& row = pass.rows[static_cast<size_t>(first_row + m)];
      HAY_CHECK(row.stream == Stream::base);
      const int64_t block = pass.seqs[static_cast<size_t>(row.seq)].blocks[layer.group][row.pos / kBlockTokens];
      HAY_CHECK(block >= 0, "the block of a row to be written is freed");
      const auto write = layer.dtype == DType::f32 ? write_row : write_row_bf16;
      write(layer, block, row.pos % kBlockTokens, k.f32(m), v.f32(m));
    }
  });
}

void kv_read(Context&, const SeqView& seq, Matrix k, Matrix v, const KvLayer& layer) {
  check_shapes(k, v, layer);
  for (int64_t pos = 0; pos < k.rows; ++pos) {
    const int64_t block = seq.blocks[layer.group][pos / kBlockTokens];
    HAY_CHECK(block >= 0, "the block of a row to be read is freed");
    const auto read = layer.dtype == DType::f32 ? read_row<float> : read_row<bf16>;
    read(layer, block, pos % kBlockTokens, k.f32(pos), v.f32(pos));
  }
}

}  // namespace hayfork::engine::cpu
