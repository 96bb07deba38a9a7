// Scores of a chunk whose decay is per channel (GLA, mixers.md 5): P_ij = Σ_d q_id k_jd e^{b_id − b_jd}. Rows in
// different blocks of 16 share a reference point between them, so that both exponents are ≤ 0; inside a block the
// exponential of the difference is taken. Also q̃ = q ⊙ e^{b} and k̃ = k ⊙ e^{b_end − b}, which is all that the walk over
// the chunks needs of the decays. One block a chunk and head.
#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kBlock = 16;

template <int kDim>
constexpr int shared_bytes() {
  return 2 * kChunk * (kDim + kPad) * 2 + kChunk * (kDim + 1) * 4;
}

// The pair (x, y) of a row, scaled by 2^{from − to} each.
__device__ inline uint32_t scaled_pair(const bf16_t* x, const float* from, const float* to) {
  return pack_bf16(load(x) * exp2_approx(from[0] - to[0]), load(x + 1) * exp2_approx(from[1] - to[1]));
}

// Rows of block `warp` against the blocks before it.
template <int kDim>
__device__ inline void score_blocks(bf16_t* scores, const bf16_t* queries, const bf16_t* keys, const float* b,
                                    int warp) {
  constexpr int kStride = kDim + kPad, kSums = kDim + 1;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, i = warp * kBlock + g;
  float p[6][4] = {};
  const float* reference = b + (warp * kBlock - 1) * kSums;  // the sums before the block
  for (int d = 0; d < kDim && warp > 0; d += 16) {
    const int c = d + 2 * t;
    uint32_t a[4];
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      const int row = i + x % 2 * 8, column = c + x / 2 * 8;
      a[x] = scaled_pair(queries + row * kStride + column, b + row * kSums + column, reference + column);
    }
#pragma unroll
    for (int n = 0; n < 6; ++n) {
      if (n * 8 >= warp * kBlock) continue;
      const int key = n * 8 + g;
      const uint32_t b0 = scaled_pair(keys + key * kStride + c, reference + c, b + key * kSums + c);
      const uint32_t b1 = scaled_pair(keys + key * kStride + c + 8, reference + c + 8, b + key * kSums + c + 8);
      mma_bf16(p[n], a[0], a[1], a[2], a[3], b0, b1);
    }
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    if (n / 2 == warp) continue;  // the diagonal block is written apart
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool there = n * 8 < warp * kBlock;
      const uint32_t pair = there && n < 6 ? pack_bf16(p[n < 6 ? n : 0][2 * half], p[n < 6 ? n : 0][2 * half + 1]) : 0u;
      reinterpret_cast<uint32_t*>(scores)[((i + half * 8) * kChunk + n * 8 + 2 * t) / 2] = pair;
    }
  }
}

// The diagonal block: channels across the lanes.
template <int kDim>
__device__ inline void score_diagonal(bf16_t* scores, const bf16_t* queries, const bf16_t* keys, const float* b,
                                      int warp) {
  constexpr int kStride = kDim + kPad, kSums = kDim + 1;
  const int lane = threadIdx.x % 32;
  for (int i = warp * kBlock; i < (warp + 1) * kBlock; ++i) {
    for (int j = warp * kBlock; j < (warp + 1) * kBlock; ++j) {
      float sum = 0;
      if (j <= i) {
        for (int d = lane; d < kDim; d += 32) {
          const float decay = exp2_approx(b[i * kSums + d] - b[j * kSums + d]);
          sum = fmaf(load(queries + i * kStride + d) * load(keys + j * kStride + d), decay, sum);
        }
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
      }
      if (lane == 0) scores[i * kChunk + j] = __float2bfloat16_rn(sum);
    }
  }
}

