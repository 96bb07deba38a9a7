// Scores of a chunk whose decay is per channel (GLA): P_ij = Σ_d q_id k_jd e^{b_id − b_jd}. Rows in
// different blocks of 16 share reference points between them, so that every exponent is ≤ 0, and go through the tensor
// cores; inside a block the exponential of the difference is taken. Also q̃ = q ⊙ e^{b} and k̃ = k ⊙ e^{b_end − b}, which
// is all that the walks over the chunks need of the decays. One thread block a chunk and head, some channels at a time.
#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlock = 16, kBlocks = kChunk / kBlock;
constexpr int kGroup = 8, kGroups = kChunk / kGroup;  // rows whose decays one thread sums up
constexpr int kTilesABlock = 36;                      // 2 × 2 tiles on and below the diagonal of a block
constexpr int kDiagonalThreads = 160;                 // warps 0–4: the diagonal blocks; 5–7: the other ones
static_assert(kBlocks * kTilesABlock <= kDiagonalThreads);

template <int kDim, bool kAligned>
class ChannelScores {
  static constexpr int kSlab = kDim < 64 ? kDim : 64;  // channels at a time
  static constexpr int kStride = kSlab + kPad, kSumStride = kSlab + 2;

 public:
  struct Shared {
    alignas(16) bf16_t queries[kChunk * kStride], keys[kChunk * kStride];
    alignas(16) bf16_t near_queries[kChunk * kStride], near_keys[kChunk * kStride];  // as seen from their block's edge
    alignas(16) float sums[kChunk * kSumStride];                                     // of log2 decays in the block
    alignas(16) float totals[kGroups * kSlab], between[3 * kSlab];  // of groups; decays over blocks 1, 2, both
  };

  __device__ ChannelScores(const RecurrentCall& call, const Cell& cell, int cell_index, Shared& shared)
      : call_(call),
        cell_(cell),
        shared_(shared),
        j_(blockIdx.y),
        key_head_(j_ * call.n_k / call.n),
        query_head_(j_ * call.n_q / call.n_out),
        scores_(scores_of(call, cell_index, j_, false)),
        scaled_queries_(reinterpret_cast<bf16_t*>(state_scratch(call, cell_index, j_, kDim) + kGateBytes)),
        scaled_keys_(scaled_queries_ + kChunk * kDim),
        whole_(reinterpret_cast<float*>(scaled_keys_ + kChunk * kDim)) {
    const int warp = threadIdx.x / 32, tile = threadIdx.x % kTilesABlock;
    block_ = threadIdx.x / kTilesABlock;
    int row = 0;
    while ((row + 1) * (row + 2) / 2 <= tile) ++row;
    row_ = block_ * kBlock + 2 * row;
    key_ = block_ * kBlock + 2 * (tile - row * (row + 1) / 2);
    pair_ = warp - kDiagonalThreads / 32;
  }

  __device__ void run() {
    for (int first = 0; first < kDim; first += kSlab) {
      fetch(first);
      decay(first);
      if (threadIdx.x < kDiagonalThreads) {
        if (block_ < kBlocks) diagonal();
      } else {
        below(pair_, sums_[0]);
        below(pair_ + 3, sums_[1]);
      }
      __syncthreads();
    }
    if (threadIdx.x < kDiagonalThreads) {
      if (block_ < kBlocks) write_diagonal();
    } else {
      write_below(pair_, sums_[0]);
      write_below(pair_ + 3, sums_[1]);
    }
  }

 private:
  __device__ void fetch(int first) const {
    const int width = call_.dk - first;
    load_rows<kChunk, kSlab, kAligned, kThreads>(shared_.keys, width, call_.k, [&](int i) {
      const bf16_t* row = key_row(call_, cell_, i, key_head_);
      return row == nullptr ? row : row + first;
    });
    load_rows<kChunk, kSlab, kAligned, kThreads>(shared_.queries, width, call_.k, [&](int i) -> const bf16_t* {
      const int row = asking_row(call_, cell_, i, false);
      if (row < 0) return nullptr;
      return static_cast<const bf16_t*>(call_.q) + row * call_.q_stride + query_head_ * call_.dk + first;
    });
    copy_async_commit();
  }
  __device__ float log_of(int i, int d) const {
    if (d >= call_.dk || !cell_.has(i)) return 0;
    if (i >= cell_.fresh) return call_.per_channel[cell_.row(i) * call_.channel_stride + key_head_ * call_.dk + d];
    return open_rows<float>(call_, cell_.sequence->slot,
                            call_.open_logs)[(static_cast<int64_t>(i) * call_.n_k + key_head_) * call_.dk + d];
  }

