// Attention with mma.sync (compute capability 8.0 and later), bf16 in, float32 sums.
//  tiles: prefill base rows, one block a (tile of up to 128 rows, head); online softmax over pages of 64 keys,
//  ascending. split: decode rows and output rows, one block a (sequence item, kv head, segment of keys); each warp
//  takes every fourth
//         page of the segment; warps, then segments, are merged in ascending order (rulings A4).
// Both visit keys at absolute positions only, and rows share nothing but loads, so a row's bits depend on itself alone.
#include <algorithm>
#include <mutex>

#include "engine/kernels/attention.cuh"
#include "engine/kernels/mma.cuh"

namespace hayfork::engine::cuda {
namespace {

using bf = __nv_bfloat16;
constexpr int kPage = kBlockTokens;  // 64 keys
static_assert(kPage == 64);

// Shared tiles are [64 keys][D] with the 16-byte chunks of a row exchanged by the row's number: ldmatrix reads 8 rows
// without bank conflicts.
template <int D>
__device__ inline uint32_t tile_offset(int row, int chunk) {
  constexpr int kChunks = D / 8;
  constexpr int kMask = kChunks < 8 ? kChunks - 1 : 7;
  return static_cast<uint32_t>((row * kChunks + (chunk ^ (row & kMask))) * 16);
}

// Copies one page's [64][dim] keys or values into a [64][D] tile, zeros beyond dim and from row `valid` on: a
// probability of zero must not meet what an unwritten slot holds. All `n_threads` threads call it.
template <int D>
__device__ inline void copy_page(uint32_t tile, const bf* page, int dim, int valid, int thread, int n_threads) {
  for (int e = thread; e < kPage * (D / 8); e += n_threads) {
    const int row = e / (D / 8), chunk = e % (D / 8);
    const bool in = chunk * 8 < dim && row < valid;
    copy_async_16(tile + tile_offset<D>(row, chunk), in ? page + row * dim + chunk * 8 : page, in ? 16 : 0);
  }
}

// The same of a page with all its rows and D wide: a thread's rows lie a fixed distance apart, and so do their places.
template <int D, int kThreads>
__device__ inline void copy_whole_page(uint32_t tile, const bf* page, int thread) {
  constexpr int kChunks = D / 8, kStep = kThreads / kChunks;  // rows between a thread's
  static_assert(kThreads % kChunks == 0 && (kStep % 8 == 0 || kStep == 4));
  const int row = thread / kChunks, chunk = thread % kChunks;
  const bf* from = page + row * D + chunk * 8;
  const uint32_t even = tile + tile_offset<D>(row, chunk);
  const uint32_t odd = tile + tile_offset<D>(row + kStep, chunk) - kStep * D * 2;
#pragma unroll
  for (int i = 0; i < kPage / kStep; ++i) {
    copy_async_16((i % 2 == 0 ? even : odd) + i * kStep * D * 2, from + i * kStep * D, 16);
  }
}

// Score and probability of one accumulator element.
struct RowState {
  float m = -INFINITY, l = 0;
};

// ---- tiles ----------------------------------------------------------------------------------------------------------

template <int D>
struct TileShape {
  static constexpr int kWarps = D > 128 ? 4 : 8;  // 16 rows each
  static constexpr int kRows = kWarps * 16;
  static constexpr int kStages = D > 128 ? 1 : 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr size_t kShared = (static_cast<size_t>(kRows) + 2 * kStages * kPage) * D * sizeof(bf);
};

template <int D>
__global__ void __launch_bounds__(TileShape<D>::kThreads) tiles_kernel(AttentionCall call) {
  using S = TileShape<D>;
  const int head = blockIdx.x % call.n_heads;
  const int tile_index = blockIdx.x / call.n_heads / (kTileRows / S::kRows);
  const int part = blockIdx.x / call.n_heads % (kTileRows / S::kRows);
  const RowTile tile = call.pass.tiles[tile_index];
  if (part * S::kRows >= tile.n) return;
  const int kv_head = head / call.group_size;
  const int window = window_of(call, kv_head, tile.stream);
  const int* table = block_table(call.pass, tile.seq, call.table_group);
  const int row0 = tile.first + part * S::kRows;
  const int n_rows = min(S::kRows, tile.n - part * S::kRows);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t q_tile = shared_address(shared);
  const uint32_t k_tiles = q_tile + S::kRows * D * 2;
  const uint32_t v_tiles = k_tiles + S::kStages * kPage * D * 2;
  constexpr uint32_t kTileBytes = kPage * D * 2;

  // Rows of a tile ascend in position, so its first and last row bound what must be visited.
  const int min_pos = call.pass.rows[row0].pos, max_pos = call.pass.rows[row0 + n_rows - 1].pos;
  const int begin = first_key(min_pos, window) / kPage, end = max_pos / kPage + 1;
  const auto page = [&](const void* base, int at) {
    return static_cast<const bf*>(base) + (static_cast<int64_t>(table[at]) * call.n_kv + kv_head) * kPage * call.k_dim;
  };

  for (int e = threadIdx.x; e < S::kRows * (D / 8); e += S::kThreads) {
    const int row = e / (D / 8), chunk = e % (D / 8);
    const int left = row < n_rows ? call.k_dim - chunk * 8 : 0;
    const bf* from =
        static_cast<const bf*>(call.q) + (row0 + (row < n_rows ? row : 0)) * call.q_stride + head * call.k_dim;
    copy_async_16(q_tile + tile_offset<D>(row, chunk), left > 0 ? from + chunk * 8 : from, left > 0 ? 16 : 0);
  }
  copy_page<D>(k_tiles, page(call.k, begin), call.k_dim, max_pos + 1 - begin * kPage, threadIdx.x, S::kThreads);
  copy_async_commit();
  copy_page<D>(v_tiles, page(call.v, begin), call.k_dim, max_pos + 1 - begin * kPage, threadIdx.x, S::kThreads);
  copy_async_commit();

  const int warp_row = warp * 16;
  int pos[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = warp_row + g + i * 8;
    pos[i] = row < n_rows ? call.pass.rows[row0 + row].pos : -1;
  }
  float o[D / 8][4] = {};
  RowState state[2];

  for (int at = begin; at < end; ++at) {
    const int stage = S::kStages == 2 ? (at - begin) % 2 : 0;
    const uint32_t k_tile = k_tiles + stage * kTileBytes, v_tile = v_tiles + stage * kTileBytes;
    copy_async_wait<1>();  // this page's keys (its values may still be on the way)
    __syncthreads();
    float s[kPage / 8][4] = {};
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
      uint32_t a[4];
      load_matrix_x4(a, q_tile + tile_offset<D>(warp_row + lane % 16, kk * 2 + lane / 16));
#pragma unroll
      for (int n = 0; n < kPage / 16; ++n) {
        uint32_t b[4];  // keys n·16 … +15: two n8 tiles by two k8 halves
        load_matrix_x4(b, k_tile + tile_offset<D>(n * 16 + lane % 8 + (lane / 16) * 8, kk * 2 + lane / 8 % 2));
        mma_bf16(s[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_bf16(s[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
    if (S::kStages == 2 && at + 1 < end) {
      copy_page<D>(k_tiles + (stage ^ 1) * kTileBytes, page(call.k, at + 1), call.k_dim, max_pos + 1 - (at + 1) * kPage,
                   threadIdx.x, S::kThreads);
      copy_async_commit();
      copy_page<D>(v_tiles + (stage ^ 1) * kTileBytes, page(call.v, at + 1), call.k_dim, max_pos + 1 - (at + 1) * kPage,
                   threadIdx.x, S::kThreads);
      copy_async_commit();
    }
    // Mask, cap, online softmax. Row i of the two is accumulator elements 2i, 2i+1.
    const int key0 = at * kPage + 2 * t;
    const bool inside = at * kPage >= first_key(max_pos, window) && at * kPage + kPage - 1 <= min_pos;
    float scale_old[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = first_key(pos[i], window);
      float max = state[i].m;
#pragma unroll
      for (int n = 0; n < kPage / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& v = s[n][2 * i + j];
          v = capped(v * call.scale, call.softcap);
          const int key = key0 + n * 8 + j;
          if (!inside && (key > pos[i] || key < first)) v = -INFINITY;
          max = fmaxf(max, v);
        }
      }
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
      const float base = max == -INFINITY ? 0.f : max;
      scale_old[i] = power_of_two((state[i].m - base) * kLog2E);
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kPage / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& v = s[n][2 * i + j];
          v = power_of_two((v - base) * kLog2E);
          sum += v;
        }
      }
      state[i].m = max;
      state[i].l = state[i].l * scale_old[i] + sum;  // a lane's own columns; the four lanes are added at the end
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      o[n][0] *= scale_old[0];
      o[n][1] *= scale_old[0];
      o[n][2] *= scale_old[1];
      o[n][3] *= scale_old[1];
    }
    // This page's values; with two stages the next page's keys and values may still be on the way.
    if (S::kStages == 2 && at + 1 < end)
      copy_async_wait<2>();
    else
      copy_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < kPage / 16; ++kk) {
      const uint32_t a0 = pack_bf16(s[2 * kk][0], s[2 * kk][1]), a1 = pack_bf16(s[2 * kk][2], s[2 * kk][3]);
      const uint32_t a2 = pack_bf16(s[2 * kk + 1][0], s[2 * kk + 1][1]),
                     a3 = pack_bf16(s[2 * kk + 1][2], s[2 * kk + 1][3]);
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t b[4];
        load_matrix_x4_transposed(b, v_tile + tile_offset<D>(kk * 16 + lane % 16, n * 2 + lane / 16));
        mma_bf16(o[2 * n], a0, a1, a2, a3, b[0], b[1]);
        mma_bf16(o[2 * n + 1], a0, a1, a2, a3, b[2], b[3]);
      }
    }
    if (S::kStages == 1 && at + 1 < end) {
      __syncthreads();
      copy_page<D>(k_tiles, page(call.k, at + 1), call.k_dim, max_pos + 1 - (at + 1) * kPage, threadIdx.x, S::kThreads);
      copy_async_commit();
      copy_page<D>(v_tiles, page(call.v, at + 1), call.k_dim, max_pos + 1 - (at + 1) * kPage, threadIdx.x, S::kThreads);
      copy_async_commit();
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float l = state[i].l;
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    float factor = 1.f;
    if (call.sinks != nullptr) {
      const float sink = call.sinks[head];
      const float m = fmaxf(state[i].m, sink);
      factor = power_of_two((state[i].m - m) * kLog2E);
      l = l * factor + power_of_two((sink - m) * kLog2E);
    }
    const int row = warp_row + g + i * 8;
    if (row >= n_rows) continue;
    const float inverse = factor / l;
    bf* out = static_cast<bf*>(call.o) + (row0 + row) * call.o_stride + head * call.v_dim;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const int d = n * 8 + 2 * t;
      if (d < call.v_dim) {
        *reinterpret_cast<uint32_t*>(out + d) = pack_bf16(o[n][2 * i] * inverse, o[n][2 * i + 1] * inverse);
      }
    }
  }
}

template <int D>
void launch_tiles(CudaContext& context, const AttentionCall& call) {
  using S = TileShape<D>;
  static std::once_flag once;
  std::call_once(once, [] {
    HAY_CUDA(cudaFuncSetAttribute(tiles_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(S::kShared)));
  });
  const unsigned blocks =
      static_cast<unsigned>(call.pass.n_tiles) * (kTileRows / S::kRows) * static_cast<unsigned>(call.n_heads);
  tiles_kernel<D><<<blocks, S::kThreads, S::kShared, context.stream()>>>(call);
  HAY_LAUNCHED();
}

// ---- split ----------------------------------------------------------------------------------------------------------

constexpr int kSplitWarps = 4;
constexpr int kSplitSlab = 512;       // items a launch
constexpr int kDecodeSegment = 256;   // keys; a function of nothing: part of the numerics
constexpr int kOutputSegment = 4096;  // prefill-kind output rows (rulings A4)

// Partial results: for split row r, head h, segment s at index (r·n_heads + h)·n_segments + s.
struct Partials {
  float2* ml;  // max and sum
  float* o;    // [D] each
  int n_segments;
  int segment;  // keys
};

// Stages of a page's keys and values a block has, and blocks a multiprocessor: together they keep the memory busy. The
// warps' results are merged in the stage just read, which must hold them.
template <int D>
constexpr int kSplitStages = D > 64 ? 3 : 4;
template <int D>
constexpr int kSplitBlocks = D > 128  ? 1
                             : D > 64 ? 2
                                      : 3;
constexpr int kSplitThreads = kSplitWarps * 32;

// One segment of one item and kv head.
struct Unit {
  SplitItem item;
  int kv_head = 0, segment = 0;
  int first_page = 0, end_page = 0;  // empty: behind every window
};

// Units are numbered by item, kv head, segment; a block takes a contiguous stretch of them, so that its pages follow
// each other in memory and in its pipeline. Item i's first unit is bounds[i]. All threads of the block call it.
__device__ inline Unit unit_at(const AttentionCall& call, const Partials& partials, int first_item, const int* bounds,
                               int n_items, int index) {
  int low = 0, high = n_items - 1;  // the last item that begins at or before index
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (bounds[middle] <= index)
      low = middle;
    else
      high = middle - 1;
  }
  Unit unit;
  unit.item = call.pass.items[first_item + low];
  const int n_segments = unit.item.max_pos / partials.segment + 1;
  unit.kv_head = (index - bounds[low]) / n_segments;
  unit.segment = (index - bounds[low]) % n_segments;
  const int begin_key = unit.segment * partials.segment;
  const int last_key = min(begin_key + partials.segment, unit.item.max_pos + 1);
  // Where the windows of all rows of this kv head begin.
  int lowest = 0;
  if (call.n_windows > 0 || call.window_base > 0 || call.window_output > 0) {
    lowest = 0x7fffffff;
    for (int r = 0; r < unit.item.n; ++r) {
      const Row row = call.pass.rows[call.pass.split_rows[unit.item.first + r]];
      if (row.pos < 0) continue;  // a row without content
      lowest = min(lowest, first_key(row.pos, window_of(call, unit.kv_head, row.stream)));
    }
  }
  if (last_key <= lowest) return unit;  // the merge starts later
  unit.first_page = max(begin_key, lowest) / kPage;
  unit.end_page = (last_key - 1) / kPage + 1;
  return unit;
}

template <int D>
__global__ void __launch_bounds__(kSplitThreads, kSplitBlocks<D>)
    split_kernel(AttentionCall call, Partials partials, int first_item, int n_items, int first_row) {
  constexpr int kStages = kSplitStages<D>;
  constexpr uint32_t kTileBytes = kPage * D * 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

  // Units before each item.
  __shared__ int bounds[kSplitSlab + 1];
  __shared__ int warp_sums[kSplitWarps];
  for (int base = 0, before = 0; base < n_items; base += kSplitThreads) {
    const int i = base + static_cast<int>(threadIdx.x);
    int count = i < n_items ? (call.pass.items[first_item + i].max_pos / partials.segment + 1) * call.n_kv : 0;
    int sum = count;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(~0u, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int total = 0;
#pragma unroll
    for (int w = 0; w < kSplitWarps; ++w) {
      if (w < warp) sum += warp_sums[w];
      total += warp_sums[w];
    }
    if (i < n_items) bounds[i] = before + sum - count;
    before += total;
    if (threadIdx.x == 0) bounds[n_items] = before;
    __syncthreads();
  }
  const int64_t n_units = bounds[n_items];
  const int begin_unit = static_cast<int>(n_units * blockIdx.x / gridDim.x);
  const int end_unit = static_cast<int>(n_units * (blockIdx.x + 1) / gridDim.x);
  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t pages = shared_address(shared);  // [stage][keys, values]
  float2* warp_ml = reinterpret_cast<float2*>(shared + kStages * 2 * kTileBytes);
  static_assert(kSplitWarps * 16 * D * sizeof(float) <= 2 * kTileBytes);

  // Pages of the block's units, one after the other: the next one to fetch, its table entry read a step ahead.
  Unit ahead;
  int ahead_unit = begin_unit, ahead_pass = 0, ahead_page = 0, ahead_entry = 0, fetched = 0;
  const auto passes_of = [&](const Unit& unit) { return (unit.item.n * call.group_size + 15) / 16; };
  const auto read_entry = [&] { ahead_entry = block_table(call.pass, ahead.item.seq, call.table_group)[ahead_page]; };
  const auto enter = [&] {  // the first page of ahead_unit, or of the next that has one
    for (; ahead_unit < end_unit; ++ahead_unit) {
      ahead = unit_at(call, partials, first_item, bounds, n_items, ahead_unit);
      ahead_page = ahead.first_page;
      ahead_pass = 0;
      if (ahead.first_page < ahead.end_page) return read_entry();
    }
  };
  const auto fetch = [&] {
    if (ahead_unit < end_unit) {
      const int64_t block = (static_cast<int64_t>(ahead_entry) * call.n_kv + ahead.kv_head) * kPage * call.k_dim;
      const uint32_t to = pages + fetched % kStages * 2 * kTileBytes;
      const int valid = ahead.item.max_pos + 1 - ahead_page * kPage;
      const bf* k = static_cast<const bf*>(call.k) + block;
      const bf* v = static_cast<const bf*>(call.v) + block;
      if (call.k_dim == D && valid >= kPage) {
        copy_whole_page<D, kSplitThreads>(to, k, threadIdx.x);
        copy_whole_page<D, kSplitThreads>(to + kTileBytes, v, threadIdx.x);
      } else {
        copy_page<D>(to, k, call.k_dim, valid, threadIdx.x, kSplitThreads);
        copy_page<D>(to + kTileBytes, v, call.k_dim, valid, threadIdx.x, kSplitThreads);
      }
      ++fetched;
      if (++ahead_page < ahead.end_page) {
        read_entry();
      } else if (++ahead_pass < passes_of(ahead)) {
        ahead_page = ahead.first_page;
        read_entry();
      } else {
        ++ahead_unit;
        enter();
      }
    }
    copy_async_commit();  // one group a page, empty at the end
  };
  const auto fill = [&] {
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) fetch();
  };
  enter();
  // Pages that no row of this pass can have written are fetched while the kernels that write are still running.
  const int settled = max(ahead.item.settled, 0) / kPage;
  const bool early = ahead_unit < end_unit && ahead.first_page + kStages - 1 <= min(settled, ahead.end_page);
  if (early) fill();
  let_next_start();
  wait_for_previous();
  if (begin_unit == end_unit) return;
  if (!early) fill();

  int used = 0;  // pages
  for (int unit_index = begin_unit; unit_index < end_unit; ++unit_index) {
    const Unit unit = unit_at(call, partials, first_item, bounds, n_items, unit_index);
    if (unit.first_page >= unit.end_page) continue;
    const int n_queries = unit.item.n * call.group_size;  // (row, head of the group), row-major
    for (int q0 = 0; q0 < n_queries; q0 += 16) {
      // Queries g and g+8 of this lane.
      int pos[2], first[2];
      const bf* q_row[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = q0 + g + i * 8;
        pos[i] = -1;
        first[i] = 0;
        q_row[i] = nullptr;
        if (query < n_queries) {
          const int row_index = call.pass.split_rows[unit.item.first + query / call.group_size];
          const Row row = call.pass.rows[row_index];
          pos[i] = row.pos;
          first[i] = first_key(row.pos, window_of(call, unit.kv_head, row.stream));
          q_row[i] = static_cast<const bf*>(call.q) + row_index * call.q_stride +
                     (unit.kv_head * call.group_size + query % call.group_size) * call.k_dim;
        }
      }
      uint32_t qa[D / 16][4];
#pragma unroll
      for (int kk = 0; kk < D / 16; ++kk) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int d = kk * 16 + 2 * t + (i / 2) * 8;
          qa[kk][i] =
              q_row[i % 2] != nullptr && d < call.k_dim ? *reinterpret_cast<const uint32_t*>(q_row[i % 2] + d) : 0;
        }
      }
      float o[D / 8][4] = {};
      RowState state[2];
      // Of every page a warp takes its own 16 keys: fixed by absolute position.
      const int key_in_page = warp * 16;
      for (int at = unit.first_page; at < unit.end_page; ++at, ++used) {
        copy_async_wait<kStages - 2>();
        __syncthreads();  // the page is there, and the stage that is filled next has been read by all
        fetch();
        const uint32_t k_tile = pages + used % kStages * 2 * kTileBytes, v_tile = k_tile + kTileBytes;
        float s[2][4] = {};
#pragma unroll
        for (int kk = 0; kk < D / 16; ++kk) {
          uint32_t b[4];
          load_matrix_x4(b, k_tile + tile_offset<D>(key_in_page + lane % 8 + (lane / 16) * 8, kk * 2 + lane / 8 % 2));
          mma_bf16(s[0], qa[kk][0], qa[kk][1], qa[kk][2], qa[kk][3], b[0], b[1]);
          mma_bf16(s[1], qa[kk][0], qa[kk][1], qa[kk][2], qa[kk][3], b[2], b[3]);
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) s[n][e] *= call.scale;
        }
        if (call.softcap > 0) {
#pragma unroll
          for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) s[n][e] = capped(s[n][e], call.softcap);
          }
        }
        float scale_old[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float max = state[i].m;
#pragma unroll
          for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              float& v = s[n][2 * i + j];
              const int key = at * kPage + key_in_page + n * 8 + 2 * t + j;
              v = key > pos[i] || key < first[i] ? -INFINITY : v;
              max = fmaxf(max, v);
            }
          }
          max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
          max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
          const float base = max == -INFINITY ? 0.f : max;
          scale_old[i] = power_of_two((state[i].m - base) * kLog2E);
          float sum = 0;
