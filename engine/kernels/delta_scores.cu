// What a chunk of the delta rule needs no state for: gates, scores P_ij = (q_i · k_j) e^{G_i − G_j} for j ≤ i, and T =
// (I + A)⁻¹, A_ij = β_i (k_i · k_j) e^{G_i − G_j} for j < i. One block a chunk and output head.
#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 128;  // warp w: rows 16 w … of the 64 × 64 products
constexpr int kHalf = kChunk / 2;
constexpr int kAStride = kChunk + 4;  // floats; rows stay aligned to 16 bytes
constexpr int kHalfStride = kHalf + 4;

template <int kDim>
constexpr int rows_bytes() {
  return kChunk * (kDim + kPad) * 2;
}
template <int kDim>
constexpr int query_bytes() {  // A lies over the queries once these have been used
  return rows_bytes<kDim>() > kChunk * kAStride * 4 ? rows_bytes<kDim>() : kChunk * kAStride * 4;
}
template <int kDim>
constexpr int shared_bytes() {
  return rows_bytes<kDim>() + query_bytes<kDim>() + 3 * kHalf * kHalfStride * 4;
}

// One column of the inverse of I + a, a strictly lower triangular [32][32]: forward substitution in float32.
__device__ inline void solve_column(const float* a, float* inverse, int column) {
  float t[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    float sum[4] = {i == column ? 1.f : 0.f, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 x = *reinterpret_cast<const float4*>(a + i * kAStride + j);
      sum[0] = fmaf(-x.x, t[j], sum[0]);
      if (j + 1 < i) sum[1] = fmaf(-x.y, t[j + 1], sum[1]);
      if (j + 2 < i) sum[2] = fmaf(-x.z, t[j + 2], sum[2]);
      if (j + 3 < i) sum[3] = fmaf(-x.w, t[j + 3], sum[3]);
    }
    t[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    inverse[i * kHalfStride + column] = t[i];
  }
}

// Rows 8 w … of sign · a · b, [32][32] each; one column a lane.
__device__ inline void multiply_halves(float* to, int to_stride, const float* a, int a_stride, const float* b,
                                       float sign) {
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 8;
  float sum[8] = {};
#pragma unroll
  for (int j = 0; j < kHalf; j += 4) {
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = b[(j + i) * kHalfStride + lane];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const float4 y = *reinterpret_cast<const float4*>(a + (first + r) * a_stride + j);
      sum[r] = fmaf(y.w, x[3], fmaf(y.z, x[2], fmaf(y.y, x[1], fmaf(y.x, x[0], sum[r]))));
    }
  }
#pragma unroll
  for (int r = 0; r < 8; ++r) to[(first + r) * to_stride + lane] = sign * sum[r];
}

// T = (I + A)⁻¹ by two diagonal halves and the block below them; `a` [64][kAStride] is used up.
__device__ inline void invert(float* a, float* halves, bf16_t* to) {
  float *top = halves, *bottom = halves + kHalf * kHalfStride, *product = bottom + kHalf * kHalfStride;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) solve_column(a, top, lane);
  if (warp == 1) solve_column(a + kHalf * kAStride + kHalf, bottom, lane);
  __syncthreads();
  multiply_halves(product, kHalfStride, a + kHalf * kAStride, kAStride, top, 1.f);
  __syncthreads();
  multiply_halves(a + kHalf * kAStride, kAStride, bottom, kHalfStride, product, -1.f);
  __syncthreads();
  for (int e = threadIdx.x; e < kChunk * kChunk / 2; e += kThreads) {
    const int i = e / (kChunk / 2), c = e % (kChunk / 2) * 2;
    float2 pair = {0, 0};
    if (i < kHalf) {
      if (c < kHalf) pair = *reinterpret_cast<const float2*>(top + i * kHalfStride + c);
    } else {
      pair = *reinterpret_cast<const float2*>(c < kHalf ? a + i * kAStride + c
                                                        : bottom + (i - kHalf) * kHalfStride + c - kHalf);
    }
    reinterpret_cast<uint32_t*>(to)[e] = pack_bf16(pair.x, pair.y);
  }
}