  // Two channels of a group of rows a thread: the sums, and what is made of queries and keys with them.
  __device__ void decay(int first) {
    const int group = threadIdx.x / (kSlab / 2), d = threadIdx.x % (kSlab / 2) * 2;
    const bool mine = group < kGroups;
    float2 sums[kGroup];
    if (mine) {
      float2 sum = {0, 0};
#pragma unroll
      for (int r = 0; r < kGroup; ++r) {
        sum.x += log_of(group * kGroup + r, first + d) * kLog2E;
        sum.y += log_of(group * kGroup + r, first + d + 1) * kLog2E;
        sums[r] = sum;
      }
      *reinterpret_cast<float2*>(shared_.totals + group * kSlab + d) = sum;
    }
    copy_async_wait<0>();
    __syncthreads();
    if (mine) {
      float2 before = {0, 0}, end = {0, 0}, half = {0, 0}, block = {0, 0};  // sums up to the block, the chunk's end …
      float2 one = {0, 0}, two = {0, 0};                                    // of blocks 1 and 2
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const float2 total = *reinterpret_cast<const float2*>(shared_.totals + g * kSlab + d);
        if (g == group / 2 * 2) before = end;
        if (g / 2 == group / 2) block.x += total.x, block.y += total.y;
        if (group % 2 == 1 && g == group - 1) half = total;
        if (g / 2 == 1) one.x += total.x, one.y += total.y;
        if (g / 2 == 2) two.x += total.x, two.y += total.y;
        end.x += total.x, end.y += total.y;
      }
      if (group == 0) {
        *reinterpret_cast<float2*>(whole_ + first + d) = end;
        *reinterpret_cast<float2*>(shared_.between + d) = exp2_pair(one);
        *reinterpret_cast<float2*>(shared_.between + kSlab + d) = exp2_pair(two);
        *reinterpret_cast<float2*>(shared_.between + 2 * kSlab + d) = exp2_pair({one.x + two.x, one.y + two.y});
      }
#pragma unroll
      for (int r = 0; r < kGroup; ++r) {
        const int i = group * kGroup + r;
        const float2 local = {half.x + sums[r].x, half.y + sums[r].y};
        const float2 sum = {before.x + local.x, before.y + local.y};
        const uint32_t q = *reinterpret_cast<const uint32_t*>(shared_.queries + i * kStride + d);
        const uint32_t k = *reinterpret_cast<const uint32_t*>(shared_.keys + i * kStride + d);
        *reinterpret_cast<float2*>(shared_.sums + i * kSumStride + d) = local;
        *reinterpret_cast<uint32_t*>(shared_.near_queries + i * kStride + d) = weighted_pair(q, exp2_pair(local));
        *reinterpret_cast<uint32_t*>(shared_.near_keys + i * kStride + d) =
            weighted_pair(k, exp2_pair({block.x - local.x, block.y - local.y}));
        *reinterpret_cast<uint32_t*>(scaled_queries_ + i * kDim + first + d) = weighted_pair(q, exp2_pair(sum));
        *reinterpret_cast<uint32_t*>(scaled_keys_ + i * kDim + first + d) =
            weighted_pair(k, exp2_pair({end.x - sum.x, end.y - sum.y}));
      }
    }
    __syncthreads();
  }
  __device__ static float2 exp2_pair(float2 x) {
    return {exp2_approx(x.x), exp2_approx(x.y)};
  }

  // Two rows and two keys of a diagonal block.
  __device__ void diagonal() {
    const auto pair = [&](const bf16_t* rows, int i, int d) {
      return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(rows + i * kStride + d));
    };
#pragma unroll 2
    for (int d = 0; d < kSlab; d += 2) {
      float2 q[2], k[2], a[2], b[2];
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        q[x] = pair(shared_.queries, row_ + x, d);
        k[x] = pair(shared_.keys, key_ + x, d);
        a[x] = *reinterpret_cast<const float2*>(shared_.sums + (row_ + x) * kSumStride + d);
        b[x] = *reinterpret_cast<const float2*>(shared_.sums + (key_ + x) * kSumStride + d);
      }
