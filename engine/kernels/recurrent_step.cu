// The recurrences token by token: decode rows of every type, and prefill rows where there is no chunk kernel (float32,
// unusual head sizes). A block holds kStepColumns columns of one state of one sequence in registers, in float32.
#include "engine/kernels/recurrent.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = kStepColumns / 4;       // threads across the columns, four columns each
constexpr int kRowGroups = kThreads / kLanes;  // threads down the rows
constexpr int kWarps = kThreads / 32;

// Sums over the rows of a column: within a warp by shuffles, then over the warps in order.
class ColumnSums {
 public:
  __device__ explicit ColumnSums(float* shared) : shared_(shared) {}
  __device__ void operator()(float (&x)[4]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      x[c] += __shfl_xor_sync(~0u, x[c], 8);
      x[c] += __shfl_xor_sync(~0u, x[c], 16);
    }
    float* part = shared_ + phase_ * kWarps * kStepColumns;  // two in turn: one barrier a sum
    phase_ ^= 1;
    if (lane < kLanes) *reinterpret_cast<float4*>(part + warp * kStepColumns + lane * 4) = {x[0], x[1], x[2], x[3]};
    __syncthreads();
#pragma unroll
    for (int c = 0; c < 4; ++c) x[c] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float4 y = *reinterpret_cast<const float4*>(part + w * kStepColumns + lane % kLanes * 4);
      x[0] += y.x, x[1] += y.y, x[2] += y.z, x[3] += y.w;
    }
  }

 private:
  float* shared_;
  int phase_ = 0;
};

// kRows rows of S a thread: rows kRowGroups · i + its own. kFour: dv is a multiple of 4.
template <typename T, Form kForm, int kRows, bool kFour>
class Walk {
 public:
  static constexpr int kPadded = kRows * kRowGroups;  // of dk; vectors in shared memory end with zeros

  __device__ Walk(const RecurrentCall& call, const SequenceSpans& sequence, float* vectors, float2* gates, float* sums)
      : call_(call),
        sequence_(sequence),
        j_(blockIdx.y),
        column_(blockIdx.x * kStepColumns + threadIdx.x % kLanes * 4),
        row_(threadIdx.x / kLanes),
        readers_(call.n_out / call.n),
        key_head_(j_ * call.n_k / call.n),
        value_head_(j_ * call.n_v / call.n),
        state_(state_of(call, sequence.slot, j_)),
        key_(vectors),
        query_(vectors + kPadded),
        logs_(vectors + 2 * kPadded),
        gates_(gates),
        sums_(sums) {}

  __device__ void run(int first_kind, int end_kind) {
    for (int kind = first_kind; kind < end_kind; ++kind) {
      if (sequence_.n[kind * 2] + sequence_.n[kind * 2 + 1] > 0) walk(kind);
    }
  }