#pragma unroll
          for (int n = 0; n < 2; ++n) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              float& v = s[n][2 * i + j];
              v = power_of_two((v - base) * kLog2E);
              sum += v;
            }
          }
          state[i].m = max;
          state[i].l = state[i].l * scale_old[i] + sum;
        }
        const uint32_t a0 = pack_bf16(s[0][0], s[0][1]), a1 = pack_bf16(s[0][2], s[0][3]);
        const uint32_t a2 = pack_bf16(s[1][0], s[1][1]), a3 = pack_bf16(s[1][2], s[1][3]);
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          o[n][0] *= scale_old[0];
          o[n][1] *= scale_old[0];
          o[n][2] *= scale_old[1];
          o[n][3] *= scale_old[1];
        }
#pragma unroll
        for (int n = 0; n < D / 16; ++n) {
          uint32_t b[4];
          load_matrix_x4_transposed(b, v_tile + tile_offset<D>(key_in_page + lane % 16, n * 2 + lane / 16));
          mma_bf16(o[2 * n], a0, a1, a2, a3, b[0], b[1]);
          mma_bf16(o[2 * n + 1], a0, a1, a2, a3, b[2], b[3]);
        }
      }
      // Merge the four warps in order through shared memory: [warp][16 queries][D].
      float* warp_o = reinterpret_cast<float*>(shared + (used - 1) % kStages * 2 * kTileBytes);
      __syncthreads();  // all have read the last page
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float l = state[i].l;
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        if (q0 + g + i * 8 >= n_queries) continue;
        if (t == 0) warp_ml[warp * 16 + g + i * 8] = {state[i].m, l};
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          *reinterpret_cast<float2*>(warp_o + (warp * 16 + g + i * 8) * D + n * 8 + 2 * t) = {o[n][2 * i],
                                                                                              o[n][2 * i + 1]};
        }
      }
      __syncthreads();
      const int n_here = min(16, n_queries - q0);
      for (int e = threadIdx.x; e < n_here * D; e += kSplitThreads) {
        const int query = q0 + e / D, d = e % D;
        float m = -INFINITY;
#pragma unroll
        for (int w = 0; w < kSplitWarps; ++w) m = fmaxf(m, warp_ml[w * 16 + e / D].x);
        const float base = m == -INFINITY ? 0.f : m;
        float l = 0, sum = 0;
#pragma unroll
        for (int w = 0; w < kSplitWarps; ++w) {
          const float2 ml = warp_ml[w * 16 + e / D];
          const float factor = power_of_two((ml.x - base) * kLog2E);
          l += ml.y * factor;
          sum += warp_o[(w * 16 + e / D) * D + d] * factor;
        }
        const int64_t row = unit.item.first + query / call.group_size - first_row;
        const int head = unit.kv_head * call.group_size + query % call.group_size;
        const int64_t index = (row * call.n_heads + head) * partials.n_segments + unit.segment;
        if (d == 0) partials.ml[index] = {m, l};
        if (d < call.v_dim) partials.o[index * call.v_dim + d] = sum;
      }
      // The stage is filled again, and the next merge made, behind a page's barrier.
    }
  }
}

