// Prefill rows of the recurrent mixers by chunks: which shapes, the scratch, and the order of the kernels.
#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {
namespace {

// Keeps the inputs of each sequence's last chunk with its state. One block a position of the chunk and sequence; after
// the walk, which reads what lies there.
__global__ void keep_open_kernel(const __grid_constant__ RecurrentCall call) {
  const SequenceSpans& s = call.pass.sequences[call.first_sequence + blockIdx.y];
  if (s.n[0] == 0 || s.n_cells == 0) return;
  const int i = blockIdx.x, position = call.pass.rows[s.first[0]].pos;
  const int begin = call.pass.cells[s.first_cell + s.n_cells - 1].index * kChunk;
  if (begin + i < position || begin + i >= position + s.n[0]) return;
  const int64_t row = s.first[0] + begin + i - position;
  const int keys = call.n_k * call.dk, values = call.n_v * call.dv;
  bf16_t* const k = open_rows<bf16_t>(call, s.slot, call.open_k) + static_cast<int64_t>(i) * keys;
  bf16_t* const v = open_rows<bf16_t>(call, s.slot, call.open_v) + static_cast<int64_t>(i) * values;
  for (int c = threadIdx.x; c < keys; c += blockDim.x)
    k[c] = static_cast<const bf16_t*>(call.k)[row * call.k_stride + c];
  for (int c = threadIdx.x; c < values; c += blockDim.x)
    v[c] = static_cast<const bf16_t*>(call.v)[row * call.v_stride + c];
  float2* const gates = reinterpret_cast<float2*>(open_rows<float>(call, s.slot, call.open_gates)) + i * call.n;
  for (int j = threadIdx.x; j < call.n; j += blockDim.x) gates[j] = gates_of<bf16_t>(call, row, j);
  if (call.form != Form::channel) return;
  float* const logs = open_rows<float>(call, s.slot, call.open_logs) + static_cast<int64_t>(i) * keys;
  for (int c = threadIdx.x; c < keys; c += blockDim.x) logs[c] = call.per_channel[row * call.channel_stride + c];
}

// Whether rows can be read sixteen bytes at a time. It changes no result.
bool reads_by_sixteen(const RecurrentCall& call) {
  for (const void* p : {call.q, call.k, call.v, static_cast<const void*>(call.o)}) {
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  }
  for (const int64_t stride : {call.q_stride, call.k_stride, call.v_stride, call.o_stride}) {
    if (stride % 8 != 0) return false;
  }
  return call.dk % 8 == 0 && call.dv % 8 == 0;
}

// Cells [call.first_cell, + cells) of sequences [call.first_sequence, + sequences).
void run_group(CudaContext& context, const RecurrentCall& call, int cells, int sequences, bool output_rows) {
  if (cells == 0) return;
  const bool aligned = reads_by_sixteen(call);
  if (call.form == Form::channel) {
    channel_scores(context, call, cells, aligned);
    chunk_scan_channel(context, call, sequences, aligned);
  } else {
    chunk_scores(context, call, cells, output_rows, aligned);
    (call.form == Form::delta ? chunk_scan_delta : chunk_scan_scalar)(context, call, sequences, aligned);
  }
  keep_open_kernel<<<dim3(kChunk, static_cast<unsigned>(sequences)), 256, 0, context.stream()>>>(call);
  HAY_LAUNCHED();
}

}  // namespace

bool runs_by_chunks(DType type, Form, int dk, int dv) {
  return type == DType::bf16 && dk <= 256 && dv <= kMaxValueDim;
}

int64_t lay_out_scratch(RecurrentCall& call, bool output_rows) {
  call.scores_offset = call.n * cell_state_bytes(call.form, padded_key_dim(call.dk));
  call.output_scores_offset = call.scores_offset + call.n_out * kTileBytes;
  call.cell_bytes = call.output_scores_offset + (output_rows ? call.n_out * kTileBytes : 0);
  return call.cell_bytes;
}

void recurrent_chunks(CudaContext& context, RecurrentCall call, Matrix scratch) {
  const std::vector<SequenceSpans>& sequences = context.sequences();
  const auto n_cells = static_cast<int64_t>(context.cells().size());
  if (n_cells == 0) return;
  bool output_rows = false;
  for (const SequenceSpans& s : sequences) output_rows = output_rows || s.n[1] > 0;
  lay_out_scratch(call, output_rows);
  if (scratch.data == nullptr || scratch.cols == 0) {
    scratch = context.matrix(1, n_cells * call.cell_bytes, DType::u8);
  }
  call.scratch = static_cast<char*>(scratch.data);
  const int64_t room = scratch.cols / call.cell_bytes;
  int first = 0;
  int64_t held = 0;
  for (int i = 0; i < static_cast<int>(sequences.size()); ++i) {
    const SequenceSpans& s = sequences[static_cast<size_t>(i)];
    if (held + s.n_cells > room) {
      run_group(context, call, static_cast<int>(held), i - first, output_rows);
      first = i;
      held = 0;
    }
    HAY_CHECK(s.n_cells <= room, "a recurrent layer needs more scratch than it planned");
    if (held == 0) call.first_cell = s.first_cell;
    if (held == 0) call.first_sequence = first;
    held += s.n_cells;
  }
  run_group(context, call, static_cast<int>(held), static_cast<int>(sequences.size()) - first, output_rows);
}

}  // namespace hayfork::engine::cuda
