// Chunks of kChunkRows positions for the recurrent mixers' prefill rows, on tensor cores (mixers.md 4–7): a kernel that
// is parallel over chunks makes what needs no state (scores, gates, and for the delta rule the inverse of the unit
// lower triangular system), one that walks the chunks of a sequence carries the state. Scratch a cell, all bf16 but for
// gates:
//   per state: gates G [64] (inclusive sums of log2 decays) and β or the value's scale [64], float32
//   delta: T [64][64] per state; channel: q̃ and k̃ [64][DK] and e^{b} [DK] float32 per state
//   scores P [64][64] per output head, and those of output rows
// What a row gets depends on rows up to its own alone, so a chunk that is still open gives the same bits later.
#pragma once

#include "engine/kernels/mma.cuh"
#include "engine/kernels/recurrent.cuh"

namespace hayfork::engine::cuda {

constexpr int kChunk = static_cast<int>(kChunkRows);
constexpr int kPad = 8;                              // elements between rows in shared memory: no bank conflicts
constexpr int64_t kTileBytes = kChunk * kChunk * 2;  // T or P
constexpr int64_t kGateBytes = 2 * kChunk * 4;

using bf16_t = __nv_bfloat16;

// The head width the kernels are compiled for.
inline int padded_key_dim(int dk) {
  return dk <= 16 ? 16 : dk <= 32 ? 32 : dk <= 64 ? 64 : dk <= 128 ? 128 : 256;
}

// Bytes of one state's part of a cell, before the scores.
__host__ __device__ inline int64_t cell_state_bytes(Form form, int padded) {
  return kGateBytes + (form == Form::delta ? kTileBytes : form == Form::channel ? kChunk * padded * 4 + padded * 4 : 0);
}

// A chunk of one sequence: its rows [lo, hi) that are neither in the state yet nor beyond the sequence. Rows from
// `fresh` on are of this pass, the ones before are kept with the state.
struct Cell {
  const SequenceSpans* sequence;
  int begin, lo, hi, fresh;
  __device__ int64_t row(int i) const { return sequence->first[0] + i - fresh; }
  __device__ bool has(int i) const { return i >= lo && i < hi; }
  __device__ bool is_whole() const { return fresh <= 0 && lo == 0 && hi == kChunk; }  // all of it rows of this pass
};

// First position of the sequence's new rows.
__device__ inline int first_position(const RecurrentCall& call, const SequenceSpans& s) {
  return s.n[0] > 0 ? call.pass.rows[s.first[0]].pos : call.pass.rows[s.first[1] + s.n[1] - 1].pos + 1;
}
// `stands`: the position S stands at.
__device__ inline Cell cell_at(const SequenceSpans& s, int index, int position, int stands) {
  const int begin = index * kChunk;
  return {&s, begin, max(stands - begin, 0), min(position + s.n[0] - begin, kChunk), position - begin};
}

// The sequence's first output row at `position` or later: its index among them.
__device__ inline int output_row_from(const RecurrentCall& call, const SequenceSpans& s, int position) {
  int low = 0, high = s.n[1];
  while (low < high) {
    const int middle = (low + high) / 2;
    if (call.pass.rows[s.first[1] + middle].pos < position) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
// Whether output rows read this chunk.
__device__ inline bool has_output_rows(const RecurrentCall& call, const Cell& cell) {
  const SequenceSpans& s = *cell.sequence;
  if (s.n[1] == 0) return false;
  const int i = output_row_from(call, s, cell.begin);
  return i < s.n[1] && call.pass.rows[s.first[1] + i].pos < cell.begin + kChunk;
}
// The pass's row that asks at index i of the chunk, or −1: of the base stream or of the output stream.
__device__ inline int asking_row(const RecurrentCall& call, const Cell& cell, int i, bool of_output_rows) {
  const SequenceSpans& s = *cell.sequence;
  if (!of_output_rows) return i >= cell.fresh && i < cell.hi ? static_cast<int>(cell.row(i)) : -1;
  const int at = output_row_from(call, s, cell.begin + i);
  return at < s.n[1] && call.pass.rows[s.first[1] + at].pos == cell.begin + i ? s.first[1] + at : -1;
}
// The chunk's inputs: row i of k or v of one head.
__device__ inline const bf16_t* key_row(const RecurrentCall& call, const Cell& cell, int i, int head) {
  if (!cell.has(i)) return nullptr;
  if (i >= cell.fresh) return static_cast<const bf16_t*>(call.k) + cell.row(i) * call.k_stride + head * call.dk;
  return open_rows<bf16_t>(call, cell.sequence->slot, call.open_k) +
         (static_cast<int64_t>(i) * call.n_k + head) * call.dk;
}
__device__ inline const bf16_t* value_row(const RecurrentCall& call, const Cell& cell, int i, int head) {
  if (!cell.has(i)) return nullptr;
  if (i >= cell.fresh) return static_cast<const bf16_t*>(call.v) + cell.row(i) * call.v_stride + head * call.dv;
  return open_rows<bf16_t>(call, cell.sequence->slot, call.open_v) +
         (static_cast<int64_t>(i) * call.n_v + head) * call.dv;
}

__device__ inline char* cell_scratch(const RecurrentCall& call, int cell) {
  return call.scratch + (cell - call.first_cell) * call.cell_bytes;
}
__device__ inline char* state_scratch(const RecurrentCall& call, int cell, int j, int padded) {
  return cell_scratch(call, cell) + j * cell_state_bytes(call.form, padded);
}
__device__ inline bf16_t* scores_of(const RecurrentCall& call, int cell, int h, bool of_output_rows) {
  return reinterpret_cast<bf16_t*>(cell_scratch(call, cell) +
                                   (of_output_rows ? call.output_scores_offset : call.scores_offset) + h * kTileBytes);
}

// kRows rows of kWidth columns into shared memory, rows kWidth + kPad apart; source(i) is null for a row of zeros, and
// columns from `width` on are zeros. Asynchronous where kAligned: the caller commits and waits.
template <int kRows, int kWidth, bool kAligned, int kThreads, typename Source>
__device__ inline void load_rows(bf16_t* to, int width, const void* valid, Source source) {
  constexpr int kPieces = kWidth / 8;
  for (int e = threadIdx.x; e < kRows * kPieces; e += kThreads) {
    const int i = e / kPieces, c = e % kPieces * 8;
    const bf16_t* from = source(i);
    bf16_t* at = to + i * (kWidth + kPad) + c;
    if constexpr (kAligned) {
      const bool there = from != nullptr && c < width;
      copy_async_16(shared_address(at), there ? from + c : valid, there ? 16 : 0);
    } else {
#pragma unroll
      for (int x = 0; x < 8; ++x) at[x] = from != nullptr && c + x < width ? from[c + x] : __float2bfloat16(0.f);
    }
  }
}

// The same for rows `stride` elements apart. Requires: aligned addresses.
template <int kRows, int kWidth, int kThreads>
__device__ inline void load_even_rows(bf16_t* to, const bf16_t* from, int64_t stride, int width) {
  constexpr int kPieces = kWidth / 8, kStep = kThreads / kPieces;
  static_assert(kThreads % kPieces == 0);
  const int first = threadIdx.x / kPieces, c = threadIdx.x % kPieces * 8;
  const int bytes = c < width ? 16 : 0;
  from += first * stride + (c < width ? c : 0);
  uint32_t at = shared_address(to + first * (kWidth + kPad) + c);
#pragma unroll
  for (int i = 0; i < kRows; i += kStep) {
    if (kStep <= kRows || first < kRows) copy_async_16(at, from, bytes);
    from += kStep * stride;
    at += kStep * (kWidth + kPad) * 2;
  }
}

// Fragments of mma.cuh from tiles in shared memory whose rows are `stride` elements apart.
// A: rows m, columns k as stored.
__device__ inline void load_a(uint32_t (&a)[4], const bf16_t* tile, int stride) {
  const int lane = threadIdx.x % 32;
  load_matrix_x4(a, shared_address(tile + lane % 16 * stride + lane / 16 * 8));
}
// A from a tile stored as [k][m].
__device__ inline void load_a_transposed(uint32_t (&a)[4], const bf16_t* tile, int stride) {
  const int lane = threadIdx.x % 32;
  load_matrix_x4_transposed(a, shared_address(tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8));
}
// B of two adjacent n-tiles (b[0], b[1] and b[2], b[3]) from a tile stored as [k][n].
__device__ inline void load_b(uint32_t (&b)[4], const bf16_t* tile, int stride) {
  const int lane = threadIdx.x % 32;
  load_matrix_x4_transposed(b, shared_address(tile + lane % 16 * stride + lane / 16 * 8));
}
// The same from a tile stored as [n][k].
__device__ inline void load_b_transposed(uint32_t (&b)[4], const bf16_t* tile, int stride) {
  const int lane = threadIdx.x % 32;
  load_matrix_x4(b, shared_address(tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8));
}

// Gates of the chunk's rows into shared memory: inclusive sums of log2 decays, and β or scale. Every thread of the
// first two warps takes part; a barrier follows.
__device__ inline void chunk_gates(const RecurrentCall& call, const Cell& cell, int j, float* sums, float* scales) {
  const int i = threadIdx.x;
  if (i < kChunk) {
    float2 gates = {0, 0};
    if (cell.has(i)) {
      gates = i >= cell.fresh
                  ? gates_of<bf16_t>(call, cell.row(i), j)
                  : *reinterpret_cast<const float2*>(open_rows<float>(call, cell.sequence->slot, call.open_gates) +
                                                     (i * call.n + j) * 2);
    }
    sums[i] = gates.x * kLog2E;
    scales[i] = gates.y;
  }
  __syncthreads();
  if (i < 32) {
    const float first = sums[2 * i], both = first + sums[2 * i + 1];
    float inclusive = both;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const float below = __shfl_up_sync(~0u, inclusive, d);
      if (i >= d) inclusive += below;
    }
    const float before = __shfl_up_sync(~0u, inclusive, 1);
    sums[2 * i] = (i > 0 ? before : 0.f) + first;  // never inclusive − something: a row must not depend on later ones
    sums[2 * i + 1] = inclusive;
  }
  __syncthreads();
}

// The kernels' launchers. `cells`, `sequences`: how many, from call.first_cell and call.first_sequence on.
void chunk_scores(CudaContext& context, const RecurrentCall& call, int cells, bool output_rows, bool aligned);
void channel_scores(CudaContext& context, const RecurrentCall& call, int cells, bool aligned);
void chunk_scan_delta(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned);
void chunk_scan_scalar(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned);
void chunk_scan_channel(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned);

}  // namespace hayfork::engine::cuda
