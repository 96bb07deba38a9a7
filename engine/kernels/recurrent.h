// What the recurrent ops share: where a sequence's state lies, and the rows of a pass by sequence.
//
// State on the CPU: the ops walk base rows token by token, so the state stands exactly after the last base row and any
// split into passes gives the same bits; prefill and decode rows are computed alike. So do the plain CUDA kernels. The
// CUDA kernels for bf16 evaluate prefill rows chunk by chunk on the absolute grid of kChunkRows positions:
// their state is S before the last chunk, and that chunk's inputs, until a decode row folds them in. Linear attention
// with decay keeps S in two parts then: at the begin of the open segment, and what its chunks have added since.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/rows.h"

namespace hayfork::engine {

// One layer's states: the state of slot s begins at base + s · stride + offset bytes.
struct StateView {
  char* base = nullptr;
  int64_t stride = 0;
  int64_t offset = 0;

  float* of(int32_t slot) const { return reinterpret_cast<float*>(base + slot * stride + offset); }
  StateView at(int64_t bytes) const { return {base, stride, offset + bytes}; }
};

constexpr int64_t kStateAlign = 128;  // bytes; the cache keeps slots at multiples of it: no two share a line
inline int64_t state_bytes(int64_t n_floats) {
  return (n_floats * 4 + kStateAlign - 1) / kStateAlign * kStateAlign;
}

constexpr int64_t kChunkRows = 64;      // positions a chunk; part of the numerics
constexpr int32_t kSegmentChunks = 32;  // chunks whose share of a state is summed up apart; part of the numerics

// Scratch of an op that needs `chunk_bytes` a chunk, for a pass of n_rows: the last two chunks of up to kSpareChunks /
// 2 sequences lie beside the full ones; with more sequences the op takes them by turns.
constexpr int64_t kSpareChunks = 32;
inline int64_t chunk_scratch_bytes(int64_t chunk_bytes, int64_t n_rows) {
  return chunk_bytes * (n_rows / kChunkRows + kSpareChunks);
}

// Row indices of one sequence of the pass, ascending by position.
struct SequenceRows {
  int32_t seq = 0;
  std::vector<int32_t> base, output;
};
// Sequences with at least one row. Checks that base positions are consecutive.
std::vector<SequenceRows> rows_by_sequence(const Pass& pass);

}  // namespace hayfork::engine
