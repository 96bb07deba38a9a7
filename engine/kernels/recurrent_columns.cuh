// Some columns of a recurrent state in the registers of a thread block, in float32: a token's step and what it answers.
#pragma once

#include "engine/kernels/recurrent.cuh"

namespace hayfork::engine::cuda {

constexpr int kStepLanes = kStepColumns / 4;  // threads across the columns, four columns each
constexpr int kStepRows = 8;                  // rows a thread, one after another

// A row's inputs of one head, in shared memory; vectors end with zeros.
template <typename T, Form kForm, int kPadded>
struct StepInputs {
  alignas(16) T key[kPadded];
  alignas(16) T query[kPadded];
  alignas(16) T value[kStepColumns];  // the block's columns
  alignas(16) float decays[kForm == Form::channel ? kPadded : 4];
  float2 gates;  // decay, and β or the value's scale
};

template <int n>
__device__ inline void load_all(const float* from, float (&x)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
  }
}
template <int n>
__device__ inline void load_all(const __nv_bfloat16* from, float (&x)[n]) {
#pragma unroll
  for (int i = 0; i < n; i += 4) {
    const uint2 four = *reinterpret_cast<const uint2*>(from + i);
    x[i] = __uint_as_float(four.x << 16), x[i + 1] = __uint_as_float(four.x & 0xffff0000);
    x[i + 2] = __uint_as_float(four.y << 16), x[i + 3] = __uint_as_float(four.y & 0xffff0000);
  }
}

// Columns [kStepColumns · blockIdx.x, …) of state blockIdx.y in a block of kThreads. kPadded: a power of two, at least
// dk and 64. kFour: dv is a multiple of 4.
template <typename T, Form kForm, int kPadded, bool kFour>
class StepColumns {
 public:
  using Inputs = StepInputs<T, kForm, kPadded>;
  static constexpr int kThreads = kPadded / kStepRows * kStepLanes, kWarps = kThreads / 32;
  static constexpr int kSumFloats = 2 * kWarps * kStepColumns;

  // sums: kSumFloats in shared memory.
  __device__ StepColumns(const RecurrentCall& call, float* sums)
      : call_(call),
        j_(static_cast<int>(blockIdx.y)),
        column_(static_cast<int>(blockIdx.x) * kStepColumns + lane() * 4),
        row_(static_cast<int>(threadIdx.x) / kStepLanes * kStepRows),
        own_(j_ * call.head_bytes + (static_cast<int64_t>(row_) * call.dv + column_) * 4),
        sums_(sums) {}

  __device__ int* header_of(int slot) const { return reinterpret_cast<int*>(state_of(call_, slot, j_)) + blockIdx.x; }
  // This thread's part of S and of what else the state has of its shape: its first row's four columns.
  __device__ float* matrix_of(int slot) const { return part_of(slot, kHeaderFloats * 4); }
  __device__ float* before_of(int slot) const { return part_of(slot, call_.before_offset); }
  // Of its row i, and whether that is one.
  __device__ int64_t offset(int i) const { return static_cast<int64_t>(i) * call_.dv; }
  __device__ bool has(int i) const { return row_ + i < call_.dk && inside(0); }

  __device__ void set(int i, float4 x) { s_[i][0] = x.x, s_[i][1] = x.y, s_[i][2] = x.z, s_[i][3] = x.w; }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) set(i, {0, 0, 0, 0});
  }
  __device__ void load_state(const float* from) {
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) set(i, load_four(from, i));
  }
  __device__ void store_state(float* to) const {
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) {
      if (!has(i)) continue;
      float* at = to + offset(i);
      if (kFour) {
        // Not wanted again before the next token: by then other layers' states have been through the cache.
        __stcs(reinterpret_cast<float4*>(at), float4{s_[i][0], s_[i][1], s_[i][2], s_[i][3]});
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (inside(c)) at[c] = s_[i][c];
        }
      }
    }
  }
  // S ← e^{sum} S + L: what the open segment's chunks have added.
  __device__ void add_local(int slot) {
    const float* const local = part_of(slot, call_.local_offset);
    const auto* const sums =
        reinterpret_cast<const float*>(reinterpret_cast<char*>(state_of(call_, slot, j_)) + call_.sums_offset);
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) {
      const float kept = exp2_approx(kForm != Form::channel ? sums[0] : row_ + i < call_.dk ? sums[row_ + i] : 0.f);
      const float4 x = load_four(local, i);
      set(i,
          {fmaf(kept, s_[i][0], x.x), fmaf(kept, s_[i][1], x.y), fmaf(kept, s_[i][2], x.z), fmaf(kept, s_[i][3], x.w)});
    }
  }

  // A token's key, value and gates into the state.
  __device__ void update(const Inputs& in) {
    float d[4], key[kStepRows];
    load_all(in.value + lane() * 4, d);
    load_all(in.key + row_, key);
    const float2 gates = in.gates;
    if constexpr (kForm == Form::delta) {
      float u[4] = {};
#pragma unroll
      for (int i = 0; i < kStepRows; ++i) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          s_[i][c] *= gates.x;
          u[c] = fmaf(key[i], s_[i][c], u[c]);
        }
      }
      add_up<true>(u);
#pragma unroll
      for (int c = 0; c < 4; ++c) d[c] = gates.y * (d[c] - u[c]);
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c) d[c] *= gates.y;
      float kept[kStepRows];
      if constexpr (kForm == Form::channel) {
        load_all(in.decays + row_, kept);
      } else {
#pragma unroll
        for (float& x : kept) x = gates.x;
      }
