// The walk over the chunks of a sequence (mixers.md 4–7), one source file a form. One block holds 64 columns of one
// state in registers, in float32, and a bf16 copy of them in shared memory for the tensor cores. A chunk:
//   delta: X = β (V − e^{G} K S), D = T X; the others: D = V
//   O = e^{G} Q S + P D
//   S ← e^{G_end} S + Kᵀ (e^{G_end − G} D)
// K, V, T, P and the first Q of the chunks ahead are on their way meanwhile. The last chunk is not added to S: it may
// still grow, and output rows of a later pass may read it (rulings A5).
#pragma once

#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {

constexpr int kScanThreads = 256;
constexpr int kColumns = 64;
constexpr int kTileStride = kColumns + kPad;  // of V, T, P, S, X, D in shared memory
constexpr int kTileElements = kChunk * kTileStride;
static_assert(kColumns == kChunk && kColumns % kStepColumns == 0);

// Shared memory of one kernel, in bytes.
template <int kDim, Form kForm>
struct Layout {
  static constexpr int kRows = kChunk * (kDim + kPad) * 2, kTile = kTileElements * 2;
  static constexpr int kKeys = 0, kQueries = kRows, kValues = 2 * kRows, kScores = kValues + kTile,
                       kInverse = kScores + kTile, kGates = kInverse + (kForm == Form::delta ? kTile : 0),
                       kKept = kGates + static_cast<int>(kGateBytes),
                       kStage = kKept + (kForm == Form::channel ? kDim * 4 : 0);
  static constexpr int kState = 0, kX = kDim * kTileStride * 2, kD = kX + (kForm == Form::delta ? kTile : 0),
                       kFixed = kD + (kForm == Form::channel ? 0 : kTile);
  static constexpr int bytes(int stages) { return kFixed + stages * kStage; }
};

template <int kDim, Form kForm, bool kAligned>
class Scan {
  using L = Layout<kDim, kForm>;
  static constexpr int kStride = kDim + kPad;
  static constexpr int kWarpsDown = kDim >= 128 ? 8 : kDim / 16, kWarpsAcross = 8 / kWarpsDown;
  static constexpr int kDown = kDim / 16 / kWarpsDown;  // m-tiles of S a warp
  static constexpr int kAcross = 8 / kWarpsAcross;      // n-tiles of S a warp

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
        readers_(call.n_out / call.n),
        key_head_(j_ * call.n_k / call.n),
        value_head_(j_ * call.n_v / call.n),
        position_(first_position(call, sequence)),
        s_(tile(L::kState)) {}

  __device__ void run() {
    float* const state = state_of(call_, sequence_.slot, j_);
    int* const header = reinterpret_cast<int*>(state) + column_ / kStepColumns;
    stands_ = position_ == 0 ? 0 : *header;
    load_state(state + kHeaderFloats);
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
    if (n > 1 || position_ == 0) store_state(state + kHeaderFloats);
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
    if constexpr (kForm == Form::channel) {
      const bf16_t* scaled = reinterpret_cast<const bf16_t*>(mine + kGateBytes);
      load_even_rows<kChunk, kDim, kScanThreads>(staged(stage, L::kQueries), scaled, kDim, kDim);
      load_even_rows<kChunk, kDim, kScanThreads>(staged(stage, L::kKeys), scaled + kChunk * kDim, kDim, kDim);
      const char* kept = mine + kGateBytes + kChunk * kDim * 4;
      for (int e = threadIdx.x; e < kDim / 4; e += kScanThreads)
        copy_async_16(shared_address(reinterpret_cast<char*>(staged(stage, L::kKept)) + e * 16), kept + e * 16, 16);
    } else {
      fetch_keys(staged(stage, L::kKeys), at);
      fetch_queries(staged(stage, L::kQueries), at, j_ * readers_, false);
      if (threadIdx.x < kGateBytes / 16)
        copy_async_16(shared_address(reinterpret_cast<char*>(staged(stage, L::kGates)) + threadIdx.x * 16),
                      mine + threadIdx.x * 16, 16);
    }
    if constexpr (kForm == Form::delta) fetch_tile(staged(stage, L::kInverse), mine + kGateBytes);
    fetch_tile(staged(stage, L::kScores), scores_of(call_, index, j_ * readers_, false));
    fetch_values(staged(stage, L::kValues), at);
  }

