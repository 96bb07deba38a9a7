// The walk over the chunks of a sequence for the delta rule. One block holds some columns of one state
// in registers, in float32, and a bf16 copy of them in shared memory for the tensor cores. A chunk:
//   X = β (V − e^{G} K S), D = T X
//   O = e^{G} Q S + P D
//   S ← e^{G_end} S + Kᵀ (e^{G_end − G} D)
// K, V, T, P and the first Q of the chunks ahead are on their way meanwhile. The last chunk is not added to S: it may
// still grow, and output rows of a later pass may read it.
#include "engine/kernels/state_tile.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr int kScanThreads = 256;
constexpr int kTileStride = kChunk + kPad;  // of T and P in shared memory

// Shared memory of one kernel, in bytes.
template <int kDim, int kColumns>
struct Layout {
  static constexpr int kRows = kChunk * (kDim + kPad) * 2, kTile = kChunk * kTileStride * 2,
                       kSlice = kChunk * (kColumns + kPad) * 2;
  static constexpr int kKeys = 0, kQueries = kRows, kValues = 2 * kRows, kScores = kValues + kSlice,
                       kInverse = kScores + kTile, kGates = kInverse + kTile,
                       kStage = kGates + static_cast<int>(kGateBytes);
  static constexpr int kState = 0, kX = kDim * (kColumns + kPad) * 2, kD = kX + kSlice, kFixed = kD + kSlice;
  static constexpr int bytes(int stages) { return kFixed + stages * kStage; }
};

// kColumns: as many as leave no multiprocessor idle; columns don't touch each other.
template <int kDim, int kColumns, bool kAligned>
class Scan {
  using L = Layout<kDim, kColumns>;
  static constexpr int kStride = kDim + kPad;
  static constexpr int kSliceStride = kColumns + kPad;  // of V, S, X, D
  static constexpr int kWide = kColumns / 16;           // n-tiles of a [64][kColumns] product a warp
  using State = StateTile<kDim, kColumns>;

 public:
  __device__ Scan(const RecurrentCall& call, const SequenceSpans& sequence, char* shared, int stages)
      : call_(call),
        sequence_(sequence),
        shared_(shared),
        stages_(stages),
        j_(blockIdx.y),
        column_(blockIdx.x * kColumns),
        warp_(threadIdx.x / 32),
        g_(threadIdx.x % 32 / 4),
        t_(threadIdx.x % 4),
        readers_(call.readers),
        key_head_(j_ * call.n_k / call.n),
        value_head_(j_ * call.n_v / call.n),
        position_(first_position(call, sequence)),
        s_(tile(L::kState)) {}

  __device__ void run() {
    float* const state = state_of(call_, sequence_.slot, j_);
    int* const header = reinterpret_cast<int*>(state) + column_ / kStepColumns;
    stands_ = position_ == 0 ? 0 : *header;
    if (position_ == 0) {
      state_.clear();
    } else {
      state_.load(state + kHeaderFloats, call_.dk, call_.dv, column_);
    }
    const int n = sequence_.n_cells;
    for (int c = 0; c + 1 < stages_; ++c) {
      if (c < n) fetch(c, c);
      copy_async_commit();
    }
    publish_state();
    int stage = 0, free_stage = stages_ - 1;  // of this chunk; of the one before
    for (int c = 0; c < n; ++c) {
      if (stages_ == 1) {
        __syncthreads();
        fetch(c, 0);
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
      } else {
        if (stages_ == 3) {
          copy_async_wait<1>();
        } else {
          copy_async_wait<0>();
        }
        __syncthreads();  // the chunk is here, and everybody is done with the one before
        if (c + stages_ - 1 < n) fetch(c + stages_ - 1, free_stage);
        copy_async_commit();
      }
      chunk(c, stage, c + 1 == n);
      free_stage = stage;
      stage = stage + 1 == stages_ ? 0 : stage + 1;
    }
    copy_async_wait<0>();
    if (n > 1 || position_ == 0) state_.store(state + kHeaderFloats, call_.dk, call_.dv, column_);
    const int last = call_.pass.cells[sequence_.first_cell + n - 1].index * kChunk;
    if (threadIdx.x < kColumns / kStepColumns && column_ + static_cast<int>(threadIdx.x) * kStepColumns < call_.dv)
      header[threadIdx.x] = max(stands_, last);
  }

