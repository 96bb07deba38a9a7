// Linear attention with decay over long prompts. The positions are cut into segments of
// kSegmentChunks chunks on the absolute grid, so that a prompt fills the device although a state is a chain:
//   local:   L of every segment but the last, from zero: L ← e^{G_end} L + Kᵀ (e^{G_end − G} V)   in parallel
//   join:    S of every segment's begin, S ← e^{G_segment} S + L                                  in order
//   answer:  O = e^{G} Q (e^{G_before} S + L) + P V, chunk by chunk from the segment's begin       in parallel
// The state kept for the next pass is (S, L) of the segment that is open and the inputs of the open chunk:
// every product and sum is the same wherever a pass begins or ends. Two walks do it, segment_scan.cuh on any device
// and segment_sm90.cuh with Hopper's products; here is what both know of a segment.
#pragma once

#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {

constexpr int kColumns = 64;  // of a state, a block
static_assert(kColumns == kChunk && kColumns % kStepColumns == 0);

// One segment's part of a pass, and a block's columns of a state.
class SegmentPart {
 public:
  __device__ SegmentPart(const RecurrentCall& call, const SequenceSpans& sequence, const Piece& piece, int j, int slice)
      : call_(call),
        sequence_(sequence),
        piece_(piece),
        j_(j),
        column_(slice * kColumns),
        key_head_(j_ * call.n_k / call.n),
        value_head_(j_ * call.n_v / call.n),
        position_(first_position(call, sequence)) {
    const Mark mark =
        mark_at(reinterpret_cast<const int*>(state_of(call, sequence.slot, j_)) + column_ / kStepColumns, position_);
    stands_ = mark.stands;
    first_local_ = piece.index == 0 && mark.has_local;
  }

 protected:
  __device__ int cell_index(int c) const { return sequence_.first_cell + piece_.first_cell + c; }
  __device__ Cell cell(int c) const {
    const int stands = piece_.index == 0 ? stands_ : 0;  // later segments begin after it
    return cell_at(sequence_, call_.pass.cells[cell_index(c)].index, position_, stands);
  }
  __device__ const bf16_t* queries() const {
    return static_cast<const bf16_t*>(call_.q) + j_ * call_.n_q / call_.n_out * call_.dk;
  }
  // The matrix that the segment's L begins with, where it does not begin with zero.
  __device__ const float* first_local() const {
    return !kept_here() ? slot_of(call_, sequence_, sequence_.n_slots - 1, j_)  // the join put it there
                        : kept_local(call_, sequence_.slot, j_);
  }
  __device__ bool kept_here() const { return sequence_.n_slots == 0; }
  // Sums of log decays since S begin with this in row `row` of the state.
  __device__ float first_sum(int row) const {
    if (!first_local_ || row >= call_.dk) return 0;
    return kept_sums(call_, sequence_.slot, j_)[call_.form == Form::channel ? row : 0];
  }
  // Column x of the slice.
  __device__ float skip_of(int x) const {
    if (!call_.skip_per_channel) return call_.skip[j_];
    return column_ + x < call_.dv ? call_.skip[static_cast<int64_t>(j_) * call_.dv + column_ + x] : 0.f;
  }
  // Columns x and x + 1 of the slice at row i of the chunk; v: its values there.
  template <bool kAligned>
  __device__ void write_pair(const Cell& at, int i, int x, float2 y, float2 v) const {
    if (call_.skip != nullptr) {
      y.x = fmaf(skip_of(x), v.x, y.x);
      y.y = fmaf(skip_of(x + 1), v.y, y.y);
    }
    bf16_t* const to =
        static_cast<bf16_t*>(call_.o) + at.row(i) * call_.o_stride + static_cast<int64_t>(j_) * call_.dv + column_ + x;
    if (kAligned) {
      if (column_ + x < call_.dv) *reinterpret_cast<uint32_t*>(to) = pack_bf16(y.x, y.y);
    } else {
      if (column_ + x < call_.dv) to[0] = __float2bfloat16_rn(y.x);
      if (column_ + x + 1 < call_.dv) to[1] = __float2bfloat16_rn(y.y);
    }
  }
  // P at row i, columns x and x + 1, of q · k; sums and scales: the chunk's gates.
  __device__ static uint32_t score_pair(int i, int x, float2 qk, const float* sums) {
    const float2 before = *reinterpret_cast<const float2*>(sums + x);
    const float2 scale = *reinterpret_cast<const float2*>(sums + kChunk + x);
    return pack_bf16(x <= i ? qk.x * exp2_approx(sums[i] - before.x) * scale.x : 0.f,
                     x + 1 <= i ? qk.y * exp2_approx(sums[i] - before.y) * scale.y : 0.f);
  }
  // The first operand's fragment of K for rows k … k + 15, each times e^{G_end − G} and the value's scale.
  __device__ static void weigh_keys(uint32_t (&a)[4], const float* sums, int k) {
    const float2 low = weights(sums, k + static_cast<int>(threadIdx.x) % 4 * 2);
    const float2 high = weights(sums, k + static_cast<int>(threadIdx.x) % 4 * 2 + 8);
    a[0] = weighted_pair(a[0], low), a[1] = weighted_pair(a[1], low);
    a[2] = weighted_pair(a[2], high), a[3] = weighted_pair(a[3], high);
  }