  // Rows and columns of S that this thread holds.
  __device__ int state_row(int m, int half) const { return (warp_ % kWarpsDown * kDown + m) * 16 + g_ + half * 8; }
  __device__ int state_column(int n) const { return (warp_ / kWarpsDown * kAcross + n) * 8 + 2 * t_; }
  template <typename F>
  __device__ void for_state(const float* state, F f) {
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
      for (int n = 0; n < kAcross; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int row = state_row(m, e / 2), column = column_ + state_column(n) + e % 2;
          const bool inside = row < call_.dk && column < call_.dv;
          f(acc_[m][n][e], inside ? state + static_cast<int64_t>(row) * call_.dv + column : nullptr);
        }
  }
  __device__ void load_state(const float* state) {
    const bool zero = position_ == 0;
    for_state(state, [&](float& x, const float* at) { x = zero || at == nullptr ? 0.f : *at; });
  }
  __device__ void store_state(float* state) {
    for_state(state, [&](float& x, const float* at) {
      if (at != nullptr) *const_cast<float*>(at) = x;
    });
  }
  __device__ void publish_state() const {
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
      for (int n = 0; n < kAcross; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<uint32_t*>(s_ + state_row(m, half) * kTileStride + state_column(n)) =
              pack_bf16(acc_[m][n][2 * half], acc_[m][n][2 * half + 1]);
  }

  // Rows 16 · (warp mod 4) … of a [64][k] tile times a [k][64] tile, columns 32 · (warp / 4) …
  template <int kDepth>
  __device__ void multiply(float (&sum)[4][4], const bf16_t* a, int a_stride, const bf16_t* b,
                           int depth = kDepth) const {
    const int row = warp_ % 4 * 16, column = warp_ / 4 * 32;
#pragma unroll 4
    for (int k = 0; k < depth; k += 16) {
      uint32_t x[4], low[4], high[4];
      load_a(x, a + row * a_stride + k, a_stride);
      load_b(low, b + k * kTileStride + column, kTileStride);
      load_b(high, b + k * kTileStride + column + 16, kTileStride);
      mma_bf16(sum[0], x[0], x[1], x[2], x[3], low[0], low[1]);
      mma_bf16(sum[1], x[0], x[1], x[2], x[3], low[2], low[3]);
      mma_bf16(sum[2], x[0], x[1], x[2], x[3], high[0], high[1]);
      mma_bf16(sum[3], x[0], x[1], x[2], x[3], high[2], high[3]);
    }
  }
  // Q S and K S: the fragments of S are loaded once.
  __device__ void multiply_both(float (&q_sum)[4][4], const bf16_t* queries, float (&k_sum)[4][4],
                                const bf16_t* keys) const {
    const int row = warp_ % 4 * 16, column = warp_ / 4 * 32;
#pragma unroll 4
    for (int k = 0; k < kDim; k += 16) {
      uint32_t q[4], x[4], b[2][4];
      load_b(b[0], s_ + k * kTileStride + column, kTileStride);
      load_b(b[1], s_ + k * kTileStride + column + 16, kTileStride);
      load_a(q, queries + row * kStride + k, kStride);
      load_a(x, keys + row * kStride + k, kStride);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        mma_bf16(k_sum[n], x[0], x[1], x[2], x[3], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        mma_bf16(q_sum[n], q[0], q[1], q[2], q[3], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
  // Lower triangular A: columns beyond the row block are zeros.
  __device__ void multiply_lower(float (&sum)[4][4], const bf16_t* a, const bf16_t* b) const {
    multiply<kChunk>(sum, a, kTileStride, b, (warp_ % 4 + 1) * 16);
  }
  __device__ int row_of(int half) const {
    return warp_ % 4 * 16 + g_ + half * 8;
  }
  __device__ int column_of(int n) const {
    return warp_ / 4 * 32 + n * 8 + 2 * t_;
  }

  __device__ void chunk(int c, int stage, bool last) {
    const Cell at = cell(c);
    const bf16_t* const keys = staged(stage, L::kKeys);
    bf16_t* const queries = staged(stage, L::kQueries);
    bf16_t* const values = staged(stage, L::kValues);
    bf16_t* const scores = staged(stage, L::kScores);
    const float* const sums = reinterpret_cast<const float*>(staged(stage, L::kGates));
    const float* const scales = sums + kChunk;
    bf16_t* const d = kForm == Form::channel ? values : tile(L::kD);  // what is added to S
    const float end = kForm == Form::channel ? 0.f : sums[kChunk - 1];
    // Of this thread's rows: e^{G}, e^{G_end − G}, β or the value's scale.
    float decay[2] = {1.f, 1.f}, rest[2] = {}, scale[2] = {};
    if constexpr (kForm != Form::channel) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = sums[row_of(half)];
        decay[half] = exp2_approx(sum);
        rest[half] = exp2_approx(end - sum);
        scale[half] = scales[row_of(half)];
      }
    }
    float from_state[4][4] = {};
    if constexpr (kForm == Form::delta) {
      float seen[4][4] = {};
      multiply_both(from_state, queries, seen, keys);
      for_pairs([&](int n, int half, int i, int x) {
        const float2 v = pair(values + i * kTileStride + x);
        put(tile(L::kX) + i * kTileStride + x, scale[half] * (v.x - decay[half] * seen[n][2 * half]),
            scale[half] * (v.y - decay[half] * seen[n][2 * half + 1]));
      });
      __syncthreads();
      float delta[4][4] = {};
      multiply_lower(delta, staged(stage, L::kInverse), tile(L::kX));
      for_pairs([&](int n, int half, int i, int x) {
        put(values + i * kTileStride + x, delta[n][2 * half], delta[n][2 * half + 1]);
        put(d + i * kTileStride + x, rest[half] * delta[n][2 * half], rest[half] * delta[n][2 * half + 1]);
      });
      __syncthreads();
    } else {
      multiply<kDim>(from_state, queries, kStride, s_);
      if constexpr (kForm == Form::scalar) {
        for_pairs([&](int, int half, int i, int x) {
          const float2 v = pair(values + i * kTileStride + x);
          put(d + i * kTileStride + x, scale[half] * rest[half] * v.x, scale[half] * rest[half] * v.y);
        });
      }
      __syncthreads();
    }
    answer(at, j_ * readers_, false, from_state, scores, values, decay);
    if constexpr (kForm == Form::delta) {
      const bool outputs = has_output_rows(call_, at);
      for (int h = j_ * readers_; h < (j_ + 1) * readers_; ++h) {
        if (h > j_ * readers_) ask(c, at, h, false, queries, scores, values, sums);
        if (outputs) ask(c, at, h, true, queries, scores, values, sums);
      }
    }
    if (last) return;
    if constexpr (kForm == Form::channel) {
      const float* kept = reinterpret_cast<const float*>(staged(stage, L::kKept));
      scale_state([&](int row) { return kept[row]; });
    } else {
      const float whole = exp2_approx(end);
      scale_state([&](int) { return whole; });
    }
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      uint32_t b[kAcross >= 2 ? kAcross / 2 : 1][4];
#pragma unroll
      for (int n = 0; n < (kAcross >= 2 ? kAcross / 2 : 1); ++n)
        load_b(b[n], d + k * kTileStride + warp_ / kWarpsDown * kAcross * 8 / 16 * 16 + n * 16, kTileStride);
#pragma unroll
      for (int m = 0; m < kDown; ++m) {
        uint32_t a[4];
        load_a_transposed(a, keys + k * kStride + (warp_ % kWarpsDown * kDown + m) * 16, kStride);
        if constexpr (kAcross >= 2) {
#pragma unroll
          for (int n = 0; n < kAcross; ++n)
            mma_bf16(acc_[m][n], a[0], a[1], a[2], a[3], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
        } else {
          const bool odd = warp_ / kWarpsDown % 2 == 1;
          mma_bf16(acc_[m][0], a[0], a[1], a[2], a[3], odd ? b[0][2] : b[0][0], odd ? b[0][3] : b[0][1]);
        }
      }
    }
    publish_state();
  }

  template <typename F>
  __device__ void scale_state(F factor) {
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float f = factor(state_row(m, half));
#pragma unroll
        for (int n = 0; n < kAcross; ++n) acc_[m][n][2 * half] *= f, acc_[m][n][2 * half + 1] *= f;
      }
  }

  // f(n-tile, half, row, column) for this thread's pairs of a 64 × 64 product.
  template <typename F>
  __device__ void for_pairs(F f) const {
#pragma unroll
    for (int n = 0; n < 4; ++n)
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
    float from_state[4][4] = {};
    multiply<kDim>(from_state, queries, kStride, s_);
    answer(at, h, of_output_rows, from_state, scores, values, decay);
    __syncthreads();
  }

  // O = e^{G} · (Q S) + P D for the rows that ask.
  __device__ void answer(const Cell& at, int h, bool of_output_rows, float (&o)[4][4], const bf16_t* scores,
                         const bf16_t* values, const float (&decay)[2]) const {
    if constexpr (kForm != Form::channel) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < 4; ++n) o[n][2 * half] *= decay[half], o[n][2 * half + 1] *= decay[half];
    }
    multiply_lower(o, scores, values);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = row_of(half), row = asking_row(call_, at, i, of_output_rows);
      if (row < 0) continue;
      bf16_t* const to =
          static_cast<bf16_t*>(call_.o) + row * call_.o_stride + static_cast<int64_t>(h) * call_.dv + column_;
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int x = column_of(n);
        float2 y = {o[n][2 * half], o[n][2 * half + 1]};
        if (kForm != Form::delta && call_.skip != nullptr) {
          const float2 v = pair(values + i * kTileStride + x);
          y.x = fmaf(skip_of(h, x), v.x, y.x);
          y.y = fmaf(skip_of(h, x + 1), v.y, y.y);
        }
        if (kAligned && column_ + x < call_.dv) {
          put(to + x, y.x, y.y);
        } else {
          if (column_ + x < call_.dv) to[x] = __float2bfloat16_rn(y.x);
          if (column_ + x + 1 < call_.dv) to[x + 1] = __float2bfloat16_rn(y.y);
        }
      }
    }
  }
  __device__ float skip_of(int h, int x) const {
    if (!call_.skip_per_channel) return call_.skip[h];
    return column_ + x < call_.dv ? call_.skip[static_cast<int64_t>(h) * call_.dv + column_ + x] : 0.f;
  }

  const RecurrentCall& call_;
  const SequenceSpans& sequence_;
  char* shared_;
  int stages_, j_, column_, warp_, g_, t_, readers_, key_head_, value_head_, position_, stands_ = 0;
  bf16_t* s_;
  float acc_[kDown][kAcross][4];
};