 private:
  __device__ void walk(int kind) {
    const int n_base = sequence_.n[kind * 2], n_output = sequence_.n[kind * 2 + 1];
    const Row* base = call_.pass.rows + sequence_.first[kind * 2];
    const Row* output = call_.pass.rows + sequence_.first[kind * 2 + 1];
    // The state and the first row's inputs are on their way before it is known where the state stands.
    load_state(state_ + kHeaderFloats);
    bool fetched = n_base > 0;
    if (fetched) fetch(sequence_.first[kind * 2]);
    const int position = n_base > 0 ? base[0].pos : output[0].pos + 1;  // of the next base row
    int* const header = reinterpret_cast<int*>(state_) + blockIdx.x;
    const Mark mark = mark_at(header, position);
    const int stands = mark.stands;
    // An output row whose base row was the last one of an earlier pass.
    const bool is_late = n_output > 0 && output[0].pos < position;
    int next = is_late ? 1 : 0;
    if (kForm == Form::delta && call_.before && is_late) {
      load_state(reinterpret_cast<float*>(reinterpret_cast<char*>(state_) + call_.before_offset));
      read(sequence_.first[kind * 2 + 1]);
      load_state(state_ + kHeaderFloats);
      fetched = false;
    }
    if (position == 0) clear();
    if (kForm != Form::delta && mark.has_local) add_local();
    if (stands < position) fetched = false;
    for (int p = stands; p < position; ++p) fold(p % static_cast<int>(kChunkRows));
    if (is_late && !(kForm == Form::delta && call_.before)) {
      read(sequence_.first[kind * 2 + 1]);
      fetched = false;
    }
    for (int i = 0; i < n_base; ++i) {
      const int64_t row = sequence_.first[kind * 2] + i;
      const bool wanted = next < n_output && output[next].pos == position + i;
      const int64_t reader = sequence_.first[kind * 2 + 1] + next;
      if (wanted) ++next;
      if (kForm == Form::delta && call_.before) {
        if (wanted) read(reader), fetched = false;
        if (i + 1 == n_base)
          store_state(reinterpret_cast<float*>(reinterpret_cast<char*>(state_) + call_.before_offset));
      }
      step(row, fetched);
      fetched = false;
      if (wanted && !(kForm == Form::delta && call_.before)) read(reader);
    }
    if (n_base == 0 && stands == position) return;
    store_state(state_ + kHeaderFloats);
    if (threadIdx.x == 0) *header = position + n_base;
    __syncthreads();  // the next kind's walk reads what was stored
  }

  __device__ bool inside(int c) const { return column_ + c < call_.dv; }
  // Row of S that s_[i] holds.
  __device__ int row(int i) const { return i * kRowGroups + row_; }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) s_[i][c] = 0;
  }
  __device__ float4 load_four(const float* matrix, int r) const {
    const float* at = matrix + static_cast<int64_t>(r) * call_.dv + column_;
    float4 x = {0, 0, 0, 0};
    if (r < call_.dk) {
      if (kFour) {
        if (inside(0)) x = *reinterpret_cast<const float4*>(at);
      } else {
        if (inside(0)) x.x = at[0];
        if (inside(1)) x.y = at[1];
        if (inside(2)) x.z = at[2];
        if (inside(3)) x.w = at[3];
      }
    }
    return x;
  }
  __device__ void load_state(const float* from) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float4 x = load_four(from, row(i));
      s_[i][0] = x.x, s_[i][1] = x.y, s_[i][2] = x.z, s_[i][3] = x.w;
    }
  }
  // S ← e^{sum} S + L: what the open segment's chunks have added.
  __device__ void add_local() {
    const float* const local = reinterpret_cast<float*>(reinterpret_cast<char*>(state_) + call_.local_offset);
    const float* const sums = reinterpret_cast<float*>(reinterpret_cast<char*>(state_) + call_.sums_offset);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float kept = exp2_approx(kForm != Form::channel ? sums[0] : row(i) < call_.dk ? sums[row(i)] : 0.f);
      const float4 x = load_four(local, row(i));
      s_[i][0] = fmaf(kept, s_[i][0], x.x), s_[i][1] = fmaf(kept, s_[i][1], x.y);
      s_[i][2] = fmaf(kept, s_[i][2], x.z), s_[i][3] = fmaf(kept, s_[i][3], x.w);
    }
  }
  __device__ void store_state(float* to) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row(i) >= call_.dk) continue;
      float* at = to + static_cast<int64_t>(row(i)) * call_.dv + column_;
      if (kFour) {
        if (inside(0)) *reinterpret_cast<float4*>(at) = {s_[i][0], s_[i][1], s_[i][2], s_[i][3]};
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (inside(c)) at[c] = s_[i][c];
        }
      }
    }
  }

  __device__ int64_t query_offset(int h) const {
    return static_cast<int64_t>(h * call_.n_q / call_.n_out) * call_.dk;
  }
  __device__ void fill_logs(const float* from) const {
    for (int d = threadIdx.x; d < kPadded; d += kThreads) logs_[d] = d < call_.dk ? expf(from[d]) : 0.f;
  }
  __device__ void fill(float* to, const T* from) const {
    for (int d = threadIdx.x; d < kPadded; d += kThreads) to[d] = d < call_.dk ? load(from + d) : 0.f;
  }

  __device__ void load_value(float (&d)[4], const T* value) const {
#pragma unroll
    for (int c = 0; c < 4; ++c) d[c] = inside(c) ? load(value + column_ + c) : 0.f;
  }
  // One token's key, value and gates into the state; the caller has put vectors into shared memory.
  __device__ void update(float (&d)[4], float2 gates) {
    const float decay = expf(gates.x);
    if constexpr (kForm == Form::delta) {
      float u[4] = {};
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float key = key_[row(i)];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s_[i][c] *= decay;
          u[c] = fmaf(key, s_[i][c], u[c]);
        }
      }
      sums_(u);