// One block a (split row, head). Warp w adds up segments w, w + kMergeWarps, …, ascending; the warps' sums are then
// added in order. Which segment goes where is its absolute number's alone.
constexpr int kMergeWarps = 16;
constexpr int kMergeColumns = 8;  // of a lane: v_dim ≤ 256
__global__ void __launch_bounds__(kMergeWarps * 32) merge_kernel(AttentionCall call, Partials partials, int first_row) {
  const int row_index = call.pass.split_rows[first_row + blockIdx.x], head = blockIdx.y;
  const Row row = call.pass.rows[row_index];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int begin = first_key(row.pos, window_of(call, head / call.group_size, row.stream)) / partials.segment;
  const int end = row.pos / partials.segment + 1;
  const int64_t index = (static_cast<int64_t>(blockIdx.x) * call.n_heads + head) * partials.n_segments;
  if (row.pos < 0) {  // a row without content
    if (static_cast<int>(threadIdx.x) < call.v_dim) {
      static_cast<bf*>(call.o)[row_index * call.o_stride + head * call.v_dim + threadIdx.x] = __float2bfloat16_rn(0.f);
    }
    wait_for_previous();
    return;
  }
  const float2* ml = partials.ml + index;
  const float* o = partials.o + index * call.v_dim;
  __shared__ float warp_max[kMergeWarps], warp_l[kMergeWarps];
  __shared__ float warp_sum[kMergeWarps][kMergeColumns * 32];
  let_next_start();
  wait_for_previous();
  float m = -INFINITY;
  for (int s = begin + static_cast<int>(threadIdx.x); s < end; s += kMergeWarps * 32) m = fmaxf(m, ml[s].x);
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, offset));
  if (lane == 0) warp_max[warp] = m;
  __syncthreads();
  m = call.sinks != nullptr ? call.sinks[head] : -INFINITY;
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) m = fmaxf(m, warp_max[w]);
  float l = 0;
  float sum[kMergeColumns] = {};
  // Segments of this warp at or behind `begin`, four at a time so that their loads are in flight together.
  constexpr int kTogether = 4;
  for (int s = begin / kMergeWarps * kMergeWarps + warp; s < end; s += kTogether * kMergeWarps) {
    float weight[kTogether], mass[kTogether], v[kTogether][kMergeColumns];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const int at = s + u * kMergeWarps;
      const bool in = at >= begin && at < end;
      const float2 state = in ? ml[at] : float2{-INFINITY, 0.f};
      weight[u] = state.x;
      mass[u] = state.y;
      const float* from = o + static_cast<int64_t>(at) * call.v_dim;
#pragma unroll
      for (int i = 0; i < kMergeColumns; i += 2) {
        const int d = i * 32 + lane * 2;
        float2 pair{0.f, 0.f};
        if (in && d < call.v_dim) pair = *reinterpret_cast<const float2*>(from + d);
        v[u][i] = pair.x;
        v[u][i + 1] = pair.y;
      }
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const float factor = power_of_two((weight[u] - m) * kLog2E);
      l = fmaf(mass[u], factor, l);
#pragma unroll
      for (int i = 0; i < kMergeColumns; ++i) sum[i] = fmaf(v[u][i], factor, sum[i]);
    }
  }
  if (lane == 0) warp_l[warp] = l;
