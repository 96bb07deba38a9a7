// The walks over segments (segment.cuh) on Hopper: a block holds 64 columns of one state in registers, a warpgroup 64
// or 128 of its rows, and the products are wgmma's.
#pragma once

#include "engine/kernels/panels_sm90.cuh"
#include "engine/kernels/segment.cuh"

namespace hayfork::engine::cuda::sm90 {

// Shared memory of one kernel, in bytes: what every stage holds, and the rest.
template <int kDim, Form kForm, bool kAnswers>
struct SegmentLayout {
  static constexpr int kGroups = kDim > 128 ? 2 : 1, kThreads = kGroups * 128, kPanels = kDim / 64;
  static constexpr int kKeys = 0, kQueries = kPanels * kPanelBytes, kValues = kQueries + (kAnswers ? kQueries : 0),
                       kScores = kValues + kPanelBytes,
                       kGates = kScores + (kForm == Form::channel && kAnswers ? kPanelBytes : 0),
                       kStage = kGates + 1024;  // two kChunk or kDim float32; panels lie at multiples of 1,024
  static constexpr int kState = 0, kPartial = kAnswers ? kPanels * kPanelBytes : 0,
                       kFixed = kPartial + (kAnswers && kGroups > 1 ? kChunk * kColumns * 4 : 0);
  static constexpr int kStages = kAnswers ? 2 : 3;
  static constexpr int kBytes = 1024 + kFixed + kStages * kStage;
  static constexpr int kBlocks = kGroups > 1 ? 1 : kAnswers ? 2 : 3;  // a multiprocessor
};

// Rows of the state in a warpgroup, 64 a tile.
template <int kDim, Form kForm, bool kAnswers>
using StateOf = SegmentState<kDim / 64 / SegmentLayout<kDim, kForm, kAnswers>::kGroups>;

template <int kDim, Form kForm, bool kAligned, bool kAnswers>
class Segment : public SegmentWalk<Segment<kDim, kForm, kAligned, kAnswers>, StateOf<kDim, kForm, kAnswers>, kForm> {
  using L = SegmentLayout<kDim, kForm, kAnswers>;
  using State = StateOf<kDim, kForm, kAnswers>;
  using Base = SegmentWalk<Segment, State, kForm>;
  friend Base;
  using Base::call_, Base::cell, Base::cell_index, Base::column_, Base::j_, Base::key_head_, Base::local_,
      Base::queries, Base::start_, Base::sums_, Base::value_head_;
  static constexpr int kTiles = State::kDown, kStages = L::kStages;

 public:
  static constexpr bool kAnswering = kAnswers;
  static constexpr int kLeastDim = 64, kThreads = L::kThreads, kBlocks = L::kBlocks, kBytes = L::kBytes;

  __device__ Segment(const RecurrentCall& call, const SequenceSpans& sequence, const Piece& piece, int j, int slice,
                     char* shared)
      : Base(call, sequence, piece, j, slice),
        shared_(shared + (1024 - shared_address(shared) % 1024) % 1024),
        base_(shared_address(shared_)),
        group_(threadIdx.x / 128),
        warp_(threadIdx.x / 32 % 4),
        g_(threadIdx.x % 32 / 4),
        t_(threadIdx.x % 4) {}

 private:
  __device__ uint32_t staged(int stage, int offset) const { return base_ + L::kFixed + stage * L::kStage + offset; }
  __device__ const float* gates(int stage) const {
    return reinterpret_cast<const float*>(shared_ + L::kFixed + stage * L::kStage + L::kGates);
  }

  __device__ static void synchronise() {
    fence_async_proxy();
    __syncthreads();
  }