#pragma unroll
      for (int c = 0; c < 4; ++c) d[c] = gates.y * (d[c] - u[c]);
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) d[c] *= gates.y;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float key = key_[row(i)], kept = kForm == Form::channel ? logs_[row(i)] : decay;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s_[i][c] = fmaf(key, d[c], kForm == Form::delta ? s_[i][c] : kept * s_[i][c]);
      }
    }
  }

  __device__ void fold(int index) {
    __syncthreads();
    fill(key_, open_rows<T>(call_, sequence_.slot, call_.open_k) +
                   (static_cast<int64_t>(index) * call_.n_k + key_head_) * call_.dk);
    if constexpr (kForm == Form::channel) {
      fill_logs(open_rows<float>(call_, sequence_.slot, call_.open_logs) +
                (static_cast<int64_t>(index) * call_.n_k + key_head_) * call_.dk);
    }
    const float* gates = open_rows<float>(call_, sequence_.slot, call_.open_gates) + (index * call_.n + j_) * 2;
    float d[4];
    load_value(d, open_rows<T>(call_, sequence_.slot, call_.open_v) +
                      (static_cast<int64_t>(index) * call_.n_v + value_head_) * call_.dv);
    __syncthreads();
    update(d, {gates[0], gates[1]});
  }

  // A row's inputs: vectors into shared memory, the rest into registers.
  __device__ const T* value_of(int64_t row) const {
    return static_cast<const T*>(call_.v) + row * call_.v_stride + value_head_ * call_.dv;
  }
  __device__ void fetch(int64_t row) {
    load_value(value_, value_of(row));
    fill(key_, static_cast<const T*>(call_.k) + row * call_.k_stride + key_head_ * call_.dk);
    fill(query_, static_cast<const T*>(call_.q) + row * call_.q_stride + query_offset(j_ * readers_));
    if constexpr (kForm == Form::channel) {
      fill_logs(call_.per_channel + row * call_.channel_stride + key_head_ * call_.dk);
    }
    if (threadIdx.x / 32 + 1 == kWarps) *gates_ = gates_of<T>(call_, row, j_);  // the same of every lane
  }
  __device__ void step(int64_t row, bool fetched) {
    if (!fetched) {
      __syncthreads();
      fetch(row);
    }
    __syncthreads();
    update(value_, *gates_);
    const T* const value = value_of(row);
    answer(row, j_ * readers_, value);
    for (int h = j_ * readers_ + 1; h < (j_ + 1) * readers_; ++h) ask(row, h, value);
  }

  // What every reader of this state gets at an output row.
  __device__ void read(int64_t row) {
    for (int h = j_ * readers_; h < (j_ + 1) * readers_; ++h) ask(row, h, nullptr);
  }
  __device__ void ask(int64_t row, int h, const T* value) {
    __syncthreads();
    fill(query_, static_cast<const T*>(call_.q) + row * call_.q_stride + query_offset(h));
    __syncthreads();
    answer(row, h, value);
  }
  __device__ void answer(int64_t row, int h, const T* value) {
    float out[4] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float query = query_[this->row(i)];
#pragma unroll
      for (int c = 0; c < 4; ++c) out[c] = fmaf(query, s_[i][c], out[c]);
    }
    sums_(out);
    if (row_ != 0) return;
    T* o = static_cast<T*>(call_.o) + row * call_.o_stride + static_cast<int64_t>(h) * call_.dv + column_;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (!inside(c)) continue;
      if (call_.skip != nullptr && value != nullptr) {
        const float skip = call_.skip[call_.skip_per_channel ? static_cast<int64_t>(h) * call_.dv + column_ + c : h];
        out[c] = fmaf(skip, load(value + column_ + c), out[c]);
      }
      store(o + c, out[c]);
    }
  }

  const RecurrentCall& call_;
  const SequenceSpans& sequence_;
  int j_, column_, row_, readers_, key_head_, value_head_;
  float* state_;
  float *key_, *query_, *logs_;
  float2* gates_;
  ColumnSums sums_;
  float s_[kRows][4], value_[4];
};

