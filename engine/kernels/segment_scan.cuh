// The walks over segments (segment.cuh) with products that every device since compute capability 8.0 has.
#pragma once

#include "engine/kernels/segment.cuh"
#include "engine/kernels/state_tile.cuh"

namespace hayfork::engine::cuda {

constexpr int kSegmentThreads = 256;
constexpr int kTileStride = kColumns + kPad;  // of V, P, S in shared memory

// Shared memory of one kernel, in bytes: what every stage holds, and the rest.
template <int kDim, Form kForm, bool kAnswers>
struct SegmentLayout {
  static constexpr int kRows = kChunk * (kDim + kPad) * 2, kTile = kChunk * kTileStride * 2;
  static constexpr int kKeys = 0, kValues = kRows, kGates = kValues + kTile,
                       kScores = kGates + (kForm == Form::channel ? kDim * 4 : static_cast<int>(kGateBytes)),
                       kStage = kScores + (kForm == Form::channel && kAnswers ? kTile : 0);
  static constexpr int kState = 0, kQueries = kAnswers ? kDim * kTileStride * 2 : 0,
                       kProducts = kQueries + (kAnswers ? kRows : 0),
                       kFixed = kProducts + (kForm == Form::scalar && kAnswers ? kTile : 0);
  static constexpr int kStages = kAnswers || kDim > 128 ? 2 : 3;
  static constexpr int kBytes = kFixed + kStages * kStage;
};

template <int kDim, Form kForm, bool kAligned, bool kAnswers>
class Segment : public SegmentWalk<Segment<kDim, kForm, kAligned, kAnswers>, StateTile<kDim, kColumns>, kForm> {
  using L = SegmentLayout<kDim, kForm, kAnswers>;
  using State = StateTile<kDim, kColumns>;
  using Base = SegmentWalk<Segment, State, kForm>;
  friend Base;
  using Base::call_, Base::cell, Base::cell_index, Base::column_, Base::j_, Base::key_head_, Base::local_,
      Base::queries, Base::start_, Base::sums_, Base::value_head_;
  static constexpr int kStride = kDim + kPad, kStages = L::kStages;

 public:
  static constexpr bool kAnswering = kAnswers;
  static constexpr int kLeastDim = 16, kThreads = kSegmentThreads, kBlocks = kAnswers && kDim > 128 ? 1 : 2,
                       kBytes = L::kBytes;

  __device__ Segment(const RecurrentCall& call, const SequenceSpans& sequence, const Piece& piece, int j, int slice,
                     char* shared)
      : Base(call, sequence, piece, j, slice),
        shared_(shared),
        warp_(threadIdx.x / 32),
        g_(threadIdx.x % 32 / 4),
        t_(threadIdx.x % 4) {}

 private:
  __device__ bf16_t* tile(int offset) const { return reinterpret_cast<bf16_t*>(shared_ + offset); }
  __device__ bf16_t* staged(int stage, int offset) const { return tile(L::kFixed + stage * L::kStage + offset); }
  __device__ const float* gates(int stage) const { return reinterpret_cast<const float*>(staged(stage, L::kGates)); }

  __device__ void begin() const {
    fetch(0, 0);
    fetch_queries(0);
  }
  __device__ static void synchronise() { __syncthreads(); }
  __device__ void fetch(int c, int stage) const {
    const Cell at = cell(c);
    const char* const mine = state_scratch(call_, cell_index(c), j_, kDim);
    if constexpr (kForm == Form::channel) {
      const bf16_t* scaled = reinterpret_cast<const bf16_t*>(mine + kGateBytes) + kChunk * kDim;
      load_even_rows<kChunk, kDim, kSegmentThreads>(staged(stage, L::kKeys), scaled, kDim, kDim);
      if constexpr (kAnswers)
        load_even_rows<kChunk, kChunk, kSegmentThreads>(staged(stage, L::kScores),
                                                        scores_of(call_, cell_index(c), j_, false), kChunk, kChunk);
    } else {
      if (kAligned && at.is_whole()) {
        load_even_rows<kChunk, kDim, kSegmentThreads>(staged(stage, L::kKeys), key_row(call_, at, 0, key_head_),
                                                      call_.k_stride, call_.dk);
      } else {
        load_rows<kChunk, kDim, kAligned, kSegmentThreads>(staged(stage, L::kKeys), call_.dk, call_.k,
                                                           [&](int i) { return key_row(call_, at, i, key_head_); });
      }
    }
    constexpr int kGateFloats = kForm == Form::channel ? kDim : 2 * kChunk;
    const char* const from = kForm == Form::channel ? mine + kGateBytes + kChunk * kDim * 4 : mine;
    if (threadIdx.x < kGateFloats / 4)
      copy_async_16(shared_address(reinterpret_cast<char*>(staged(stage, L::kGates)) + threadIdx.x * 16),
                    from + threadIdx.x * 16, 16);
    const int width = call_.dv - column_;
    if (kAligned && at.is_whole()) {
      load_even_rows<kChunk, kColumns, kSegmentThreads>(
          staged(stage, L::kValues), value_row(call_, at, 0, value_head_) + column_, call_.v_stride, width);
    } else {
      load_rows<kChunk, kColumns, kAligned, kSegmentThreads>(staged(stage, L::kValues), width, call_.v, [&](int i) {
        const bf16_t* row = value_row(call_, at, i, value_head_);
        return row == nullptr ? row : row + column_;
      });
    }
  }
  __device__ void fetch_queries(int c) const {
    bf16_t* const to = tile(L::kQueries);
    if constexpr (kForm == Form::channel) {
      const char* const mine = state_scratch(call_, cell_index(c), j_, kDim);
      load_even_rows<kChunk, kDim, kSegmentThreads>(to, reinterpret_cast<const bf16_t*>(mine + kGateBytes), kDim, kDim);
    } else {
      const Cell at = cell(c);
      const bf16_t* const q = queries();
      if (kAligned && at.is_whole()) {
        load_even_rows<kChunk, kDim, kSegmentThreads>(to, q + at.row(0) * call_.q_stride, call_.q_stride, call_.dk);
        return;
      }
      load_rows<kChunk, kDim, kAligned, kSegmentThreads>(to, call_.dk, call_.k, [&](int i) -> const bf16_t* {
        const int row = asking_row(call_, at, i, false);
        return row < 0 ? nullptr : q + row * call_.q_stride;
      });
    }
  }