 private:
  __device__ bf16_t* tile(int offset) const { return reinterpret_cast<bf16_t*>(shared_ + offset); }
  __device__ bf16_t* staged(int stage, int offset) const { return tile(L::kFixed + stage * L::kStage + offset); }
  __device__ Cell cell(int c) const {
    return cell_at(sequence_, call_.pass.cells[sequence_.first_cell + c].index, position_, stands_);
  }

  // A 64 × 64 tile of scratch.
  __device__ void fetch_tile(bf16_t* to, const void* from) const {
    load_even_rows<kChunk, kChunk, kScanThreads>(to, static_cast<const bf16_t*>(from), kChunk, kChunk);
  }
  __device__ void fetch_queries(bf16_t* to, const Cell& at, int h, bool of_output_rows) const {
    const bf16_t* const q = static_cast<const bf16_t*>(call_.q) + h * call_.n_q / call_.n_out * call_.dk;
    if (kAligned && at.is_whole() && !of_output_rows) {
      load_even_rows<kChunk, kDim, kScanThreads>(to, q + at.row(0) * call_.q_stride, call_.q_stride, call_.dk);
      return;
    }
    load_rows<kChunk, kDim, kAligned, kScanThreads>(to, call_.dk, call_.k, [&](int i) -> const bf16_t* {
      const int row = asking_row(call_, at, i, of_output_rows);
      return row < 0 ? nullptr : q + row * call_.q_stride;
    });
  }
  __device__ void fetch_keys(bf16_t* to, const Cell& at) const {
    if (kAligned && at.is_whole()) {
      load_even_rows<kChunk, kDim, kScanThreads>(to, key_row(call_, at, 0, key_head_), call_.k_stride, call_.dk);
      return;
    }
    load_rows<kChunk, kDim, kAligned, kScanThreads>(to, call_.dk, call_.k,
                                                    [&](int i) { return key_row(call_, at, i, key_head_); });
  }
  __device__ void fetch_values(bf16_t* to, const Cell& at) const {
    const int width = call_.dv - column_;
    if (kAligned && at.is_whole()) {
      load_even_rows<kChunk, kColumns, kScanThreads>(to, value_row(call_, at, 0, value_head_) + column_, call_.v_stride,
                                                     width);
      return;
    }
    load_rows<kChunk, kColumns, kAligned, kScanThreads>(to, width, call_.v, [&](int i) {
      const bf16_t* row = value_row(call_, at, i, value_head_);
      return row == nullptr ? row : row + column_;
    });
  }
  __device__ void fetch(int c, int stage) const {
    const Cell at = cell(c);
    const int index = sequence_.first_cell + c;
    const char* const mine = state_scratch(call_, index, j_, kDim);
    fetch_keys(staged(stage, L::kKeys), at);
    fetch_queries(staged(stage, L::kQueries), at, j_ * readers_, false);
    if (threadIdx.x < kGateBytes / 16)
      copy_async_16(shared_address(reinterpret_cast<char*>(staged(stage, L::kGates)) + threadIdx.x * 16),
                    mine + threadIdx.x * 16, 16);
    fetch_tile(staged(stage, L::kInverse), mine + kGateBytes);
    fetch_tile(staged(stage, L::kScores), scores_of(call_, index, j_ * readers_, false));
    fetch_values(staged(stage, L::kValues), at);
  }

  __device__ void publish_state() const {
    State::for_tile([&](int m, int n, int half, int at) {
      *reinterpret_cast<uint32_t*>(s_ + at) = pack_bf16(state_.x[m][n][2 * half], state_.x[m][n][2 * half + 1]);
    });
  }

