// Products of a few rows with a panel: accumulators stay in registers, one chain of multiply-adds an output, k
// ascending. The tile's shape is free: it changes no bit.
#pragma once

#include "engine/kernels/simd/simd.h"
#include "engine/kernels/simd/vec.h"

namespace hayfork::engine::cpu::HAY_ISA {

// Rows and groups of columns a tile: as many accumulators as registers allow.
#if defined(__AVX512F__)
constexpr int kRows = 6, kGroups = 4;  // 24 of 32
#elif defined(__AVX2__)
constexpr int kRows = 6, kGroups = 1;  // 12 of 16
#else
constexpr int kRows = 3, kGroups = 1;  // 12 of 16
#endif
constexpr int kVecsPerGroup = static_cast<int>(kGroup) / kLanes;

// The lines of b `ahead` bytes further on: the processor's own prefetching reaches 60 % of what this does when one row
// streams a weight from memory (Zen 4: 18 and 30 GB/s a core).
template <int Vecs>
inline void prefetch(const void* b, int64_t ahead) {
  for (int64_t line = 0; line < Vecs * kLanes * 4; line += 64) {
    __builtin_prefetch(static_cast<const char*>(b) + ahead + line);
  }
}

template <int R, int G>
void tile_f32(int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc,
              bool accumulate, int64_t ahead) {
  constexpr int kVecs = G * kVecsPerGroup;
  Vec acc[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVecs; ++v) acc[r][v] = accumulate ? load(c + r * ldc + v * kLanes) : Vec{};
  }
  for (int64_t i = 0; i < k; ++i) {
    if (ahead != 0) prefetch<kVecs>(b, ahead);
    Vec column[kVecs];
    for (int v = 0; v < kVecs; ++v) column[v] = load(b + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vec x = splat(a[r * lda + i]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = fma(x, column[v], acc[r][v]);
    }
    b += ldb;
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVecs; ++v) store(c + r * ldc + v * kLanes, acc[r][v]);
  }
}

template <int R, int G>
void tile_bf16(int64_t pairs, const bf16* a, int64_t lda, const bf16* b, int64_t ldb, float* c, int64_t ldc,
               bool accumulate, int64_t ahead) {
  constexpr int kVecs = G * kVecsPerGroup;
  Vec acc[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVecs; ++v) acc[r][v] = accumulate ? load(c + r * ldc + v * kLanes) : Vec{};
  }
  for (int64_t i = 0; i < pairs; ++i) {
    if (ahead != 0) prefetch<kVecs>(b, ahead);
    Uint column[kVecs];
    for (int v = 0; v < kVecs; ++v) column[v] = load_bits(b + v * kLanes * 2);
    for (int r = 0; r < R; ++r) {
      uint32_t pair;
      std::memcpy(&pair, a + r * lda + 2 * i, sizeof pair);
      const Uint x = splat_bits(pair);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = dot_pairs(acc[r][v], x, column[v]);
    }
    b += 2 * ldb;
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVecs; ++v) store(c + r * ldc + v * kLanes, acc[r][v]);
  }
}

// One strip of G groups: rows in tiles of nearly equal height.
template <int G, typename T, typename Tile>
void strip(int64_t m, const T* a, int64_t lda, float* c, int64_t ldc, const Tile& tile) {
  const int64_t tiles = (m + kRows - 1) / kRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t begin = m * t / tiles, rows = m * (t + 1) / tiles - begin;
    tile(rows, a + begin * lda, c + begin * ldc);
  }
}

#define HAY_TILE_CASE(R, op)                                                          \
  case R:                                                                             \
    if constexpr (R <= kRows) op<R, G>(k, x, lda, b, ldb, y, ldc, accumulate, ahead); \
    break;
#define HAY_STRIP(op, T)                                                                                         \
  template <int G>                                                                                               \
  void strip_##op(int64_t m, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, float* c, int64_t ldc, \
                  bool accumulate, int64_t ahead) {                                                              \
    strip<G>(m, a, lda, c, ldc, [&](int64_t rows, const T* x, float* y) {                                        \
      switch (rows) {                                                                                            \
        HAY_TILE_CASE(1, op)                                                                                     \
        HAY_TILE_CASE(2, op)                                                                                     \
        HAY_TILE_CASE(3, op)                                                                                     \
        HAY_TILE_CASE(4, op)                                                                                     \
        HAY_TILE_CASE(5, op)                                                                                     \
        HAY_TILE_CASE(6, op)                                                                                     \
        default:                                                                                                 \
          break;                                                                                                 \
      }                                                                                                          \
    });                                                                                                          \
  }
HAY_STRIP(tile_f32, float)
HAY_STRIP(tile_bf16, bf16)
#undef HAY_STRIP
#undef HAY_TILE_CASE

inline void gemm_f32(int64_t m, int64_t groups, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                     float* c, int64_t ldc, bool accumulate, int64_t ahead) {
  int64_t g = 0;
  for (; g + kGroups <= groups; g += kGroups) {
    strip_tile_f32<kGroups>(m, k, a, lda, b + g * kGroup, ldb, c + g * kGroup, ldc, accumulate, ahead);
  }
  for (; g < groups; ++g) strip_tile_f32<1>(m, k, a, lda, b + g * kGroup, ldb, c + g * kGroup, ldc, accumulate, ahead);
}

inline void gemm_bf16(int64_t m, int64_t groups, int64_t pairs, const bf16* a, int64_t lda, const bf16* b, int64_t ldb,
                      float* c, int64_t ldc, bool accumulate, int64_t ahead) {
  int64_t g = 0;
  for (; g + kGroups <= groups; g += kGroups) {
    strip_tile_bf16<kGroups>(m, pairs, a, lda, b + 2 * g * kGroup, ldb, c + g * kGroup, ldc, accumulate, ahead);
  }
  for (; g < groups; ++g) {
    strip_tile_bf16<1>(m, pairs, a, lda, b + 2 * g * kGroup, ldb, c + g * kGroup, ldc, accumulate, ahead);
  }
}

}  // namespace hayfork::engine::cpu::HAY_ISA