  // ---- the state
  // What the chunk's queries see of earlier chunks, for the tensor cores.
  __device__ void publish() const {
    bf16_t* const s = tile(L::kState);
    float kept[State::kDown][2];
#pragma unroll
    for (int m = 0; m < State::kDown; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) kept[m][half] = exp2_approx(sums_[m][half]);
    State::for_tile([&](int m, int n, int half, int at) {
      const float* const start = &start_.x[m][n][2 * half];
      const float* const local = &local_.x[m][n][2 * half];
      *reinterpret_cast<uint32_t*>(s + at) =
          pack_bf16(fmaf(kept[m][half], start[0], local[0]), fmaf(kept[m][half], start[1], local[1]));
    });
  }

  // ---- products
  // L ← e^{end} L + (K ⊙ weight)ᵀ V.
  __device__ void add(int stage) {
    const float* const sums = gates(stage);
    local_.scale([&](int m, int half) {
      const float end = sums[kForm == Form::channel ? State::row(m, half) : kChunk - 1];
      sums_[m][half] += end;
      return exp2_approx(end);
    });
    local_.add(staged(stage, L::kKeys), staged(stage, L::kValues), [&](uint32_t(&a)[4], int k) {
      if constexpr (kForm == Form::scalar) Base::weigh_keys(a, sums, k);
    });
  }

  // Rows 32 · (warp mod 2) … and columns 16 · (warp / 2) … of the 64 × 64 products.
  __device__ int row_of(int m, int half) const {
    return warp_ % 2 * 32 + m * 16 + g_ + half * 8;
  }
  __device__ int column_of(int n) const {
    return warp_ / 2 * 16 + n * 8 + 2 * t_;
  }

  __device__ void chunk(int c, int stage, bool more) {
    const float* const sums = gates(stage);
    const bf16_t* const queries = tile(L::kQueries);
    const bf16_t* const keys = staged(stage, L::kKeys);
    const bf16_t* const values = staged(stage, L::kValues);
    bf16_t* const scores = kForm == Form::channel ? staged(stage, L::kScores) : tile(L::kProducts);
    const int across = warp_ / 2 * 16;
    float out[2][2][4] = {}, qk[2][2][4] = {};
#pragma unroll 4
    for (int k = 0; k < kDim; k += 16) {
      uint32_t a[2][4], s[4], b[4];
      load_b(s, tile(L::kState) + k * kTileStride + across, kTileStride);
      if constexpr (kForm == Form::scalar) load_b_transposed(b, keys + across * kStride + k, kStride);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        load_a(a[m], queries + (warp_ % 2 * 32 + m * 16) * kStride + k, kStride);
        mma_bf16(out[m][0], a[m][0], a[m][1], a[m][2], a[m][3], s[0], s[1]);
        mma_bf16(out[m][1], a[m][0], a[m][1], a[m][2], a[m][3], s[2], s[3]);
        if constexpr (kForm == Form::scalar) {
          if (across > warp_ % 2 * 32 + m * 16) continue;  // above the diagonal
          mma_bf16(qk[m][0], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
          mma_bf16(qk[m][1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
        }
      }
    }
    if constexpr (kForm == Form::scalar) {
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int i = row_of(m, half);
          const float decay = exp2_approx(sums[i]);
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const int x = column_of(n);
            *reinterpret_cast<uint32_t*>(scores + i * kTileStride + x) =
                Base::score_pair(i, x, {qk[m][n][2 * half], qk[m][n][2 * half + 1]}, sums);
            out[m][n][2 * half] *= decay, out[m][n][2 * half + 1] *= decay;
          }
        }
    }
    __syncthreads();  // the scores are here; the queries and the state have been used
    if (more) fetch_queries(c + 1);
    copy_async_commit();
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      if (k > warp_ % 2 * 32 + 16) continue;
      uint32_t b[4];
      load_b(b, values + k * kTileStride + across, kTileStride);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        if (k > warp_ % 2 * 32 + m * 16) continue;
        uint32_t a[4];
        load_a(a, scores + (warp_ % 2 * 32 + m * 16) * kTileStride + k, kTileStride);
        mma_bf16(out[m][0], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_bf16(out[m][1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
    write(cell(c), out, values);
    if (more) add(stage);
  }

  __device__ void write(const Cell& at, const float (&out)[2][2][4], const bf16_t* values) const {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = row_of(m, half);
        if (i < at.fresh || i >= at.hi) continue;
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const int x = column_of(n);
          const auto* const v = reinterpret_cast<const __nv_bfloat162*>(values + i * kTileStride + x);
          Base::template write_pair<kAligned>(at, i, x, {out[m][n][2 * half], out[m][n][2 * half + 1]},
                                              __bfloat1622float2(*v));
        }
      }
  }

  char* shared_;
  int warp_, g_, t_;
};

}  // namespace hayfork::engine::cuda
