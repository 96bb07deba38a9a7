// Chunks of kChunkRows positions for the recurrent mixers' prefill rows, on tensor cores: a kernel that
// is parallel over chunks makes what needs no state (gates, scores, and for the delta rule the inverse of the unit
// lower triangular system); the state is carried chunk by chunk (delta_scan.cu) or by segments that run at
// once (scalar, channel: segment.cuh). Scratch a cell, all bf16 but for gates:
//   per state: gates G [64] (inclusive sums of log2 decays) and β or the value's scale [64], float32
//   delta: T [64][64] per state; channel: q̃ and k̃ [64][DK] and the chunk's sum of log2 decays [DK] float32 per state
//   delta, channel: scores P [64][64] per output head, and those of output rows
// and a slot, for every segment of a sequence that has several: per state [S or L: dk · dv float32] [sums, as the state
// keeps them].
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
__host__ __device__ inline int padded_key_dim(int dk) {
  return dk <= 16 ? 16 : dk <= 32 ? 32 : dk <= 64 ? 64 : dk <= 128 ? 128 : 256;
}
// Calls f with that width as a compile-time constant.
template <typename F>
void with_key_dim(int dk, F f) {
  switch (padded_key_dim(dk)) {
    case 16:
      return f(std::integral_constant<int, 16>{});
    case 32:
      return f(std::integral_constant<int, 32>{});
    case 64:
      return f(std::integral_constant<int, 64>{});
    case 128:
      return f(std::integral_constant<int, 128>{});
    default:
      return f(std::integral_constant<int, 256>{});
  }
}
// Two neighbouring columns of a float32 matrix of which n exist, the others zero. is_even: rows have an even number of
// columns, so that pairs are aligned.
__device__ inline float2 load_pair(const float* at, int n, bool is_even) {
  if (is_even) return n == 2 ? *reinterpret_cast<const float2*>(at) : float2{0, 0};
  return {n > 0 ? at[0] : 0.f, n > 1 ? at[1] : 0.f};
}
__device__ inline void store_pair(float* at, float2 pair, int n, bool is_even) {
  if (is_even) {
    if (n == 2) *reinterpret_cast<float2*>(at) = pair;
  } else {
    if (n > 0) at[0] = pair.x;
    if (n > 1) at[1] = pair.y;
  }
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

// The part of a sequence's chunks that lies in one segment.
struct Piece {
  int index;                // among the sequence's
  int first_cell, n_cells;  // from the sequence's first one
  __device__ bool is_last(const SequenceSpans& s) const { return index + 1 >= s.n_slots; }
};
__device__ inline Piece piece_of(const RecurrentCall& call, const SequenceSpans& s, int index) {
  if (s.n_cells == 0 || index >= max(s.n_slots, 1)) return {index, 0, 0};
  const int first = call.pass.cells[s.first_cell].index;
  const int segment = (first / kSegmentChunks + index) * kSegmentChunks;
  const int begin = max(segment, first), end = min(segment + kSegmentChunks, first + s.n_cells);
  return {index, begin - first, end - begin};
}

// What a state keeps, and a segment's slot of the scratch.
__device__ inline float* kept_state(const RecurrentCall& call, int slot, int j) {
  return state_of(call, slot, j) + kHeaderFloats;
}
__device__ inline float* kept_local(const RecurrentCall& call, int slot, int j) {
  return reinterpret_cast<float*>(reinterpret_cast<char*>(state_of(call, slot, j)) + call.local_offset);
}
__device__ inline float* kept_sums(const RecurrentCall& call, int slot, int j) {
  return reinterpret_cast<float*>(reinterpret_cast<char*>(state_of(call, slot, j)) + call.sums_offset);
}
__device__ inline float* slot_of(const RecurrentCall& call, const SequenceSpans& s, int index, int j) {
  const int64_t state = call.slot_bytes / call.n;
  return reinterpret_cast<float*>(call.slots + (s.first_slot - call.first_slot + index) * call.slot_bytes + j * state);
}
__device__ inline float* slot_sums(const RecurrentCall& call, const SequenceSpans& s, int index, int j) {
  return slot_of(call, s, index, j) + (call.sums_offset - call.local_offset) / 4;
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

// Two bf16 numbers, each times a float32 one, rounded once.
__device__ inline uint32_t weighted_pair(uint32_t pair, float2 by) {
  const float2 x = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&pair));
  return pack_bf16(x.x * by.x, x.y * by.y);
}

// Gates of the chunk's rows: inclusive sums of log2 decays, and β or scale. All threads of one warp take part.
__device__ inline void chunk_gates(const RecurrentCall& call, const Cell& cell, int j, float* sums, float* scales) {
  const int lane = threadIdx.x % 32;
  float2 gates[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int i = 2 * lane + e;
    gates[e] = {0, 0};
    if (!cell.has(i)) continue;
    gates[e] = i >= cell.fresh
                   ? gates_of<bf16_t>(call, cell.row(i), j)
                   : *reinterpret_cast<const float2*>(open_rows<float>(call, cell.sequence->slot, call.open_gates) +
                                                      (i * call.n + j) * 2);
  }
  const float first = gates[0].x * kLog2E, both = first + gates[1].x * kLog2E;
  float inclusive = both;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const float below = __shfl_up_sync(~0u, inclusive, d);
    if (lane >= d) inclusive += below;
  }
  const float before = __shfl_up_sync(~0u, inclusive, 1);
  // Never inclusive − something: a row must not depend on later ones.
  *reinterpret_cast<float2*>(sums + 2 * lane) = {(lane > 0 ? before : 0.f) + first, inclusive};
  *reinterpret_cast<float2*>(scales + 2 * lane) = {gates[0].y, gates[1].y};
}

// The kernels' launchers. `cells`, `sequences`: how many, from call.first_cell and call.first_sequence on; `pieces`: of
// the sequence that has most.
void delta_scores(CudaContext& context, const RecurrentCall& call, int cells, bool output_rows, bool aligned);
void delta_scan(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned);
void channel_scores(CudaContext& context, const RecurrentCall& call, int cells, bool aligned);
void segment_gates(CudaContext& context, const RecurrentCall& call, int cells);
void segment_join(CudaContext& context, const RecurrentCall& call, int sequences);
// The first `pieces` segments of every sequence: what each adds to the state, or its answers. Those of _sm90 are for
// Hopper and keys of more than 32 columns.
using SegmentLaunch = void(CudaContext& context, const RecurrentCall& call, int sequences, int pieces, bool aligned,
                           bool answers);
SegmentLaunch scalar_segments, channel_segments, scalar_segments_sm90, channel_segments_sm90;

}  // namespace hayfork::engine::cuda
