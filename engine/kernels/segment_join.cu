// What the segments of linear attention with decay need beside their walks: the gates of every chunk before them, and
// the chain from segment to segment between them.
#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr int kHeads = 4;  // a block of gates_kernel, one a warp
constexpr int kThreads = 256;
constexpr int kAhead = 8;  // segments whose sums are on their way

__global__ void __launch_bounds__(kHeads * 32) gates_kernel(const __grid_constant__ RecurrentCall call) {
  const int cell_index = call.first_cell + static_cast<int>(blockIdx.x);
  const int j = static_cast<int>(blockIdx.y * kHeads + threadIdx.x / 32);
  if (j >= call.n) return;
  const ChunkCell at = call.pass.cells[cell_index];
  const SequenceSpans& sequence = call.pass.sequences[at.seq];
  const int position = first_position(call, sequence);
  const int stands = mark_at(reinterpret_cast<const int*>(state_of(call, sequence.slot, j)), position).stands;
  float* const sums = reinterpret_cast<float*>(state_scratch(call, cell_index, j, 0));
  chunk_gates(call, cell_at(sequence, at.index, position, stands), j, sums, sums + kChunk);
}

// Four elements of S through the segments: a slot held L and gets the S that its segment begins with; the last one's S
// goes to the state. The L that the first segment has from earlier passes goes to the last slot.
__global__ void __launch_bounds__(kThreads) join_kernel(const __grid_constant__ RecurrentCall call) {
  const SequenceSpans sequence = call.pass.sequences[call.first_sequence + static_cast<int>(blockIdx.z)];
  if (sequence.n_slots == 0) return;
  const int j = blockIdx.y, size = call.dk * call.dv;
  const int e = static_cast<int>(blockIdx.x * kThreads + threadIdx.x) * 4;  // matrices are padded to multiples of 16
  if (e >= size) return;
  const int position = first_position(call, sequence);
  const bool has_local = mark_at(reinterpret_cast<const int*>(state_of(call, sequence.slot, j)), position).has_local;
  const auto place = [&](int p) { return reinterpret_cast<float4*>(slot_of(call, sequence, p, j) + e); };
  float4* const kept = reinterpret_cast<float4*>(kept_state(call, sequence.slot, j) + e);
  float4 s = {0, 0, 0, 0};
  if (position > 0) s = *kept;
  const int n = sequence.n_slots - 1;
  if (has_local) *place(n) = *reinterpret_cast<const float4*>(kept_local(call, sequence.slot, j) + e);
  int row[4] = {};
  if (call.form == Form::channel) {
#pragma unroll
    for (int c = 0; c < 4; ++c) row[c] = min((e + c) / call.dv, call.dk - 1);
  }
  for (int begin = 0; begin < n; begin += kAhead) {
    float4 added[kAhead];
#pragma unroll
    for (int p = 0; p < kAhead; ++p)
      if (begin + p < n) added[p] = *place(begin + p);
#pragma unroll
    for (int p = 0; p < kAhead; ++p) {
      if (begin + p >= n) break;
      *place(begin + p) = s;
      const float* const sums = slot_sums(call, sequence, begin + p, j);
      s.x = fmaf(exp2_approx(sums[row[0]]), s.x, added[p].x);
      s.y = fmaf(exp2_approx(sums[row[1]]), s.y, added[p].y);
      s.z = fmaf(exp2_approx(sums[row[2]]), s.z, added[p].z);
      s.w = fmaf(exp2_approx(sums[row[3]]), s.w, added[p].w);
    }
  }
  *kept = s;
}

}  // namespace

void segment_gates(CudaContext& context, const RecurrentCall& call, int cells) {
  const dim3 grid(static_cast<unsigned>(cells), static_cast<unsigned>((call.n + kHeads - 1) / kHeads));
  gates_kernel<<<grid, kHeads * 32, 0, context.stream()>>>(call);
  HAY_LAUNCHED();
}

void segment_join(CudaContext& context, const RecurrentCall& call, int sequences) {
  const int blocks = (call.dk * call.dv + kThreads * 4 - 1) / (kThreads * 4);
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(call.n), static_cast<unsigned>(sequences));
  join_kernel<<<grid, kThreads, 0, context.stream()>>>(call);
  HAY_LAUNCHED();
}

}  // namespace hayfork::engine::cuda
