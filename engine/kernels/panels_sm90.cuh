// Tiles of bf16 for wgmma in shared memory: panels of 64 rows of 64 columns, 128-byte swizzle, and what a warpgroup's
// accumulators of m64n64 hold of a recurrent state.
#pragma once

#include "engine/kernels/hopper.cuh"
#include "engine/kernels/segment.cuh"

namespace hayfork::engine::cuda::sm90 {

constexpr int kPanelBytes = kChunk * 128;

// Rows of a panel as a product's second operand, k along them: 16 a step.
__device__ inline uint64_t rows_of(uint32_t panel, int k) {
  return matrix_descriptor(panel + k * 16 * 128, kPanelBytes, 1024);
}
// Panels side by side whose columns are k.
__device__ inline uint64_t columns_of(uint32_t panels, int k) {
  return matrix_descriptor(panels + k / 4 * kPanelBytes + k % 4 * 32, 16, 1024);
}
// A fragment of 16 columns of a panel, k along its rows (16 a step), from column 16 · tile on.
__device__ inline void load_columns(uint32_t (&a)[4], uint32_t panel, int tile, int k) {
  const int lane = threadIdx.x % 32, row = k * 16 + lane / 16 * 8 + lane % 8;
  load_matrix_x4_transposed(a, panel + row * 128 + ((tile * 2 + lane / 8 % 2) ^ (lane % 8)) * 16);
}
// A fragment of 16 rows of a panel, k along its columns.
__device__ inline void load_panel_rows(uint32_t (&a)[4], uint32_t panel, int tile, int k) {
  const int lane = threadIdx.x % 32;
  load_matrix_x4(a, panel + (tile * 16 + lane % 16) * 128 + ((2 * k + lane / 16) ^ (lane % 8)) * 16);
}

// 64 rows of 64 · kWide columns as panels; source(i) is null for a row of zeros, and columns from `width` on are zeros.
// Asynchronous where kDirect (`valid`: an address that may be read): the caller commits and waits.
template <int kThreads, int kWide, bool kDirect, typename Source>
__device__ inline void fetch_panels(uint32_t to, int width, const void* valid, Source source) {
  constexpr int kStep = kThreads / (8 * kWide);
  static_assert(kStep % 8 == 0);
  const int first = threadIdx.x / (8 * kWide), c = threadIdx.x % (8 * kWide);
  to += c / 8 * kPanelBytes + first * 128 + ((c % 8) ^ (first % 8)) * 16;
#pragma unroll
  for (int i = 0; i < kChunk; i += kStep) {
    const bf16_t* const from = source(first + i);
    const uint32_t at = to + i * 128;
    if constexpr (kDirect) {
      const bool there = from != nullptr && c * 8 < width;
      copy_async_16(at, there ? from + c * 8 : valid, there ? 16 : 0);
    } else {
      uint32_t pair[4];
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const int d = c * 8 + 2 * x;
        pair[x] = pack_bf16(from != nullptr && d < width ? __bfloat162float(from[d]) : 0.f,
                            from != nullptr && d + 1 < width ? __bfloat162float(from[d + 1]) : 0.f);
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(at), "r"(pair[0]), "r"(pair[1]), "r"(pair[2]),
                   "r"(pair[3])
                   : "memory");
    }
  }
}

// 64 · kTiles rows of kColumns columns of a state as a warpgroup's accumulators: x[m][4 n + 2 half …] are row(m, half)
// and columns 8 n + 2 (lane mod 4) ….
template <int kTiles>
struct SegmentState {
  static constexpr int kDown = kTiles;
  float x[kTiles][32];

  __device__ static int first_tile() { return 0; }  // of the columns
  __device__ static int row(int m, int half) {
    const int thread = static_cast<int>(threadIdx.x);
    return (thread / 128 * kTiles + m) * 64 + thread / 32 % 4 * 16 + thread % 32 / 4 + half * 8;
  }
  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int e = 0; e < 32; ++e) x[m][e] = 0;
  }
  // From and to the columns [first, …) of a [dk][dv] matrix; what lies outside is zero. Requires: 8-byte alignment.
  __device__ void load(const float* matrix, int dk, int dv, int first) {
    for_pairs(matrix, dk, dv, first, [even = dv % 2 == 0](float& a, float& b, const float* at, int n) {
      const float2 pair = load_pair(at, n, even);
      a = pair.x, b = pair.y;
    });
  }
  __device__ void store(float* matrix, int dk, int dv, int first) {
    for_pairs(matrix, dk, dv, first, [even = dv % 2 == 0](float& a, float& b, float* at, int n) {
      store_pair(at, {a, b}, n, even);
    });
  }

 private:
  // f(x, y, their place, how many of them exist)
  template <typename Float, typename F>
  __device__ void for_pairs(Float* matrix, int dk, int dv, int first, F f) {
    const int column = first + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Float* const at = matrix + static_cast<int64_t>(row(m, half)) * dv + column;
#pragma unroll
        for (int n = 0; n < 8; ++n)
          f(x[m][4 * n + 2 * half], x[m][4 * n + 2 * half + 1], at + 8 * n,
            row(m, half) < dk ? min(max(dv - column - 8 * n, 0), 2) : 0);
      }
  }
};

}  // namespace hayfork::engine::cuda::sm90