template <int kDim, bool kAligned>
__global__ void __launch_bounds__(kThreads) scores_kernel(const __grid_constant__ RecurrentCall call) {
  const int cell_index = call.first_cell + static_cast<int>(blockIdx.x), h = blockIdx.y;
  const bool of_output_rows = blockIdx.z == 1;
  const int readers = call.readers, j = h / readers;
  const ChunkCell at = call.pass.cells[cell_index];
  const SequenceSpans& sequence = call.pass.sequences[at.seq];
  const int position = first_position(call, sequence);
  const int stands = position == 0 ? 0 : *reinterpret_cast<const int*>(state_of(call, sequence.slot, j));
  const Cell cell = cell_at(sequence, at.index, position, stands);
  if (of_output_rows && !has_output_rows(call, cell)) return;
  const bool inverts = !of_output_rows && h % readers == 0;

  extern __shared__ __align__(16) char shared[];
  bf16_t* const keys = reinterpret_cast<bf16_t*>(shared);
  bf16_t* const queries = reinterpret_cast<bf16_t*>(shared + rows_bytes<kDim>());
  __shared__ __align__(8) float sums[kChunk], scales[kChunk];
  __shared__ int asking[kChunk];
  if (threadIdx.x < kChunk) asking[threadIdx.x] = asking_row(call, cell, threadIdx.x, of_output_rows);
  __syncthreads();
  const int key_head = j * call.n_k / call.n;
  const int query_head = h * call.n_q / call.n_out;
  const bf16_t* const q = static_cast<const bf16_t*>(call.q) + query_head * call.dk;
  if (kAligned && cell.is_whole() && !of_output_rows) {
    load_even_rows<kChunk, kDim, kThreads>(keys, key_row(call, cell, 0, key_head), call.k_stride, call.dk);
    load_even_rows<kChunk, kDim, kThreads>(queries, q + cell.row(0) * call.q_stride, call.q_stride, call.dk);
  } else {
    load_rows<kChunk, kDim, kAligned, kThreads>(keys, call.dk, call.k,
                                                [&](int i) { return key_row(call, cell, i, key_head); });
    load_rows<kChunk, kDim, kAligned, kThreads>(queries, call.dk, call.k, [&](int i) -> const bf16_t* {
      return asking[i] < 0 ? nullptr : q + asking[i] * call.q_stride;
    });
  }
  copy_async_commit();
  if (threadIdx.x < 32) chunk_gates(call, cell, j, sums, scales);
  __syncthreads();
  if (h % readers == 0 && !of_output_rows && threadIdx.x < kChunk) {
    float* gates = reinterpret_cast<float*>(state_scratch(call, cell_index, j, kDim));
    gates[threadIdx.x] = sums[threadIdx.x];
    gates[kChunk + threadIdx.x] = scales[threadIdx.x];
  }
  copy_async_wait<0>();
  __syncthreads();

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  constexpr int kStride = kDim + kPad;
  float qk[8][4] = {}, kk[8][4] = {};
#pragma unroll 4
  for (int d = 0; d < kDim; d += 16) {
    uint32_t q[4], k[4];
    load_a(q, queries + warp * 16 * kStride + d, kStride);
    if (inverts) load_a(k, keys + warp * 16 * kStride + d, kStride);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (n > warp) continue;  // above the diagonal
      uint32_t b[4];
      load_b_transposed(b, keys + n * 16 * kStride + d, kStride);
      mma_bf16(qk[2 * n], q[0], q[1], q[2], q[3], b[0], b[1]);
      mma_bf16(qk[2 * n + 1], q[0], q[1], q[2], q[3], b[2], b[3]);
      if (!inverts) continue;
      mma_bf16(kk[2 * n], k[0], k[1], k[2], k[3], b[0], b[1]);
      mma_bf16(kk[2 * n + 1], k[0], k[1], k[2], k[3], b[2], b[3]);
    }
  }
  const bool before = call.before && of_output_rows;
  bf16_t* const scores = scores_of(call, cell_index, h, of_output_rows);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = warp * 16 + g + half * 8, c = n * 8 + 2 * t;
      const float decay = before ? (i > 0 ? sums[i - 1] : 0.f) : sums[i];
      const int end = before ? i : i + 1;
      float p[2];
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        p[x] = c + x < end ? qk[n][2 * half + x] * exp2_approx(decay - sums[c + x]) : 0.f;
      }
      reinterpret_cast<uint32_t*>(scores)[(i * kChunk + c) / 2] = pack_bf16(p[0], p[1]);
    }
  }
  if (!inverts) return;
  __syncthreads();  // the queries have been used
  float* const a = reinterpret_cast<float*>(queries);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = warp * 16 + g + e / 2 * 8, c = n * 8 + 2 * t + e % 2;
      a[i * kAStride + c] = c < i ? scales[i] * kk[n][e] * exp2_approx(sums[i] - sums[c]) : 0.f;
    }
  }
  __syncthreads();
  char* const mine = state_scratch(call, cell_index, j, kDim);
  invert(a, a + query_bytes<kDim>() / 4, reinterpret_cast<bf16_t*>(mine + kGateBytes));
}

}  // namespace

void delta_scores(CudaContext& context, const RecurrentCall& call, int cells, bool output_rows, bool aligned) {
  const dim3 grid(static_cast<unsigned>(cells), static_cast<unsigned>(call.n_out), output_rows ? 2 : 1);
  with_key_dim(call.dk, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value, kBytes = shared_bytes<kDim>();
    const auto kernel = aligned ? scores_kernel<kDim, true> : scores_kernel<kDim, false>;
    allow_shared(context, kernel, kBytes);
    kernel<<<grid, kThreads, kBytes, context.stream()>>>(call);
    HAY_LAUNCHED();
  });
}

}  // namespace hayfork::engine::cuda
