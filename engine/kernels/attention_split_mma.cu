// Split-KV attention with mma.sync (compute capability 8.0 and later), bf16 in, float32 sums: decode rows and output
// rows, in units of (sequence item, kv head, segment of keys); each warp takes 16 keys of every page of the segment
// (heads wider than 128: two warps, for half of the values' columns each); warps, then segments (attention_merge.cu),
// are merged in ascending order. Rows of one sequence, an Orthros pair or the options of a question, read
// its keys and values together.
#include <algorithm>
#include <climits>
#include <mutex>

#include "engine/kernels/attention_mma.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr int kKeyWarps = 4;          // 16 keys of a page each
constexpr int kSplitSlab = 512;       // items a launch
constexpr int kDecodeSegment = 256;   // keys; a function of nothing: part of the numerics
constexpr int kOutputSegment = 4096;  // prefill-kind output rows

// Stages of a page's keys and values a block has, and blocks a multiprocessor: together they keep the memory busy. The
// warps' results are merged in the stage just read, which must hold them.
template <int D>
constexpr int kSplitStages = D > 64 ? 3 : 4;
template <int D>
constexpr int kSplitBlocks = D > 128  ? 1
                             : D > 64 ? 2
                                      : 3;
template <int D>
constexpr int kSplitAcross = D > 128 ? 2 : 1;  // warps for the same keys
template <int D>
constexpr int kSplitThreads = kKeyWarps* kSplitAcross<D> * 32;

// One segment of one item and kv head.
struct Unit {
  int index = -1;  // of the item
  SplitItem item;
  int kv_head = 0, segment = 0;
  int first_page = 0, end_page = 0;  // empty: behind every window
};

// The first key that a row at `pos` sees; none for −1.
__device__ inline int window_begin(const AttentionCall& call, int kv_head, int pos, Stream stream) {
  return pos < 0 ? INT_MAX : first_key(pos, window_of(call, kv_head, stream));
}

// Units are numbered by item, kv head, segment; a block takes a contiguous stretch of them, so that its pages follow
// each other in memory and in its pipeline. Item i's first unit is bounds[i]. All threads of the block call it. `unit`:
// the one before, whose item is most often the next one's too.
__device__ inline void go_to_unit(Unit& unit, const AttentionCall& call, const Partials& partials, int first_item,
                                  const int* bounds, int n_items, int index) {
  int low = 0, high = n_items - 1;  // the last item that begins at or before index
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (bounds[middle] <= index)
      low = middle;
    else
      high = middle - 1;
  }
  if (low != unit.index) unit.item = call.pass.items[first_item + low];
  unit.index = low;
  const int n_segments = unit.item.max_pos / partials.segment + 1;
  unit.kv_head = (index - bounds[low]) / n_segments;
  unit.segment = (index - bounds[low]) % n_segments;
  unit.first_page = unit.end_page = 0;
  const int begin_key = unit.segment * partials.segment;
  const int last_key = min(begin_key + partials.segment, unit.item.max_pos + 1);
  // Where the windows of all rows of this kv head begin.
  const int lowest = min(window_begin(call, unit.kv_head, unit.item.min_base, Stream::base),
                         window_begin(call, unit.kv_head, unit.item.min_output, Stream::output));
  if (last_key <= lowest) return;  // the merge starts later
  unit.first_page = max(begin_key, lowest) / kPage;
  unit.end_page = (last_key - 1) / kPage + 1;
}

