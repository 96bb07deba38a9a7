// How a pass's rows lie by sequence and by chunk: what the recurrent ops walk.
#include <algorithm>

#include "engine/cuda/device.cuh"
#include "engine/kernels/recurrent.h"

namespace hayfork::engine::cuda {
namespace {

// The chunks of a sequence's prefill rows. The one that holds the position before them comes first: its inputs are
// still apart from the state, and output rows may read it.
void add_cells(const Pass& pass, int32_t seq, SequenceSpans& sequence, std::vector<ChunkCell>& cells) {
  const int32_t n_base = sequence.n[0], n_output = sequence.n[1];
  if (n_base + n_output == 0) return;
  const auto position = [&](int32_t row) { return pass.rows[static_cast<size_t>(row)].pos; };
  const int32_t begin = n_base > 0 ? position(sequence.first[0]) : position(sequence.first[1] + n_output - 1) + 1;
  const auto chunk = static_cast<int32_t>(kChunkRows);
  const int32_t first = std::max(begin - 1, 0) / chunk, last = std::max(begin + n_base - 1, 0) / chunk;
  for (int32_t c = first; c <= last; ++c) cells.push_back({seq, c});
  sequence.n_cells = last - first + 1;
}

}  // namespace

void split_sequences(const Pass& pass, std::vector<SequenceSpans>& sequences, std::vector<ChunkCell>& cells) {
  sequences.clear();
  cells.clear();
  for (const SeqView& view : pass.seqs) sequences.push_back({.slot = view.state_slot});
  for (int32_t i = 0; i < static_cast<int32_t>(pass.rows.size()); ++i) {
    const Row& row = pass.rows[static_cast<size_t>(i)];
    if (row.pos < 0) continue;  // fills up the pass
    SequenceSpans& sequence = sequences[static_cast<size_t>(row.seq)];
    const size_t group = static_cast<size_t>(row.kind) * 2 + static_cast<size_t>(row.stream);
    if (sequence.n[group]++ == 0) sequence.first[group] = i;
  }
  int32_t slots = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    SequenceSpans& sequence = sequences[s];
    sequence.first_cell = static_cast<int32_t>(cells.size());
    sequence.first_slot = slots;
    if (sequence.slot < 0) continue;
    add_cells(pass, static_cast<int32_t>(s), sequence, cells);
    if (sequence.n_cells == 0) continue;
    const int32_t first = cells[static_cast<size_t>(sequence.first_cell)].index;
    const int32_t segments = (first + sequence.n_cells - 1) / kSegmentChunks - first / kSegmentChunks + 1;
    sequence.n_slots = segments > 1 ? segments : 0;
    slots += sequence.n_slots;
  }
}

}  // namespace hayfork::engine::cuda
