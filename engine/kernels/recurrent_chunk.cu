// Prefill rows of the recurrent mixers by chunks: which shapes, the scratch, and the order of the kernels.
#include "engine/kernels/recurrent_chunk.cuh"

namespace hayfork::engine::cuda {
namespace {

// Moves a sequence's states on to the begin of its last chunk, where its last segment's walk has left S and L: marks,
// and sums of log decays.
__device__ inline void move_on(const RecurrentCall& call, const SequenceSpans& s, int position) {
  const Piece piece = piece_of(call, s, max(s.n_slots, 1) - 1);
  const auto header = [&](int j) { return reinterpret_cast<int*>(state_of(call, s.slot, j)); };
  const int sums = call.form == Form::channel ? call.dk : 1, padded = padded_key_dim(call.dk);
  for (int e = threadIdx.x; e < call.n * sums; e += blockDim.x) {
    const int j = e / sums, d = e % sums;
    float* const kept = kept_sums(call, s.slot, j) + d;
    float sum = s.n_slots == 0 && mark_at(header(j), position).has_local ? *kept : 0.f;
    for (int c = piece.first_cell; c + 1 < piece.first_cell + piece.n_cells; ++c) {
      const char* const cell = state_scratch(call, s.first_cell + c, j, padded);
      sum += call.form == Form::channel ? reinterpret_cast<const float*>(cell + kGateBytes + kChunk * padded * 4)[d]
                                        : reinterpret_cast<const float*>(cell)[kChunk - 1];
    }
    *kept = sum;
  }
  __syncthreads();  // the marks have been read
  const int entries = (call.dv + kStepColumns - 1) / kStepColumns;
  const int begin = call.pass.cells[s.first_cell + s.n_cells - 1].index * kChunk;
  for (int e = threadIdx.x; e < call.n * entries; e += blockDim.x) {
    int* const entry = header(e / entries) + e % entries;
    const Mark mark = mark_at(entry, position);
    const bool has_local = piece.n_cells > 1 || (s.n_slots == 0 && mark.has_local);
    const int stands = max(mark.stands, begin);
    *entry = has_local ? ~stands : stands;
  }
}

// Keeps the inputs of each sequence's last chunk with its state. One block a position of the chunk and sequence; after
// the walks, which read what lies there.
__global__ void keep_open_kernel(const __grid_constant__ RecurrentCall call) {
  const SequenceSpans& s = call.pass.sequences[call.first_sequence + blockIdx.y];
  if (s.n[0] == 0 || s.n_cells == 0) return;
  const int i = blockIdx.x, position = call.pass.rows[s.first[0]].pos;
  if (i == 0 && call.form != Form::delta) move_on(call, s, position);
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

// What a stretch of sequences needs of the scratch.
struct Group {
  int64_t cells = 0, slots = 0;
  int sequences = 0, pieces = 0;  // pieces: of the sequence that has most
  void add(const SequenceSpans& s) {
    cells += s.n_cells;
    slots += s.n_slots;
    ++sequences;
    pieces = std::max(pieces, std::max(s.n_slots, 1));
  }
  int64_t bytes(const RecurrentCall& call) const { return cells * call.cell_bytes + slots * call.slot_bytes; }
};

void run_segments(CudaContext& context, const RecurrentCall& call, const Group& group, bool aligned) {
  const bool scalar = call.form == Form::scalar;
  const bool hopper = context.properties().major == 9 && padded_key_dim(call.dk) >= 64;
  SegmentLaunch* const walk =
      hopper ? (scalar ? scalar_segments_sm90 : channel_segments_sm90) : (scalar ? scalar_segments : channel_segments);
  if (group.pieces > 1) {
    walk(context, call, group.sequences, group.pieces - 1, aligned, false);
    segment_join(context, call, group.sequences);
  }
  walk(context, call, group.sequences, group.pieces, aligned, true);
}

// The sequences [call.first_sequence, …) of the group.
void run_group(CudaContext& context, RecurrentCall call, const Group& group, bool output_rows) {
  if (group.cells == 0) return;
  const SequenceSpans& first = context.sequences()[static_cast<size_t>(call.first_sequence)];
  call.first_cell = first.first_cell;
  call.first_slot = first.first_slot;
  call.slots = call.scratch + group.cells * call.cell_bytes;
  const bool aligned = reads_by_sixteen(call);
  const int cells = static_cast<int>(group.cells);
  if (call.form == Form::delta) {
    delta_scores(context, call, cells, output_rows, aligned);
    delta_scan(context, call, group.sequences, aligned);
  } else {
    if (call.form == Form::scalar) {
      segment_gates(context, call, cells);
    } else {
      channel_scores(context, call, cells, aligned);
    }
    run_segments(context, call, group, aligned);
  }
  keep_open_kernel<<<dim3(kChunk, static_cast<unsigned>(group.sequences)), 256, 0, context.stream()>>>(call);
  HAY_LAUNCHED();
}

}  // namespace

bool runs_by_chunks(DType type, Form, int dk, int dv) {
  return type == DType::bf16 && dk <= 256 && dv <= kMaxValueDim;
}

int64_t lay_out_scratch(RecurrentCall& call, bool output_rows) {
  const int64_t scores = call.form == Form::scalar ? 0 : call.n_out * kTileBytes;
  call.scores_offset = call.n * cell_state_bytes(call.form, padded_key_dim(call.dk));
  call.output_scores_offset = call.scores_offset + scores;
  call.cell_bytes = call.output_scores_offset + (output_rows ? scores : 0);
  call.slot_bytes = call.form == Form::delta ? 0 : call.n * (call.head_bytes - call.local_offset);
  return call.cell_bytes + (call.slot_bytes + kSegmentChunks - 1) / kSegmentChunks;
}

int64_t recurrent_chunk_bytes(RecurrentCall call, DType type, bool output_rows) {
  if (!runs_by_chunks(type, call.form, call.dk, call.dv)) return 0;
  lay_out_state(call, type);
  return lay_out_scratch(call, output_rows);
}

void recurrent_chunks(CudaContext& context, RecurrentCall call, Matrix scratch) {
  const std::vector<SequenceSpans>& sequences = context.sequences();
  if (context.cells().empty()) return;
  bool output_rows = false;
  Group all;
  for (const SequenceSpans& s : sequences) {
    output_rows = output_rows || s.n[1] > 0;
    all.add(s);
  }
  lay_out_scratch(call, output_rows);
  if (scratch.data == nullptr || scratch.cols == 0) scratch = context.matrix(1, all.bytes(call), DType::u8);
  call.scratch = static_cast<char*>(scratch.data);
  Group group;
  for (int i = 0; i < static_cast<int>(sequences.size()); ++i) {
    Group more = group;
    more.add(sequences[static_cast<size_t>(i)]);
    if (more.bytes(call) > scratch.cols) {
      run_group(context, call, group, output_rows);
      call.first_sequence = i;
      more = {};
      more.add(sequences[static_cast<size_t>(i)]);
      HAY_CHECK(more.bytes(call) <= scratch.cols, "a recurrent layer needs more scratch than it planned");
    }
    group = more;
  }
  run_group(context, call, group, output_rows);
}

}  // namespace hayfork::engine::cuda