  // ---- a chunk into shared memory
  __device__ void begin() const { fetch(0, 0); }
  template <int kWide, bool kDirect, typename Source>
  __device__ void fetch_rows(uint32_t to, int width, Source source) const {
    fetch_panels<L::kThreads, kWide, kDirect>(to, width, call_.k, source);
  }
  template <int kWide>
  __device__ void fetch_even(uint32_t to, const bf16_t* from, int64_t stride, int width) const {
    fetch_rows<kWide, kAligned>(to, width, [&](int i) { return from + i * stride; });
  }
  __device__ void fetch(int c, int stage) const {
    const Cell at = cell(c);
    const char* const mine = state_scratch(call_, cell_index(c), j_, kDim);
    if constexpr (kForm == Form::channel) {
      const auto* const scaled = reinterpret_cast<const bf16_t*>(mine + kGateBytes);
      fetch_rows<L::kPanels, true>(staged(stage, L::kKeys), kDim, [&](int i) { return scaled + (kChunk + i) * kDim; });
      if constexpr (kAnswers) {
        const bf16_t* const scores = scores_of(call_, cell_index(c), j_, false);
        fetch_rows<L::kPanels, true>(staged(stage, L::kQueries), kDim, [&](int i) { return scaled + i * kDim; });
        fetch_rows<1, true>(staged(stage, L::kScores), kChunk, [&](int i) { return scores + i * kChunk; });
      }
    } else {
      const bf16_t* const q = queries();
      if (at.is_whole()) {
        fetch_even<L::kPanels>(staged(stage, L::kKeys), key_row(call_, at, 0, key_head_), call_.k_stride, call_.dk);
        if constexpr (kAnswers)
          fetch_even<L::kPanels>(staged(stage, L::kQueries), q + at.row(0) * call_.q_stride, call_.q_stride, call_.dk);
      } else {
        fetch_rows<L::kPanels, kAligned>(staged(stage, L::kKeys), call_.dk,
                                         [&](int i) { return key_row(call_, at, i, key_head_); });
        if constexpr (kAnswers)
          fetch_rows<L::kPanels, kAligned>(staged(stage, L::kQueries), call_.dk, [&](int i) -> const bf16_t* {
            return i >= at.fresh && i < at.hi ? q + at.row(i) * call_.q_stride : nullptr;
          });
      }
    }
    if (at.is_whole()) {
      fetch_even<1>(staged(stage, L::kValues), value_row(call_, at, 0, value_head_) + column_, call_.v_stride,
                    call_.dv - column_);
    } else {
      fetch_rows<1, kAligned>(staged(stage, L::kValues), call_.dv - column_, [&](int i) {
        const bf16_t* const row = value_row(call_, at, i, value_head_);
        return row == nullptr ? row : row + column_;
      });
    }
    constexpr int kGateFloats = kForm == Form::channel ? kDim : 2 * kChunk;
    const char* const from = kForm == Form::channel ? mine + kGateBytes + kChunk * kDim * 4 : mine;
    if (threadIdx.x < kGateFloats / 4)
      copy_async_16(staged(stage, L::kGates) + threadIdx.x * 16, from + threadIdx.x * 16, 16);
  }

  // ---- the state
  // What the chunk's queries see of earlier chunks, for the tensor cores: rows of 64 columns.
  __device__ void publish() const {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float kept = exp2_approx(sums_[m][half]);
        char* const row = shared_ + L::kState + State::row(m, half) * 128 + t_ * 4;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const int e = 4 * n + 2 * half;
          *reinterpret_cast<uint32_t*>(row + (n ^ g_) * 16) =
              pack_bf16(fmaf(kept, start_.x[m][e], local_.x[m][e]), fmaf(kept, start_.x[m][e + 1], local_.x[m][e + 1]));
        }
      }
  }

  // ---- products
  // L ← e^{end} L + (K ⊙ weight)ᵀ V in two steps: what the products need, and the products, under way when it returns.
  // Accumulators must not be touched between the fence before products and the wait for them.
  using Fragments = uint32_t[kTiles][4][4];
  __device__ void prepare(int stage, Fragments& a) {
    const float* const sums = gates(stage);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const uint32_t panel = staged(stage, L::kKeys) + (group_ * kTiles + m) * kPanelBytes;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        load_columns(a[m][k], panel, warp_, k);
        if constexpr (kForm == Form::scalar) Base::weigh_keys(a[m][k], sums, k * 16);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float end = sums[kForm == Form::channel ? State::row(m, half) : kChunk - 1];
        const float kept = exp2_approx(end);
        sums_[m][half] += end;
#pragma unroll
        for (int n = 0; n < 8; ++n) local_.x[m][4 * n + 2 * half] *= kept, local_.x[m][4 * n + 2 * half + 1] *= kept;
      }
    }
  }
  __device__ void add(int stage, const Fragments& a) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma_rs(local_.x[m], a[m][k], rows_of(staged(stage, L::kValues), k));
    wgmma_commit();
  }

  __device__ void add(int stage) {
    Fragments a;
    prepare(stage, a);
    wgmma_fence();
    add(stage, a);
    wgmma_wait<0>();
  }

  __device__ int row_of(int half) const {
    return warp_ * 16 + g_ + half * 8;
  }

  __device__ void chunk(int c, int stage, bool more) {
    if (more) {
      answer_chunk<true>(c, stage);
    } else {
      answer_chunk<false>(c, stage);
    }
  }
  // A warpgroup multiplies its own rows of S, and with several each its share of the keys.
  template <bool kMore>
  __device__ void answer_chunk(int c, int stage) {
    const uint32_t queries = staged(stage, L::kQueries), values = staged(stage, L::kValues);
    constexpr int kSteps = kTiles * 4, kKeySteps = 4 / L::kGroups;
    float out[32] = {};
    uint32_t p[4][4];
    if constexpr (kForm == Form::scalar) {
      float qk[32] = {};
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k)
        wgmma_ss(qk, columns_of(queries, k), columns_of(staged(stage, L::kKeys), k), true);
      wgmma_commit();
      from_state(out, queries, kSteps);
      wgmma_wait<1>();
      score(p, qk, gates(stage));
    } else {
      wgmma_fence();
      from_state(out, queries, kSteps);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (k <= warp_) {
          load_panel_rows(p[k], staged(stage, L::kScores), warp_, k);
        } else {  // above the diagonal
          p[k][0] = p[k][1] = p[k][2] = p[k][3] = 0;
        }
      }
    }
    wgmma_wait<0>();
    if constexpr (kForm == Form::scalar) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float decay = exp2_approx(gates(stage)[row_of(half)]);