  const RecurrentCall& call_;
  const SequenceSpans& sequence_;
  const Piece& piece_;
  int j_, column_, key_head_, value_head_, position_, stands_;
  bool first_local_;

 private:
  __device__ static float2 weights(const float* sums, int row) {
    const float end = sums[kChunk - 1];
    const float2 sum = *reinterpret_cast<const float2*>(sums + row);
    const float2 scale = *reinterpret_cast<const float2*>(sums + kChunk + row);
    return {exp2_approx(end - sum.x) * scale.x, exp2_approx(end - sum.y) * scale.y};
  }
};

// The walk over a segment's chunks. Self derives from it and knows how its device multiplies:
//   kStages: chunks that are in shared memory or on their way there; two of answer().
//   fetch(c, stage): asks for chunk c. begin(): for the first chunk of answer() and its queries. The walk commits.
//   synchronise(): what each thread has waited for is there for all, and everybody is done with the chunk before.
//   add(stage): L ← e^{end} L + (K ⊙ weight)ᵀ V.
//   publish(): S and L as the next chunk's queries see them, into shared memory.
//   chunk(c, stage, more): answers it and, where more follow, adds it.
// State: kDown m-tiles of rows a thread, row(m, half), first_tile() of the columns, load, store, clear.
template <typename Self, typename State, Form kForm>
class SegmentWalk : protected SegmentPart {
 public:
  using SegmentPart::SegmentPart;

