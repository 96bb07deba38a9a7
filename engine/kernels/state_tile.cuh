// Some columns of a recurrent state in a block's registers, in float32: 8 warps share kDim rows of kColumns as
// accumulators of mma.sync.
#pragma once

#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {

template <int kDim, int kColumns>
struct StateTile {
  static constexpr int kWarpsDown = kDim >= 128 ? 8 : kDim / 16, kWarpsAcross = 8 / kWarpsDown;
  static constexpr int kDown = kDim / 16 / kWarpsDown;         // m-tiles a warp
  static constexpr int kAcross = kColumns / 8 / kWarpsAcross;  // n-tiles a warp
  static constexpr int kStride = kColumns + kPad;              // of [·][kColumns] tiles in shared memory
  static_assert(kColumns % kStepColumns == 0 && kAcross >= 1);

  float x[kDown][kAcross][4];

  // This thread's rows and columns.
  __device__ static int row(int m, int half) {
    return (static_cast<int>(threadIdx.x) / 32 % kWarpsDown * kDown + m) * 16 + static_cast<int>(threadIdx.x) % 32 / 4 +
           half * 8;
  }
  __device__ static int column(int n) { return (first_tile() + n) * 8 + static_cast<int>(threadIdx.x) % 4 * 2; }
  __device__ static int first_tile() { return static_cast<int>(threadIdx.x) / 32 / kWarpsDown * kAcross; }

  __device__ void clear() {
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
      for (int n = 0; n < kAcross; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) x[m][n][e] = 0;
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
  // f(m, n, half, offset) of every pair in a [kDim][kColumns] tile of stride kStride.
  template <typename F>
  __device__ static void for_tile(F f) {
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < kAcross; ++n) f(m, n, half, row(m, half) * kStride + column(n));
  }
  // Rows m, half times factor(m, half).
  template <typename F>
  __device__ void scale(F factor) {
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float by = factor(m, half);
#pragma unroll
        for (int n = 0; n < kAcross; ++n) x[m][n][2 * half] *= by, x[m][n][2 * half + 1] *= by;
      }
  }
  // += (K ⊙ w)ᵀ V over a chunk: keys [kChunk][kDim + kPad], values [kChunk][kStride]; weigh(a, k) multiplies the
  // fragment of the rows k … k + 15 of K.
  template <typename Weigh>
  __device__ void add(const bf16_t* keys, const bf16_t* values, Weigh weigh) {
    constexpr int kPairs = kAcross >= 2 ? kAcross / 2 : 1, kKeyStride = kDim + kPad;
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      uint32_t b[kPairs][4];
#pragma unroll
      for (int n = 0; n < kPairs; ++n) load_b(b[n], values + k * kStride + first_tile() / 2 * 16 + n * 16, kStride);
#pragma unroll
      for (int m = 0; m < kDown; ++m) {
        uint32_t a[4];
        load_a_transposed(a, keys + k * kKeyStride + row(m, 0) / 16 * 16, kKeyStride);
        weigh(a, k);
        if constexpr (kAcross >= 2) {
#pragma unroll
          for (int n = 0; n < kAcross; ++n)
            mma_bf16(x[m][n], a[0], a[1], a[2], a[3], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        } else {
          const bool odd = first_tile() % 2 == 1;
          mma_bf16(x[m][0], a[0], a[1], a[2], a[3], odd ? b[0][2] : b[0][0], odd ? b[0][3] : b[0][1]);
        }
      }
    }
  }

 private:
  // f(x, y, their place, how many of them exist)
  template <typename Float, typename F>
  __device__ void for_pairs(Float* matrix, int dk, int dv, int first, F f) {
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
      for (int n = 0; n < kAcross; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int i = row(m, half), c = first + column(n);
          f(x[m][n][2 * half], x[m][n][2 * half + 1], matrix + static_cast<int64_t>(i) * dv + c,
            i < dk ? min(max(dv - c, 0), 2) : 0);
        }
  }
};

}  // namespace hayfork::engine::cuda