// Blocks a multiprocessor holds: enough loads in flight.
constexpr int blocks_for(int rows) {
  return rows <= 4 ? 4 : rows <= 8 ? 3 : 2;
}

template <typename T, Form kForm, int kRows, bool kFour>
__global__ void __launch_bounds__(kThreads, blocks_for(kRows))
    step_kernel(const __grid_constant__ RecurrentCall call, int first_kind, int end_kind) {
  let_next_start();
  wait_for_previous();
  const SequenceSpans sequence = call.pass.sequences[blockIdx.z];
  if (sequence.slot < 0) return;
  using Here = Walk<T, kForm, kRows, kFour>;
  __shared__ float vectors[(kForm == Form::channel ? 3 : 2) * Here::kPadded];
  __shared__ float2 gates;
  __shared__ alignas(16) float sums[2 * kWarps * kStepColumns];
  Here(call, sequence, vectors, &gates, sums).run(first_kind, end_kind);
}

template <typename T, Form kForm, int kRows>
void launch(CudaContext& context, const RecurrentCall& call, int first_kind, int end_kind) {
  const dim3 grid(static_cast<unsigned>((call.dv + kStepColumns - 1) / kStepColumns), static_cast<unsigned>(call.n),
                  static_cast<unsigned>(call.pass.n_sequences));
  const auto kernel = call.dv % 4 == 0 ? step_kernel<T, kForm, kRows, true> : step_kernel<T, kForm, kRows, false>;
  launch_early(context, kernel, grid, kThreads, 0, call, first_kind, end_kind);
}

template <typename T, Form kForm>
void launch_rows(CudaContext& context, const RecurrentCall& call, int first_kind, int end_kind) {
  const int rows = (call.dk + kRowGroups - 1) / kRowGroups;
  if (rows <= 1) return launch<T, kForm, 1>(context, call, first_kind, end_kind);
  if (rows <= 2) return launch<T, kForm, 2>(context, call, first_kind, end_kind);
  if (rows <= 4) return launch<T, kForm, 4>(context, call, first_kind, end_kind);
  if (rows <= 8) return launch<T, kForm, 8>(context, call, first_kind, end_kind);
  launch<T, kForm, 16>(context, call, first_kind, end_kind);
}

}  // namespace

void recurrent_steps(CudaContext& context, const RecurrentCall& call, DType type, int first_kind, int end_kind) {
  bool any = false;
  for (const SequenceSpans& s : context.sequences()) {
    for (int g = first_kind * 2; g < end_kind * 2; ++g) any = any || s.n[g] > 0;
  }
  if (!any) return;
  if (call.dk > 512 || call.dv > kMaxValueDim) {
    throw Error(ErrorCode::unsupported, ErrorSubject::model, "a recurrent head is too large for the CUDA backend",
                {.why = std::to_string(call.dk) + " x " + std::to_string(call.dv) + ", at most 512 x 512",
                 .next = "--device cpu"});
  }
  with_type(type, [&](auto t) {
    using T = decltype(t);
    if (call.form == Form::delta) return launch_rows<T, Form::delta>(context, call, first_kind, end_kind);
    if (call.form == Form::scalar) return launch_rows<T, Form::scalar>(context, call, first_kind, end_kind);
    launch_rows<T, Form::channel>(context, call, first_kind, end_kind);
  });
}

}  // namespace hayfork::engine::cuda
