// Where the CPU keeps a block of keys and values of one head, so that products read it as it lies. A block is the unit
// of copying; tokens in it are columns of K and (pairs of) rows of V.
#pragma once

#include <cstdint>

#include "engine/cache.h"

namespace hayfork::engine::cpu {

// Elements from the start of a layer's k or v to head `head` of block `block`, with `dim` = k_dim or v_dim.
inline int64_t kv_head_offset(const KvLayer& layer, int64_t block, int64_t head, int64_t dim) {
  return (block * layer.n_kv_heads + head) * kBlockTokens * dim;
}

// K, f32: [k_dim][64 tokens]; bf16: [k_dim/2][64][2], an odd last dimension as [64].
inline int64_t k_offset(const KvLayer& layer, int64_t slot, int64_t d) {
  if (layer.dtype == DType::f32 || (d == layer.k_dim - 1 && d % 2 == 0)) return d * kBlockTokens + slot;
  return (d / 2 * kBlockTokens + slot) * 2 + d % 2;
}

// V, f32: [64 tokens][v_dim]; bf16: [32][v_dim][2].
inline int64_t v_offset(const KvLayer& layer, int64_t slot, int64_t d) {
  if (layer.dtype == DType::f32) return slot * layer.v_dim + d;
  return (slot / 2 * layer.v_dim + d) * 2 + slot % 2;
}

}  // namespace hayfork::engine::cpu