  // Rows 16 · (warp mod 4) … of a [64][k] tile times a [k][kColumns] tile, half of the columns a warp.
  using Part = float[kWide][4];
  __device__ void load_columns(uint32_t (&b)[kWide][2], const bf16_t* rows) const {
#pragma unroll
    for (int n = 0; n < kWide; n += 2) {
      uint32_t two[4];
      load_b(two, rows + warp_ / 4 * (kColumns / 2) + n * 8, kSliceStride);
      b[n][0] = two[0], b[n][1] = two[1], b[n + 1][0] = two[2], b[n + 1][1] = two[3];
    }
  }
  template <int kDepth>
  __device__ void multiply(Part& sum, const bf16_t* a, int a_stride, const bf16_t* b, int depth = kDepth) const {
#pragma unroll 4
    for (int k = 0; k < depth; k += 16) {
      uint32_t x[4], y[kWide][2];
      load_a(x, a + warp_ % 4 * 16 * a_stride + k, a_stride);
      load_columns(y, b + k * kSliceStride);
#pragma unroll
      for (int n = 0; n < kWide; ++n) mma_bf16(sum[n], x[0], x[1], x[2], x[3], y[n][0], y[n][1]);
    }
  }
  // Q S and K S: the fragments of S are loaded once.
  __device__ void multiply_both(Part& q_sum, const bf16_t* queries, Part& k_sum, const bf16_t* keys) const {
    const int row = warp_ % 4 * 16;
#pragma unroll 4
    for (int k = 0; k < kDim; k += 16) {
      uint32_t q[4], x[4], y[kWide][2];
      load_columns(y, s_ + k * kSliceStride);
      load_a(q, queries + row * kStride + k, kStride);
      load_a(x, keys + row * kStride + k, kStride);
#pragma unroll
      for (int n = 0; n < kWide; ++n) {
        mma_bf16(k_sum[n], x[0], x[1], x[2], x[3], y[n][0], y[n][1]);
        mma_bf16(q_sum[n], q[0], q[1], q[2], q[3], y[n][0], y[n][1]);
      }
    }
  }
  // Lower triangular A: columns beyond the row block are zeros.
  __device__ void multiply_lower(Part& sum, const bf16_t* a, const bf16_t* b) const {
    multiply<kChunk>(sum, a, kTileStride, b, (warp_ % 4 + 1) * 16);
  }
  __device__ int row_of(int half) const {
    return warp_ % 4 * 16 + g_ + half * 8;
  }
  __device__ int column_of(int n) const {
    return warp_ / 4 * (kColumns / 2) + n * 8 + 2 * t_;
  }

  __device__ void chunk(int c, int stage, bool last) {
    const Cell at = cell(c);
    const bf16_t* const keys = staged(stage, L::kKeys);
    bf16_t* const queries = staged(stage, L::kQueries);
    bf16_t* const values = staged(stage, L::kValues);
    bf16_t* const scores = staged(stage, L::kScores);
    const float* const sums = reinterpret_cast<const float*>(staged(stage, L::kGates));
    const float* const scales = sums + kChunk;
    bf16_t* const d = tile(L::kD);  // what is added to S
    const float end = sums[kChunk - 1];
    // Of this thread's rows: e^{G}, e^{G_end − G}, β.
    float decay[2], rest[2], scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sums[row_of(half)];
      decay[half] = exp2_approx(sum);
      rest[half] = exp2_approx(end - sum);
      scale[half] = scales[row_of(half)];
    }
    Part from_state = {}, seen = {};
    multiply_both(from_state, queries, seen, keys);
    for_pairs([&](int n, int half, int i, int x) {
      const float2 v = pair(values + i * kSliceStride + x);
      put(tile(L::kX) + i * kSliceStride + x, scale[half] * (v.x - decay[half] * seen[n][2 * half]),
          scale[half] * (v.y - decay[half] * seen[n][2 * half + 1]));
    });
    __syncthreads();
    Part delta = {};
    multiply_lower(delta, staged(stage, L::kInverse), tile(L::kX));
    for_pairs([&](int n, int half, int i, int x) {
      put(values + i * kSliceStride + x, delta[n][2 * half], delta[n][2 * half + 1]);
      put(d + i * kSliceStride + x, rest[half] * delta[n][2 * half], rest[half] * delta[n][2 * half + 1]);
    });
    __syncthreads();
    answer(at, j_ * readers_, false, from_state, scores, values, decay);
    const bool outputs = has_output_rows(call_, at);
    for (int h = j_ * readers_; h < (j_ + 1) * readers_; ++h) {
      if (h > j_ * readers_) ask(c, at, h, false, queries, scores, values, sums);
      if (outputs) ask(c, at, h, true, queries, scores, values, sums);
    }
    if (last) return;
    const float whole = exp2_approx(end);
    state_.scale([&](int, int) { return whole; });
    state_.add(keys, d, [](uint32_t(&)[4], int) {});
    publish_state();
  }

  // f(n-tile, half, row, column) for this thread's pairs of a [64][kColumns] product.
  template <typename F>
  __device__ void for_pairs(F f) const {
#pragma unroll
    for (int n = 0; n < kWide; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) f(n, half, row_of(half), column_of(n));
  }
  __device__ static float2 pair(const bf16_t* at) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(at));
  }
  __device__ static void put(bf16_t* at, float x, float y) {
    *reinterpret_cast<uint32_t*>(at) = pack_bf16(x, y);
  }

  // Other readers of this state, and output rows: their queries and scores take the place of the first ones.
  __device__ void ask(int c, const Cell& at, int h, bool of_output_rows, bf16_t* queries, bf16_t* scores,
                      const bf16_t* values, const float* sums) {
    __syncthreads();
    fetch_queries(queries, at, h, of_output_rows);
    fetch_tile(scores, scores_of(call_, sequence_.first_cell + c, h, of_output_rows));
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    float decay[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row_of(half);
      const bool before = of_output_rows && call_.before;
      decay[half] = exp2_approx(before ? (i > 0 ? sums[i - 1] : 0.f) : sums[i]);
    }
    Part from_state = {};
    multiply<kDim>(from_state, queries, kStride, s_);
    answer(at, h, of_output_rows, from_state, scores, values, decay);
    __syncthreads();
  }

  // O = e^{G} · (Q S) + P D for the rows that ask.
  __device__ void answer(const Cell& at, int h, bool of_output_rows, Part& o, const bf16_t* scores,
                         const bf16_t* values, const float (&decay)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kWide; ++n) o[n][2 * half] *= decay[half], o[n][2 * half + 1] *= decay[half];
    multiply_lower(o, scores, values);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row_of(half), row = asking_row(call_, at, i, of_output_rows);
      if (row < 0) continue;
      bf16_t* const to =
          static_cast<bf16_t*>(call_.o) + row * call_.o_stride + static_cast<int64_t>(h) * call_.dv + column_;