  // Everything of the segment that lies before its end goes into L, which ends up in the scratch.
  __device__ void sum_up() {
    constexpr int kStages = Self::kStages;
    load_local(kept_local(call_, sequence_.slot, j_));
    load_sums();
    const int n = piece_.n_cells;
#pragma unroll
    for (int c = 0; c + 1 < kStages; ++c) {
      if (c < n) self().fetch(c, c);
      copy_async_commit();
    }
    int stage = 0, free_stage = kStages - 1;  // of this chunk; of the one before
    for (int c = 0; c < n; ++c) {
      copy_async_wait<kStages - 2>();
      self().synchronise();
      if (c + kStages - 1 < n) self().fetch(c + kStages - 1, free_stage);
      copy_async_commit();
      self().add(stage);
      free_stage = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    local_.store(slot_of(call_, sequence_, piece_.index, j_), call_.dk, call_.dv, column_);
    if (column_ == 0) store_sums(slot_sums(call_, sequence_, piece_.index, j_));
  }

  __device__ void answer() {
    static_assert(Self::kStages == 2 || !Self::kAnswering);
    const bool last = piece_.is_last(sequence_);
    load_local(first_local());
    float* const kept = kept_state(call_, sequence_.slot, j_);
    if (kept_here() && position_ == 0) {
      start_.clear();
      start_.store(kept, call_.dk, call_.dv, column_);
    } else {
      start_.load(last ? kept : slot_of(call_, sequence_, piece_.index, j_), call_.dk, call_.dv, column_);
    }
    load_sums();
    const int n = piece_.n_cells;
    self().begin();
    copy_async_commit();
    self().publish();
    for (int c = 0; c < n; ++c) {
      const int stage = c % 2;
      copy_async_wait<0>();
      self().synchronise();
      if (c + 1 < n) self().fetch(c + 1, 1 - stage);
      copy_async_commit();
      self().chunk(c, stage, c + 1 < n);
      if (c + 1 < n) self().publish();
    }
    if (last && n > 1) local_.store(kept_local(call_, sequence_.slot, j_), call_.dk, call_.dv, column_);
  }

 protected:
  State start_, local_;          // S at the segment's begin, L
  float sums_[State::kDown][2];  // of log decays since S, of this thread's rows

 private:
  __device__ Self& self() {
    return static_cast<Self&>(*this);
  }
  __device__ void load_local(const float* from) {
    if (first_local_) {
      local_.load(from, call_.dk, call_.dv, column_);
    } else {
      local_.clear();
    }
  }
  __device__ void load_sums() {
#pragma unroll
    for (int m = 0; m < State::kDown; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) sums_[m][half] = first_sum(State::row(m, half));
  }
  __device__ void store_sums(float* to) const {
    if constexpr (kForm == Form::channel) {
      if (threadIdx.x % 4 != 0 || State::first_tile() != 0) return;
#pragma unroll
      for (int m = 0; m < State::kDown; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          if (State::row(m, half) < call_.dk) to[State::row(m, half)] = sums_[m][half];
    } else {
      if (threadIdx.x == 0) *to = sums_[0][0];
    }
  }
};

template <typename Segment>
__global__ void __launch_bounds__(Segment::kThreads, Segment::kBlocks)
    segment_kernel(const __grid_constant__ RecurrentCall call, int sequences) {
  // Slices of a head, then heads, then segments: what lies together in memory is read together.
  const int slices = (call.dv + kColumns - 1) / kColumns, index = static_cast<int>(blockIdx.x);
  const int slice = index % slices, j = index / slices % call.n, item = index / slices / call.n;
  const SequenceSpans sequence = call.pass.sequences[call.first_sequence + item % sequences];
  const Piece piece = piece_of(call, sequence, item / sequences);
  if (piece.n_cells <= 0) return;
  extern __shared__ __align__(16) char shared[];
  Segment segment(call, sequence, piece, j, slice, shared);
  if constexpr (Segment::kAnswering) {
    segment.answer();
  } else {
    if (!piece.is_last(sequence)) segment.sum_up();
  }
}

// Segment<kDim, kForm, kAligned, kAnswers>, and of it kLeastDim, kThreads, kBlocks (a multiprocessor) and kBytes of
// shared memory.
template <template <int, Form, bool, bool> typename Segment, Form kForm, bool kAnswers>
void launch_segments(CudaContext& context, const RecurrentCall& call, int sequences, int pieces, bool aligned) {
  const auto blocks = static_cast<unsigned>((call.dv + kColumns - 1) / kColumns * call.n * sequences * pieces);
  with_key_dim(call.dk, [&](auto dim) {
    constexpr int kLeast = Segment<64, kForm, true, kAnswers>::kLeastDim;
    constexpr int kDim = decltype(dim)::value < kLeast ? kLeast : decltype(dim)::value;
    using Aligned = Segment<kDim, kForm, true, kAnswers>;
    const auto kernel = aligned ? segment_kernel<Aligned> : segment_kernel<Segment<kDim, kForm, false, kAnswers>>;
    allow_shared(context, kernel, Aligned::kBytes);
    kernel<<<blocks, Aligned::kThreads, Aligned::kBytes, context.stream()>>>(call, sequences);
    HAY_LAUNCHED();
  });
}

}  // namespace hayfork::engine::cuda