template <int kDim, bool kAligned>
__global__ void __launch_bounds__(kThreads) channel_kernel(const __grid_constant__ RecurrentCall call) {
  const int cell_index = call.first_cell + static_cast<int>(blockIdx.x), j = blockIdx.y;
  const ChunkCell at = call.pass.cells[cell_index];
  const SequenceSpans& sequence = call.pass.sequences[at.seq];
  const int position = first_position(call, sequence);
  const int stands = position == 0 ? 0 : *reinterpret_cast<const int*>(state_of(call, sequence.slot, j));
  const Cell cell = cell_at(sequence, at.index, position, stands);
  extern __shared__ __align__(16) char shared[];
  constexpr int kStride = kDim + kPad, kSums = kDim + 1;
  bf16_t* const keys = reinterpret_cast<bf16_t*>(shared);
  bf16_t* const queries = keys + kChunk * kStride;
  float* const b = reinterpret_cast<float*>(queries + kChunk * kStride);  // inclusive sums of log2 decays
  const int key_head = j * call.n_k / call.n;
  const int query_head = j * call.n_q / call.n_out;
  load_rows<kChunk, kDim, kAligned, kThreads>(keys, call.dk, call.k,
                                              [&](int i) { return key_row(call, cell, i, key_head); });
  load_rows<kChunk, kDim, kAligned, kThreads>(queries, call.dk, call.k, [&](int i) -> const bf16_t* {
    const int row = asking_row(call, cell, i, false);
    return row < 0 ? nullptr : static_cast<const bf16_t*>(call.q) + row * call.q_stride + query_head * call.dk;
  });
  copy_async_commit();
  for (int d = threadIdx.x; d < kDim; d += kThreads) {
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < kChunk; ++i) {
      float log = 0;
      if (d < call.dk && cell.has(i)) {
        log = i >= cell.fresh
                  ? call.per_channel[cell.row(i) * call.channel_stride + key_head * call.dk + d]
                  : open_rows<float>(call, sequence.slot,
                                     call.open_logs)[(static_cast<int64_t>(i) * call.n_k + key_head) * call.dk + d];
      }
      sum += log * kLog2E;
      b[i * kSums + d] = sum;
    }
  }
  char* const mine = state_scratch(call, cell_index, j, kDim);
  copy_async_wait<0>();
  __syncthreads();
  bf16_t* const scaled_queries = reinterpret_cast<bf16_t*>(mine + kGateBytes);
  bf16_t* const scaled_keys = scaled_queries + kChunk * kDim;
  float* const kept = reinterpret_cast<float*>(scaled_keys + kChunk * kDim);
  const float* const end = b + (kChunk - 1) * kSums;
  for (int d = threadIdx.x; d < kDim; d += kThreads) kept[d] = exp2_approx(end[d]);
  for (int e = threadIdx.x; e < kChunk * kDim / 2; e += kThreads) {
    const int i = e / (kDim / 2), d = e % (kDim / 2) * 2;
    const float* sums = b + i * kSums + d;
    const bf16_t *q = queries + i * kStride + d, *k = keys + i * kStride + d;
    reinterpret_cast<uint32_t*>(scaled_queries)[e] =
        pack_bf16(load(q) * exp2_approx(sums[0]), load(q + 1) * exp2_approx(sums[1]));
    reinterpret_cast<uint32_t*>(scaled_keys)[e] = scaled_pair(k, end + d, sums);
  }
  const int warp = threadIdx.x / 32;
  bf16_t* const scores = scores_of(call, cell_index, j, false);
  score_blocks<kDim>(scores, queries, keys, b, warp);
  score_diagonal<kDim>(scores, queries, keys, b, warp);
}

template <int kDim>
void launch(CudaContext& context, const RecurrentCall& call, dim3 grid, bool aligned) {
  const auto kernel = aligned ? channel_kernel<kDim, true> : channel_kernel<kDim, false>;
  HAY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<kDim>()));
  kernel<<<grid, kThreads, static_cast<size_t>(shared_bytes<kDim>()), context.stream()>>>(call);
  HAY_LAUNCHED();
}

}  // namespace

void channel_scores(CudaContext& context, const RecurrentCall& call, int cells, bool aligned) {
  const dim3 grid(static_cast<unsigned>(cells), static_cast<unsigned>(call.n));
  switch (padded_key_dim(call.dk)) {
    case 16:
      return launch<16>(context, call, grid, aligned);
    case 32:
      return launch<32>(context, call, grid, aligned);
    case 64:
      return launch<64>(context, call, grid, aligned);
    case 128:
      return launch<128>(context, call, grid, aligned);
    default:
      return launch<256>(context, call, grid, aligned);
  }
}

}  // namespace hayfork::engine::cuda