#pragma unroll
        for (int n = 0; n < 8; ++n) out[4 * n + 2 * half] *= decay, out[4 * n + 2 * half + 1] *= decay;
      }
    }
    Fragments a;
    if constexpr (kMore) prepare(stage, a);
    if constexpr (L::kGroups > 1) {
#pragma unroll
      for (int k = 0; k < kKeySteps; ++k)
#pragma unroll
        for (int x = 0; x < 4; ++x) p[k][x] = group_ == 0 ? p[k][x] : p[k + kKeySteps][x];
    }
    __syncthreads();  // S has been read
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeySteps; ++k)
      wgmma_rs(out, p[k], rows_of(values, k + (L::kGroups > 1 ? group_ * kKeySteps : 0)));
    wgmma_commit();
    if constexpr (kMore) {
      add(stage, a);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    write(cell(c), out, values);
    wgmma_wait<0>();
  }
  __device__ void from_state(float (&out)[32], uint32_t queries, int steps) const {
#pragma unroll
    for (int k = 0; k < kTiles * 4; ++k)
      wgmma_ss_rows(out, columns_of(queries, group_ * steps + k), rows_of(base_ + L::kState, group_ * steps + k), true);
    wgmma_commit();
  }
  // P as the first operand of P V.
  __device__ void score(uint32_t (&p)[4][4], const float (&qk)[32], const float* sums) const {
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool zero = 8 * n >= warp_ * 16 + 16;  // above the diagonal
        p[n / 2][n % 2 * 2 + half] = zero ? 0
                                          : Base::score_pair(row_of(half), 8 * n + 2 * t_,
                                                             {qk[4 * n + 2 * half], qk[4 * n + 2 * half + 1]}, sums);
      }
    }
  }

  // With two warpgroups: the sums of both, half of the columns each.
  __device__ void write(const Cell& at, const float (&out)[32], uint32_t values) const {
    constexpr int kTiles8 = 8 / L::kGroups;  // n-tiles of a warpgroup
    float* const partial = reinterpret_cast<float*>(shared_ + L::kPartial) + threadIdx.x % 128;
    if constexpr (L::kGroups > 1) {
#pragma unroll
      for (int e = 0; e < 16; ++e) partial[((1 - group_) * 16 + e) * 128] = group_ == 0 ? out[16 + e] : out[e];
      __syncthreads();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row_of(half);
      if (i < at.fresh || i >= at.hi) continue;
#pragma unroll
      for (int tile = 0; tile < kTiles8; ++tile) {
        const int e = 4 * tile + 2 * half, n = tile + (L::kGroups > 1 ? group_ * kTiles8 : 0);
        float2 y = {out[e], out[e + 1]};
        if constexpr (L::kGroups > 1) {
          if (group_ == 1) y = {out[16 + e], out[16 + e + 1]};
          y.x += partial[(group_ * 16 + e) * 128];
          y.y += partial[(group_ * 16 + e + 1) * 128];
        }
        const auto* const v =
            reinterpret_cast<const __nv_bfloat162*>(shared_ + (values - base_) + i * 128 + (n ^ g_) * 16 + t_ * 4);
        Base::template write_pair<kAligned>(at, i, 8 * n + 2 * t_, y, __bfloat1622float2(*v));
      }
    }
  }

  char* shared_;
  uint32_t base_;
  int group_, warp_, g_, t_;
};

}  // namespace hayfork::engine::cuda::sm90