template <int kDim, Form kForm, bool kAligned>
__global__ void __launch_bounds__(kScanThreads, 1) scan_kernel(const __grid_constant__ RecurrentCall call, int stages) {
  const SequenceSpans sequence = call.pass.sequences[call.first_sequence + blockIdx.z];
  if (sequence.n_cells == 0) return;
  extern __shared__ __align__(16) char shared[];
  Scan<kDim, kForm, kAligned>(call, sequence, shared, stages).run();
}

// As many chunks ahead as shared memory allows; results don't depend on it.
template <int kDim, Form kForm>
int stages_for(const CudaContext& context) {
  using L = Layout<kDim, kForm>;
  const auto room = static_cast<int>(context.properties().sharedMemPerBlockOptin);
  if (L::bytes(1) > room) {
    throw Error(
        ErrorCode::unsupported, ErrorSubject::model, "a recurrent head is too large for this GPU",
        {.why = std::to_string(L::bytes(1)) + " bytes of shared memory a block, the device has " + std::to_string(room),
         .next = "--device cpu"});
  }
  return L::bytes(3) <= room ? 3 : L::bytes(2) <= room ? 2 : 1;
}

template <int kDim, Form kForm>
void launch_scan(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned) {
  const int stages = stages_for<kDim, kForm>(context), bytes = Layout<kDim, kForm>::bytes(stages);
  const dim3 grid(static_cast<unsigned>((call.dv + kColumns - 1) / kColumns), static_cast<unsigned>(call.n),
                  static_cast<unsigned>(sequences));
  const auto kernel = aligned ? scan_kernel<kDim, kForm, true> : scan_kernel<kDim, kForm, false>;
  HAY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  kernel<<<grid, kScanThreads, static_cast<size_t>(bytes), context.stream()>>>(call, stages);
  HAY_LAUNCHED();
}

template <Form kForm>
void launch_scan(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned) {
  switch (padded_key_dim(call.dk)) {
    case 16:
      return launch_scan<16, kForm>(context, call, sequences, aligned);
    case 32:
      return launch_scan<32, kForm>(context, call, sequences, aligned);
    case 64:
      return launch_scan<64, kForm>(context, call, sequences, aligned);
    case 128:
      return launch_scan<128, kForm>(context, call, sequences, aligned);
    default:
      return launch_scan<256, kForm>(context, call, sequences, aligned);
  }
}

}  // namespace hayfork::engine::cuda