#pragma unroll
      for (int x = 0; x < 2; ++x)
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          float& sum = sums_[0][0][2 * x + y];
          sum = fmaf(q[x].x * k[y].x, exp2_approx(a[x].x - b[y].x), sum);
          sum = fmaf(q[x].y * k[y].y, exp2_approx(a[x].y - b[y].y), sum);
        }
    }
  }
  __device__ void write_diagonal() const {
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const int i = row_ + x;
      const float low = key_ <= i ? sums_[0][0][2 * x] : 0.f, high = key_ + 1 <= i ? sums_[0][0][2 * x + 1] : 0.f;
      *reinterpret_cast<uint32_t*>(scores_ + i * kChunk + key_) = pack_bf16(low, high);
      // Above the diagonal: the tile's mirror image.
      if (row_ != key_) *reinterpret_cast<uint32_t*>(scores_ + (key_ + x) * kChunk + row_) = 0;
    }
  }

  // A pair of blocks: rows of the later one, keys of the earlier one.
  __device__ static int later(int pair) {
    return pair < 3 ? pair + 1 : pair == 3 ? 2 : 3;
  }
  __device__ static int earlier(int pair) {
    return pair < 3 ? pair : pair == 4 ? 1 : 0;
  }
  __device__ void below(int pair, float (&sums)[2][4]) {
#pragma unroll
    for (int d = 0; d < kSlab; d += 16) {
      uint32_t a[4], b[4];
      load_a(a, shared_.near_queries + later(pair) * kBlock * kStride + d, kStride);
      load_b_transposed(b, shared_.near_keys + earlier(pair) * kBlock * kStride + d, kStride);
      if (pair >= 3) {  // blocks lie between
        const float* const by = shared_.between + (pair - 3) * kSlab + d + threadIdx.x % 4 * 2;
        const float2 low = *reinterpret_cast<const float2*>(by), high = *reinterpret_cast<const float2*>(by + 8);
        b[0] = weighted_pair(b[0], low), b[1] = weighted_pair(b[1], high);
        b[2] = weighted_pair(b[2], low), b[3] = weighted_pair(b[3], high);
      }
      mma_bf16(sums[0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_bf16(sums[1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
  __device__ void write_below(int pair, const float (&sums)[2][4]) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<uint32_t*>(scores_ + (later(pair) * kBlock + g + half * 8) * kChunk + earlier(pair) * kBlock +
                                     n * 8 + 2 * t) = pack_bf16(sums[n][2 * half], sums[n][2 * half + 1]);
  }

  const RecurrentCall& call_;
  const Cell& cell_;
  Shared& shared_;
  int j_, key_head_, query_head_;
  bf16_t *scores_, *scaled_queries_, *scaled_keys_;
  float* whole_;
  int block_, row_, key_, pair_;
  float sums_[2][2][4] = {};
};

template <int kDim, bool kAligned>
__global__ void __launch_bounds__(kThreads) channel_kernel(const __grid_constant__ RecurrentCall call) {
  const int cell_index = call.first_cell + static_cast<int>(blockIdx.x), j = blockIdx.y;
  const ChunkCell at = call.pass.cells[cell_index];
  const SequenceSpans& sequence = call.pass.sequences[at.seq];
  const int position = first_position(call, sequence);
  const int stands = mark_at(reinterpret_cast<const int*>(state_of(call, sequence.slot, j)), position).stands;
  const Cell cell = cell_at(sequence, at.index, position, stands);
  using Scores = ChannelScores<kDim, kAligned>;
  extern __shared__ __align__(16) char shared[];
  Scores(call, cell, cell_index, *reinterpret_cast<typename Scores::Shared*>(shared)).run();
}

}  // namespace

void channel_scores(CudaContext& context, const RecurrentCall& call, int cells, bool aligned) {
  const dim3 grid(static_cast<unsigned>(cells), static_cast<unsigned>(call.n));
  with_key_dim(call.dk, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    constexpr int kBytes = static_cast<int>(sizeof(typename ChannelScores<kDim, true>::Shared));
    const auto kernel = aligned ? channel_kernel<kDim, true> : channel_kernel<kDim, false>;
    allow_shared(context, kernel, kBytes);
    kernel<<<grid, kThreads, kBytes, context.stream()>>>(call);
    HAY_LAUNCHED();
  });
}

}  // namespace hayfork::engine::cuda
