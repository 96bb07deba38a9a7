// What the CUDA kernels of the recurrent mixers share. The state of one layer and sequence:
//   per state j: [header: 32 int32] [S: dk · dv float32] [S before the last write, where output rows read before it]
//   [L: dk · dv float32] [sums of log2 decays since S: one or dk float32], for scalar and channel by chunks, then,
//   where prefill runs by chunks, the open chunk's inputs at index position % kChunkRows: k, v, gates (two float32 a
//   state), and log decays per channel.
// Entry s of a header is the position that the columns [32 s, 32 s + 32) of S stand at, or that of e^{sum} S + L, as ~
// position: inputs from there to the sequence's length are the open ones. A thread block of the step and delta kernels
// reads and writes the entries of its own columns, so that no launch is needed to move on.
#pragma once

#include "engine/cuda/device.cuh"
#include "engine/kernels/recurrent.h"

namespace hayfork::engine::cuda {

// S ← decay(S) + k dᵀ, o = Sᵀ q: delta has d = β (v − Sᵀ k), the others d = scale · v with a
// decay per token and head or per token and channel.
enum class Form : uint8_t { delta, scalar, channel };

constexpr int kStepColumns = 32;       // columns of S an entry of the header is about
constexpr int64_t kHeaderFloats = 32;  // a line, so that rows of S are whole lines
constexpr int kMaxKeyDim = 512, kMaxValueDim = 512;
static_assert(kMaxValueDim <= kStepColumns * static_cast<int>(kHeaderFloats));
constexpr float kLog2E = 1.4426950408889634f;

// One call, passed to kernels by value.
struct RecurrentCall {
  Form form;
  const void *q, *k, *v;
  void* o;
  int64_t q_stride, k_stride, v_stride, o_stride;
  int n, n_q, n_k, n_v, n_out;  // states; heads of queries, keys, values, outputs (n_out a multiple of n)
  int readers;                  // heads of outputs a state
  int dk, dv;
  // delta
  const void *a, *b;
  int64_t a_stride, b_stride;
  const float *a_log, *dt_bias;
  float beta_scale;
  bool before;  // output rows read the state before their token
  // scalar, channel
  const float *per_head, *per_token, *per_channel, *v_scale, *skip;
  int64_t token_stride, channel_stride, scale_stride;
  bool skip_per_channel;
  // state: of slot 0, and distances in bytes
  char* state;
  int64_t state_stride, head_bytes, before_offset, local_offset, sums_offset, open_k, open_v, open_gates, open_logs;
  // scratch of the cells [first_cell, …) and of the segments [first_slot, …): see recurrent_chunk.cuh
  char *scratch, *slots;
  int64_t cell_bytes, scores_offset, output_scores_offset, slot_bytes;
  int first_cell, first_sequence, first_slot;
  DevicePass pass;
};

// The rows and states of a call.
void set_rows(RecurrentCall& call, const CudaContext& context, Matrix o, Matrix q, Matrix k, Matrix v, StateView state);

// Fills the state's layout. Returns its bytes. Throws: unsupported, where a state is larger than the kernels take.
int64_t lay_out_state(RecurrentCall& call, DType type);

// Token by token, rows of kinds [first_kind, end_kind): decode rows, and every row where there is no chunk kernel.
void recurrent_steps(CudaContext& context, const RecurrentCall& call, DType type, int first_kind, int end_kind);

// Whether prefill rows of this shape go through the chunk kernels: a matter of type and shape alone.
bool runs_by_chunks(DType type, Form form, int dk, int dv);
// Bytes of scratch a cell, a segment's slot shared out over its cells. Requires: the state's layout.
int64_t lay_out_scratch(RecurrentCall& call, bool output_rows);
// Of chunk_scratch_bytes(): 0 where there is no chunk kernel.
int64_t recurrent_chunk_bytes(RecurrentCall call, DType type, bool output_rows);
// Prefill rows of bf16, chunk by chunk. Requires: runs_by_chunks(…); scratch for at least one sequence.
void recurrent_chunks(CudaContext& context, RecurrentCall call, Matrix scratch);

// The whole op over the pass in flight; lays out state and scratch.
void run_recurrent(CudaContext& context, RecurrentCall call, DType type, Matrix scratch);

// Lets a kernel have that much shared memory a block. Throws: unsupported.
template <typename Kernel>
void allow_shared(const CudaContext& context, Kernel kernel, int bytes) {
  const auto room = static_cast<int>(context.properties().sharedMemPerBlockOptin);
  if (bytes > room) {
    throw Error(
        ErrorCode::unsupported, ErrorSubject::model, "a recurrent head is too large for this GPU",
        {.why = std::to_string(bytes) + " bytes of shared memory a block, the device has " + std::to_string(room),
         .next = "--device cpu"});
  }
  HAY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

// ---- device helpers
// Where the columns of a header's entry stand.
struct Mark {
  int stands;
  bool has_local;  // at e^{sum} S + L
};
__device__ inline Mark mark_at(const int* header, int position) {
  const int entry = position == 0 ? 0 : *header;
  return entry < 0 ? Mark{~entry, true} : Mark{entry, false};
}
// Where a state lies; the open chunk of a sequence.
__device__ inline float* state_of(const RecurrentCall& call, int slot, int j) {
  return reinterpret_cast<float*>(call.state + slot * call.state_stride + j * call.head_bytes);
}
template <typename T>
__device__ inline T* open_rows(const RecurrentCall& call, int slot, int64_t offset) {
  return reinterpret_cast<T*>(call.state + slot * call.state_stride + offset);
}

// 2^x as the special-function unit gives it (2 ulp), denormals flushed.
__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// x σ(x): for bf16 by the special-function unit, some units of 2⁻²².
template <typename T>
__device__ inline float silu_of(float x) {
  if constexpr (sizeof(T) == 2) return __fdividef(x, 1.f + exp2_approx(-kLog2E * x));
  return x / (1.f + expf(-x));
}

__device__ inline float softplus(float x) {
  return x > 20.f ? x : log1pf(expf(x));
}

// What the gates of state j at a row are made of, as it lies in memory.
template <typename T>
struct GateInputs {
  T a, b;               // delta
  float first, second;  // delta: log of A, bias of dt; others: log decay, scale of the value
};
template <typename T>
__device__ inline GateInputs<T> load_gates(const RecurrentCall& call, int64_t row, int j) {
  GateInputs<T> x{};
  if (call.form == Form::delta) {
    x.a = static_cast<const T*>(call.a)[row * call.a_stride + j];
    x.b = static_cast<const T*>(call.b)[row * call.b_stride + j];
    x.first = call.a_log[j];
    x.second = call.dt_bias[j];
  } else {
    x.first = call.per_head != nullptr    ? call.per_head[j]
              : call.per_token != nullptr ? call.per_token[row * call.token_stride + j]
                                          : 0.f;
    x.second = call.v_scale != nullptr ? call.v_scale[row * call.scale_stride + j] : 1.f;
  }
  return x;
}
// Log decay (natural), and β or the value's scale.
template <typename T>
__device__ inline float2 gates_from(const RecurrentCall& call, const GateInputs<T>& x) {
  if (call.form != Form::delta) return {x.first, x.second};
  return {-expf(x.first) * softplus(load(&x.a) + x.second), call.beta_scale / (1.f + expf(-load(&x.b)))};
}
template <typename T>
__device__ inline float2 gates_of(const RecurrentCall& call, int64_t row, int j) {
  return gates_from(call, load_gates<T>(call, row, j));
}

}  // namespace hayfork::engine::cuda