#pragma unroll
      for (int n = 0; n < kWide; ++n) {
        const int x = column_of(n);
        const float2 y = {o[n][2 * half], o[n][2 * half + 1]};
        if (kAligned && column_ + x < call_.dv) {
          put(to + x, y.x, y.y);
        } else {
          if (column_ + x < call_.dv) to[x] = __float2bfloat16_rn(y.x);
          if (column_ + x + 1 < call_.dv) to[x + 1] = __float2bfloat16_rn(y.y);
        }
      }
    }
  }

  const RecurrentCall& call_;
  const SequenceSpans& sequence_;
  char* shared_;
  int stages_, j_, column_, warp_, g_, t_, readers_, key_head_, value_head_, position_, stands_ = 0;
  bf16_t* s_;
  State state_;
};

template <int kDim, int kColumns, bool kAligned>
__global__ void __launch_bounds__(kScanThreads, 1) scan_kernel(const __grid_constant__ RecurrentCall call, int stages) {
  const SequenceSpans sequence = call.pass.sequences[call.first_sequence + blockIdx.z];
  if (sequence.n_cells == 0) return;
  extern __shared__ __align__(16) char shared[];
  Scan<kDim, kColumns, kAligned>(call, sequence, shared, stages).run();
}

template <int kDim, int kColumns>
void launch(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned) {
  const dim3 grid(static_cast<unsigned>((call.dv + kColumns - 1) / kColumns), static_cast<unsigned>(call.n),
                  static_cast<unsigned>(sequences));
  // As many chunks ahead as shared memory allows.
  const auto room = static_cast<int>(context.properties().sharedMemPerBlockOptin);
  int stages = 3;
  while (stages > 1 && Layout<kDim, kColumns>::bytes(stages) > room) --stages;
  const int bytes = Layout<kDim, kColumns>::bytes(stages);
  const auto kernel = aligned ? scan_kernel<kDim, kColumns, true> : scan_kernel<kDim, kColumns, false>;
  allow_shared(context, kernel, bytes);
  kernel<<<grid, kScanThreads, static_cast<size_t>(bytes), context.stream()>>>(call, stages);
  HAY_LAUNCHED();
}

}  // namespace

void delta_scan(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned) {
  // Neither columns nor stages change a result.
  const bool few = (call.dv + 63) / 64 * call.n * sequences < context.properties().multiProcessorCount;
  with_key_dim(call.dk, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    if constexpr (kDim >= 64) {
      if (few) return launch<kDim, 32>(context, call, sequences, aligned);
    }
    launch<kDim, 64>(context, call, sequences, aligned);
  });
}

}  // namespace hayfork::engine::cuda