#pragma unroll
      for (int i = 0; i < kStepRows; ++i) {
#pragma unroll
        for (float& x : s_[i]) x *= kept[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s_[i][c] = fmaf(key[i], d[c], s_[i][c]);
    }
  }
  // What head h gets at a row whose query is in shared memory (and, of a base row, its value: for the skip). Ends
  // behind a barrier after which no input is read.
  __device__ void answer(const Inputs& in, int64_t row, int h, bool is_base) {
    float out[4] = {}, query[kStepRows], value[4] = {};
    load_all(in.query + row_, query);
    const bool skips = is_base && call_.skip != nullptr;
    if (skips) load_all(in.value + lane() * 4, value);
#pragma unroll
    for (int i = 0; i < kStepRows; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) out[c] = fmaf(query[i], s_[i][c], out[c]);
    }
    add_up<false>(out);
    if (row_ != 0) return;
    T* o = static_cast<T*>(call_.o) + row * call_.o_stride + static_cast<int64_t>(h) * call_.dv + column_;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (!inside(c)) continue;
      if (skips) {
        const float skip = call_.skip[call_.skip_per_channel ? static_cast<int64_t>(h) * call_.dv + column_ + c : h];
        out[c] = fmaf(skip, value[c], out[c]);
      }
      store(o + c, out[c]);
    }
  }
  // The same of a head whose query is not there yet.
  __device__ void ask(Inputs& in, int64_t row, int h, bool is_base) {
    __syncthreads();
    fill(in.query, query_of(row, h));
    __syncthreads();
    answer(in, row, h, is_base);
  }
  // What the readers of this state get, from the `first` one on.
  __device__ void ask_all(Inputs& in, int64_t row, int first, bool is_base) {
    for (int r = first; r < call_.readers; ++r) ask(in, row, first_reader() + r, is_base);
  }

  // Where a row's inputs lie, in the pass and in the open chunk.
  __device__ int state() const {
    return j_;
  }
  __device__ int first_reader() const {
    return j_ * call_.readers;
  }
  __device__ int key_head() const {
    return j_ * call_.n_k / call_.n;
  }
  __device__ int value_head() const {
    return j_ * call_.n_v / call_.n;
  }
  __device__ const T* query_of(int64_t row, int h) const {
    return static_cast<const T*>(call_.q) + row * call_.q_stride +
           static_cast<int64_t>(h * call_.n_q / call_.n_out) * call_.dk;
  }
  __device__ const T* key_of(int64_t row) const {
    return static_cast<const T*>(call_.k) + row * call_.k_stride + static_cast<int64_t>(key_head()) * call_.dk;
  }
  __device__ const T* value_of(int64_t row) const {
    return static_cast<const T*>(call_.v) + row * call_.v_stride + static_cast<int64_t>(value_head()) * call_.dv;
  }
  __device__ const float* logs_of(int64_t row) const {
    return call_.per_channel + row * call_.channel_stride + static_cast<int64_t>(key_head()) * call_.dk;
  }
  __device__ void fill(T* to, const T* from) const {
    for (int d = threadIdx.x; d < kPadded; d += kThreads) to[d] = d < call_.dk ? from[d] : T(0.f);
  }
  __device__ void fill_value(Inputs& in, const T* from) const {
    if (threadIdx.x >= kStepColumns) return;
    const int column = static_cast<int>(blockIdx.x) * kStepColumns + static_cast<int>(threadIdx.x);
    in.value[threadIdx.x] = column < call_.dv ? from[column] : T(0.f);
  }
  __device__ void fill_decays(Inputs& in, const float* logs) const {
    for (int d = threadIdx.x; d < kPadded; d += kThreads) in.decays[d] = d < call_.dk ? expf(logs[d]) : 0.f;
  }

 private:
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kStepLanes;
  }
  __device__ bool inside(int c) const {
    return column_ + c < call_.dv;
  }
  __device__ float* part_of(int slot, int64_t matrix) const {
    return reinterpret_cast<float*>(call_.state + slot * call_.state_stride + matrix + own_);
  }
  __device__ float4 load_four(const float* part, int i) const {
    if (!has(i)) return {0, 0, 0, 0};
    const float* at = part + offset(i);
    if (kFour) return *reinterpret_cast<const float4*>(at);
    return {at[0], inside(1) ? at[1] : 0.f, inside(2) ? at[2] : 0.f, inside(3) ? at[3] : 0.f};
  }
  // Sums over the rows of a column: within a warp by shuffles, then over the warps in order. kAll: every thread gets
  // them, otherwise the first warp.
  template <bool kAll>
  __device__ void add_up(float (&x)[4]) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      x[c] += __shfl_xor_sync(~0u, x[c], 8);
      x[c] += __shfl_xor_sync(~0u, x[c], 16);
    }
    float* const part = sums_ + phase_ * kWarps * kStepColumns;  // two in turn: one barrier a sum
    phase_ ^= 1;
    if (threadIdx.x % 32 < kStepLanes)
      *reinterpret_cast<float4*>(part + warp * kStepColumns + lane() * 4) = {x[0], x[1], x[2], x[3]};
    __syncthreads();
    if (!kAll && warp != 0) return;
#pragma unroll
    for (int c = 0; c < 4; ++c) x[c] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float4 y = *reinterpret_cast<const float4*>(part + w * kStepColumns + lane() * 4);
      x[0] += y.x, x[1] += y.y, x[2] += y.z, x[3] += y.w;
    }
  }

  const RecurrentCall& call_;
  const int j_, column_, row_;
  const int64_t own_;  // bytes from a matrix of state 0 to this thread's part of state j
  float* const sums_;
  int phase_ = 0;
  float s_[kStepRows][4];
};

}  // namespace hayfork::engine::cuda