#pragma unroll
  for (int i = 0; i < kMergeColumns; i += 2) {
    const int d = i * 32 + lane * 2;
    warp_sum[warp][d] = sum[i];
    warp_sum[warp][d + 1] = sum[i + 1];
  }
  __syncthreads();
  const int d = static_cast<int>(threadIdx.x);
  if (d >= call.v_dim) return;
  l = call.sinks != nullptr ? power_of_two((call.sinks[head] - m) * kLog2E) : 0.f;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kMergeWarps; ++w) {
    l += warp_l[w];
    total += warp_sum[w][d];
  }
  static_cast<bf*>(call.o)[row_index * call.o_stride + head * call.v_dim + d] = __float2bfloat16_rn(total / l);
}

template <int D>
void launch_split(CudaContext& context, const AttentionCall& call) {
  constexpr size_t kPages = static_cast<size_t>(kSplitStages<D>) * 2 * kPage * D * sizeof(bf);
  constexpr size_t kShared = kPages + kSplitWarps * 16 * sizeof(float2);
  static std::once_flag once;
  std::call_once(once, [] {
    HAY_CUDA(
        cudaFuncSetAttribute(split_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared)));
  });
  const auto blocks = static_cast<unsigned>(context.properties().multiProcessorCount * kSplitBlocks<D>);
  for (const SplitRun& run : context.split_runs()) {
    Partials partials{};
    partials.segment = run.kind == RowKind::decode ? kDecodeSegment : kOutputSegment;
    partials.n_segments = run.max_pos / partials.segment + 1;  // of a recorded pass, as its shape allows
    // Slabs of items bound the scratch; they change nothing but where a row's partial results stand.
    constexpr int64_t kScratchBytes = int64_t{256} << 20;
    const int64_t row_bytes = static_cast<int64_t>(call.n_heads) * partials.n_segments * (call.v_dim + 2) * 4;
    const int64_t slab_items = std::clamp<int64_t>(kScratchBytes / (row_bytes * kSplitRows), 1, kSplitSlab);
    const int64_t slab_rows = std::min<int64_t>(slab_items * kSplitRows, run.n_rows);
    const auto n_partials = static_cast<size_t>(slab_rows * call.n_heads * partials.n_segments);
    partials.ml = static_cast<float2*>(context.op_scratch(n_partials * (sizeof(float2) + sizeof(float) * call.v_dim)));
    partials.o = reinterpret_cast<float*>(partials.ml + n_partials);
    for (int64_t i = 0; i < run.n_items; i += slab_items) {
      const auto n = static_cast<int>(std::min<int64_t>(slab_items, run.n_items - i));
      const int first_item = run.first_item + static_cast<int>(i);
      const int first_row = context.split_item(first_item).first;
      const SplitItem last = context.split_item(first_item + n - 1);
      const int n_rows = last.first + last.n - first_row;
      launch_early(context, split_kernel<D>, blocks, kSplitThreads, kShared, call, partials, first_item, n, first_row);
      launch_early(context, merge_kernel, dim3(static_cast<unsigned>(n_rows), static_cast<unsigned>(call.n_heads)),
                   kMergeWarps * 32, 0, call, partials, first_row);
    }
  }
}

}  // namespace

bool supports_mma(const AttentionCall& call) {
  return call.k_dim == call.v_dim && call.k_dim % 8 == 0 && call.k_dim <= 256 && call.q_stride % 2 == 0 &&
         call.o_stride % 2 == 0;
}

void attention_tiles_mma(CudaContext& context, const AttentionCall& call) {
  if (call.pass.n_tiles == 0) return;
  if (call.k_dim <= 64)
    launch_tiles<64>(context, call);
  else if (call.k_dim <= 128)
    launch_tiles<128>(context, call);
  else
    launch_tiles<256>(context, call);
}

void attention_split_mma(CudaContext& context, const AttentionCall& call) {
  if (call.pass.n_items == 0) return;
  if (call.k_dim <= 64)
    launch_split<64>(context, call);
  else if (call.k_dim <= 128)
    launch_split<128>(context, call);
  else
    launch_split<256>(context, call);
}

}  // namespace hayfork::engine::cuda