template <int D>
__global__ void __launch_bounds__(kSplitThreads<D>, kSplitBlocks<D>)
    split_kernel(AttentionCall call, Partials partials, int first_item, int n_items, int first_row) {
  constexpr int kStages = kSplitStages<D>, kThreads = kSplitThreads<D>, kColumns = D / kSplitAcross<D>;
  constexpr uint32_t kTileBytes = kPage * D * 2;
  const int warp = threadIdx.x / 32 % kKeyWarps, part = threadIdx.x / 32 / kKeyWarps, lane = threadIdx.x % 32,
            g = lane / 4, t = lane % 4;

  // Units before each item.
  __shared__ int bounds[kSplitSlab + 1];
  __shared__ int warp_sums[kThreads / 32];
  __shared__ bool adds[16];
  for (int base = 0, before = 0; base < n_items; base += kThreads) {
    const int i = base + static_cast<int>(threadIdx.x);
    int count = i < n_items ? (call.pass.items[first_item + i].max_pos / partials.segment + 1) * call.n_kv : 0;
    int sum = count;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(~0u, sum, offset);
      if (lane >= offset) sum += other;
    }
    if (lane == 31) warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    int total = 0;
#pragma unroll
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < static_cast<int>(threadIdx.x) / 32) sum += warp_sums[w];
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
  static_assert(kKeyWarps * 16 * D * sizeof(float) <= 2 * kTileBytes);

  // Pages of the block's units, one after the other: the next one to fetch, its table entry read a step ahead.
  Unit ahead;
  int ahead_unit = begin_unit, ahead_pass = 0, ahead_page = 0, ahead_entry = 0, fetched = 0;
  const auto passes_of = [&](const Unit& unit) { return (unit.item.n * call.group_size + 15) / 16; };
  const auto read_entry = [&] { ahead_entry = block_table(call.pass, ahead.item.seq, call.table_group)[ahead_page]; };
  const auto enter = [&] {  // the first page of ahead_unit, or of the next that has one
    for (; ahead_unit < end_unit; ++ahead_unit) {
      go_to_unit(ahead, call, partials, first_item, bounds, n_items, ahead_unit);
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
        copy_whole_page<D, kThreads>(to, k, threadIdx.x);
        copy_whole_page<D, kThreads>(to + kTileBytes, v, threadIdx.x);
      } else {
        copy_page<D>(to, k, call.k_dim, valid, threadIdx.x, kThreads);
        copy_page<D>(to + kTileBytes, v, call.k_dim, valid, threadIdx.x, kThreads);
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
  Unit unit;
  // Queries g and g+8 of this lane, in registers: most units have those of the one before.
  uint32_t qa[D / 16][4];
  int pos[2], first[2];
  const auto read_queries = [&](int q0) {
    const bf* q_row[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int query = q0 + g + i * 8;
      pos[i] = -1;
      first[i] = 0;
      q_row[i] = nullptr;
      if (query < unit.item.n * call.group_size) {
        const int row_index = call.pass.split_rows[unit.item.first + query / call.group_size];
        const Row row = call.pass.rows[row_index];
        pos[i] = row.pos;
        first[i] = first_key(row.pos, window_of(call, unit.kv_head, row.stream));
        q_row[i] = static_cast<const bf*>(call.q) + row_index * call.q_stride +
                   (unit.kv_head * call.group_size + query % call.group_size) * call.k_dim;
      }
    }
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int d = kk * 16 + 2 * t + (i / 2) * 8;
        qa[kk][i] =
            q_row[i % 2] != nullptr && d < call.k_dim ? *reinterpret_cast<const uint32_t*>(q_row[i % 2] + d) : 0;
      }
    }
  };
  int read_item = -1, read_head = -1, read_q0 = -1;
  for (int unit_index = begin_unit; unit_index < end_unit; ++unit_index) {
    go_to_unit(unit, call, partials, first_item, bounds, n_items, unit_index);
    if (unit.first_page >= unit.end_page) continue;
    const int n_queries = unit.item.n * call.group_size;  // (row, head of the group), row-major
    for (int q0 = 0; q0 < n_queries; q0 += 16) {
      if (unit.index != read_item || unit.kv_head != read_head || q0 != read_q0) read_queries(q0);
      read_item = unit.index;
      read_head = unit.kv_head;
      read_q0 = q0;
      float o[kColumns / 8][4] = {};  // columns part · kColumns …
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
        for (int n = 0; n < kColumns / 8; ++n) {
          o[n][0] *= scale_old[0];
          o[n][1] *= scale_old[0];
          o[n][2] *= scale_old[1];
          o[n][3] *= scale_old[1];
        }
#pragma unroll
        for (int n = 0; n < kColumns / 16; ++n) {
          uint32_t b[4];
          const int chunk = part * kColumns / 8 + n * 2 + lane / 16;
          load_matrix_x4_transposed(b, v_tile + tile_offset<D>(key_in_page + lane % 16, chunk));
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
        // A row's segments behind its window are not added up.
        const bool in = first[i] < unit.end_page * kPage && pos[i] >= unit.first_page * kPage;
        if (t == 0 && threadIdx.x < 32) adds[g + i * 8] = in;
        if (!in) continue;
        if (t == 0 && part == 0) warp_ml[warp * 16 + g + i * 8] = {state[i].m, l};
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          float* const to = warp_o + (warp * 16 + g + i * 8) * D + part * kColumns + n * 8 + 2 * t;
          *reinterpret_cast<float2*>(to) = {o[n][2 * i], o[n][2 * i + 1]};
        }
      }
      __syncthreads();
      const int n_here = min(16, n_queries - q0);
      for (int e = threadIdx.x; e < n_here * D; e += kThreads) {
        const int query = q0 + e / D, d = e % D;
        if (!adds[e / D]) continue;
        float m = -INFINITY;
#pragma unroll
        for (int w = 0; w < kKeyWarps; ++w) m = fmaxf(m, warp_ml[w * 16 + e / D].x);
        const float base = m == -INFINITY ? 0.f : m;
        float l = 0, sum = 0;
#pragma unroll
        for (int w = 0; w < kKeyWarps; ++w) {
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

template <int D>
void launch_split(CudaContext& context, const AttentionCall& call) {
  constexpr size_t kPages = static_cast<size_t>(kSplitStages<D>) * 2 * kPage * D * sizeof(bf);
  constexpr size_t kShared = kPages + kKeyWarps * 16 * sizeof(float2);
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
      launch_early(context, split_kernel<D>, blocks, kSplitThreads<D>, kShared, call, partials, first_item, n,
                   first_row);
      attention_merge(context, call, partials, first_row, n_rows);
    }
  }
}

}  // namespace

bool supports_mma(const AttentionCall& call) {
  return call.k_dim == call.v_dim && call.k_dim % 8 == 0 && call.k_dim <= 256 && call.q_stride % 2 == 0 &&
         call.o_stride % 2 == 0;
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
