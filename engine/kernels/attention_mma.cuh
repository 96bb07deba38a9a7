// What the mma.sync attention kernels share: pages of 64 keys in shared memory, and the partial results of split rows.
// Keys are visited at absolute positions only, and rows share nothing but loads, so a row's bits depend on itself
// alone.
#pragma once

#include "engine/kernels/attention.cuh"
#include "engine/kernels/mma.cuh"

namespace hayfork::engine::cuda {

using bf = __nv_bfloat16;
constexpr int kPage = kBlockTokens;  // 64 keys
static_assert(kPage == 64);

// Shared tiles are [64 keys][D] with the 16-byte chunks of a row exchanged by the row's number: ldmatrix reads 8 rows
// without bank conflicts.
template <int D>
__device__ inline uint32_t tile_offset(int row, int chunk) {
  constexpr int kChunks = D / 8;
  constexpr int kMask = kChunks < 8 ? kChunks - 1 : 7;
  return static_cast<uint32_t>((row * kChunks + (chunk ^ (row & kMask))) * 16);
}

// Copies one page's [64][dim] keys or values into a [64][D] tile, zeros beyond dim and from row `valid` on: a
// probability of zero must not meet what an unwritten slot holds. All `n_threads` threads call it.
template <int D>
__device__ inline void copy_page(uint32_t tile, const bf* page, int dim, int valid, int thread, int n_threads) {
  for (int e = thread; e < kPage * (D / 8); e += n_threads) {
    const int row = e / (D / 8), chunk = e % (D / 8);
    const bool in = chunk * 8 < dim && row < valid;
    copy_async_16(tile + tile_offset<D>(row, chunk), in ? page + row * dim + chunk * 8 : page, in ? 16 : 0);
  }
}

// The same of a page with all its rows and D wide: a thread's rows lie a fixed distance apart, and so do their places.
template <int D, int kThreads>
__device__ inline void copy_whole_page(uint32_t tile, const bf* page, int thread) {
  constexpr int kChunks = D / 8, kStep = kThreads / kChunks;  // rows between a thread's
  static_assert(kThreads % kChunks == 0 && (kStep % 8 == 0 || kStep == 4));
  const int row = thread / kChunks, chunk = thread % kChunks;
  const bf* from = page + row * D + chunk * 8;
  const uint32_t even = tile + tile_offset<D>(row, chunk);
  const uint32_t odd = tile + tile_offset<D>(row + kStep, chunk) - kStep * D * 2;
#pragma unroll
  for (int i = 0; i < kPage / kStep; ++i) {
    copy_async_16((i % 2 == 0 ? even : odd) + i * kStep * D * 2, from + i * kStep * D, 16);
  }
}

// Score and probability of one accumulator element.
struct RowState {
  float m = -INFINITY, l = 0;
};

// Partial results of split rows: for split row r, head h, segment s at index (r·n_heads + h)·n_segments + s.
struct Partials {
  float2* ml;  // max and sum
  float* o;    // [D] each
  int n_segments;
  int segment;  // keys
};

// Adds up the segments of split rows first_row … and writes their outputs.
void attention_merge(CudaContext& context, const AttentionCall& call, const Partials& partials, int first_row,
                     int n_rows);

}  // namespace hayfork::engine::cuda
