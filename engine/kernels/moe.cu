// Mixture of experts on CUDA: routing, rows sorted by expert, and the way of the rows through the experts. Everything a
// kernel must know about the sorted rows is in device memory: the host launches the same kernels whatever the routers
// chose, without waiting.
#include <algorithm>

#include "engine/kernels/experts_on_device.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;

// ---- routing: one warp a row
// -----------------------------------------------------------------------------------------

__device__ inline float ordered(float logit) {
  return isnan(logit) ? -INFINITY : logit;
}

__device__ inline float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

// Each round finds the largest logit behind the one found before, in the order (logit falling, index rising).
__global__ void __launch_bounds__(kThreads)
    route_kernel(int32_t* experts, float* weights, const float* logits, int64_t stride, int64_t n_rows, int n,
                 RouterParams params, const float* scale) {
  const int64_t row = blockIdx.x * int64_t{kThreads / 32} + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  wait_for_previous();
  let_next_start();
  if (row >= n_rows) return;
  const float* in = logits + row * stride;
  int32_t* expert = experts + row * params.top_k;
  float* weight = weights + row * params.top_k;
  float before = INFINITY, top = 0, sum = 0;
  int before_at = -1;
  for (int i = 0; i < params.top_k; ++i) {
    float best = -INFINITY;
    int best_at = n;
    for (int e = lane; e < n; e += 32) {
      const float v = ordered(in[e]);
      const bool behind = v < before || (v == before && e > before_at);
      if (behind && (v > best || (v == best && e < best_at))) {
        best = v;
        best_at = e;
      }
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      const float v = __shfl_xor_sync(~0u, best, offset);
      const int at = __shfl_xor_sync(~0u, best_at, offset);
      if (v > best || (v == best && at < best_at)) {
        best = v;
        best_at = at;
      }
    }
    if (i == 0) {
      top = in[best_at];
      if (!params.softmax_over_chosen) {
        for (int e = lane; e < n; e += 32) sum += expf(in[e] - top);
        sum = warp_sum(sum);
      }
    }
    if (lane == 0) {
      expert[i] = best_at;
      weight[i] = expf(in[best_at] - top);
    }
    before = best;
    before_at = best_at;
  }
  if (lane != 0) return;
  if (params.softmax_over_chosen) {
    for (int i = 0; i < params.top_k; ++i) sum += weight[i];
  }
  float chosen = 0;
  for (int i = 0; i < params.top_k; ++i) chosen += weight[i] / sum;
  for (int i = 0; i < params.top_k; ++i) {
    float w = weight[i] / sum;
    if (params.renormalise) w /= chosen;
    if (scale != nullptr) w *= scale[expert[i]];
    weight[i] = w;
  }
}

// ---- sorting: experts ascending, the rows of one in their own order
// ----------------------------------------------------

struct SortCall {
  SortedRows out;
  const int32_t* expert = nullptr;
  const float* weight = nullptr;
  int n_rows = 0, top_k = 0, n_experts = 0;
  int entry_rows = 0;  // rows an entry at most
  unsigned long long* counters = nullptr;
};

// Which rows of a chunk chose each expert: four words of bits an expert, in shared memory.
__device__ void mark_rows(uint32_t (*masks)[4], const SortCall& call, int chunk) {
  for (int e = threadIdx.x; e < call.n_experts * 4; e += blockDim.x) masks[e / 4][e % 4] = 0;
  __syncthreads();
  const int first = chunk * kChunkRows, n = min(kChunkRows, call.n_rows - first);
  for (int p = threadIdx.x; p < n * call.top_k; p += blockDim.x) {
    const int row = p / call.top_k;
    atomicOr(&masks[call.expert[first * call.top_k + p]][row / 32], 1u << (row % 32));
  }
  __syncthreads();
}

__device__ inline int rows_before(const uint32_t (&mask)[4], int row) {
  int n = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if (w < row / 32) n += __popc(mask[w]);
  }
  return n + __popc(mask[row / 32] & ((1u << (row % 32)) - 1));
}

// Offsets of the experts and the list of entries, from `total(e)` rows of each; by the first warp of a block.
template <typename Total>
__device__ void list_entries(const SortCall& call, int32_t* offsets, const Total& total) {
  const int lane = threadIdx.x % 32;
  int offset = 0, entry = 0;
  for (int base = 0; base < call.n_experts; base += 32) {
    const int e = base + lane;
    const int n = e < call.n_experts ? total(e) : 0;
    const int n_entries = (n + call.entry_rows - 1) / call.entry_rows;
    int n_sum = n, entry_sum = n_entries;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int a = __shfl_up_sync(~0u, n_sum, d), b = __shfl_up_sync(~0u, entry_sum, d);
      if (lane >= d) {
        n_sum += a;
        entry_sum += b;
      }
    }
    if (e < call.n_experts) {
      const int at = offset + n_sum - n;
      offsets[e] = at;
      call.counters[e] += static_cast<unsigned long long>(n);
      for (int i = 0; i < n_entries; ++i) {
        call.out.entries[entry + entry_sum - n_entries + i] = {e, at + i * call.entry_rows,
                                                               min(call.entry_rows, n - i * call.entry_rows)};
      }
    }
    offset += __shfl_sync(~0u, n_sum, 31);
    entry += __shfl_sync(~0u, entry_sum, 31);
  }
  if (lane == 0) *call.out.n_entries = entry;
}

// `before`: rows of each expert in the chunks before this one; null: none.
__device__ void place_rows(const uint32_t (*masks)[4], const SortCall& call, int chunk, const int32_t* offsets,
                           const int32_t* before) {
  const int first = chunk * kChunkRows, n = min(kChunkRows, call.n_rows - first);
  for (int p = threadIdx.x; p < n * call.top_k; p += blockDim.x) {
    const int row = p / call.top_k;
    const int32_t* chosen = call.expert + (first + row) * call.top_k;
    const int e = chosen[p % call.top_k];
    const int place = offsets[e] + (before != nullptr ? before[e] : 0) + rows_before(masks[e], row);
    int rank = 0;
    for (int i = 0; i < call.top_k; ++i) rank += chosen[i] < e;
    call.out.row_of[place] = first + row;
    call.out.place_of[(first + row) * call.top_k + rank] = place;
    call.out.weight_of[(first + row) * call.top_k + rank] = call.weight[first * call.top_k + p];
  }
}

// Block 0 sorts up to kChunkRows rows; every other block, when there are any, puts one row of x in the order of lanes.
__global__ void __launch_bounds__(512)
    sort_few_kernel(const SortCall call, __nv_bfloat16* arranged, int64_t arranged_stride, const __nv_bfloat16* x,
                    int64_t x_stride, int width) {
  extern __shared__ uint32_t shared[];
  wait_for_previous();
  let_next_start();
  if (blockIdx.x > 0) {
    const int64_t row = blockIdx.x - 1;
    for (int c = threadIdx.x; c < arranged_stride; c += blockDim.x) {
      arranged[row * arranged_stride + lane_order(c)] = c < width ? x[row * x_stride + c] : __float2bfloat16_rn(0.f);
    }
    return;
  }
  if (call.n_rows == 0) return;  // sorted already
  auto* masks = reinterpret_cast<uint32_t(*)[4]>(shared);
  mark_rows(masks, call, 0);
  auto* offsets = reinterpret_cast<int32_t*>(masks + call.n_experts);
  if (threadIdx.x < 32) {
    list_entries(call, offsets, [&](int e) {
      return __popc(masks[e][0]) + __popc(masks[e][1]) + __popc(masks[e][2]) + __popc(masks[e][3]);
    });
  }
  __syncthreads();
  place_rows(masks, call, 0, offsets, nullptr);
}

__global__ void __launch_bounds__(kThreads) count_kernel(const SortCall call) {
  extern __shared__ uint32_t shared[];
  auto* masks = reinterpret_cast<uint32_t(*)[4]>(shared);
  mark_rows(masks, call, blockIdx.x);
  for (int e = threadIdx.x; e < call.n_experts; e += blockDim.x) {
    call.out.counts[blockIdx.x * call.n_experts + e] =
        __popc(masks[e][0]) + __popc(masks[e][1]) + __popc(masks[e][2]) + __popc(masks[e][3]);
  }
}

// One block: counts become the rows of the same expert in chunks before.
__global__ void __launch_bounds__(1024) scan_kernel(const SortCall call, int n_chunks) {
  extern __shared__ int32_t totals[];
  const int lane = threadIdx.x % 32;
  for (int e = threadIdx.x / 32; e < call.n_experts; e += blockDim.x / 32) {
    int before = 0;
    for (int base = 0; base < n_chunks; base += 32) {
      const bool there = base + lane < n_chunks;
      int32_t* count = call.out.counts + (base + lane) * call.n_experts + e;
      const int n = there ? *count : 0;
      int sum = n;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const int a = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += a;
      }
      if (there) *count = before + sum - n;
      before += __shfl_sync(~0u, sum, 31);
    }
    if (lane == 0) totals[e] = before;
  }
  __syncthreads();
  if (threadIdx.x < 32) list_entries(call, call.out.offset, [&](int e) { return totals[e]; });
}

__global__ void __launch_bounds__(kThreads) place_kernel(const SortCall call) {
  extern __shared__ uint32_t shared[];
  auto* masks = reinterpret_cast<uint32_t(*)[4]>(shared);
  mark_rows(masks, call, blockIdx.x);
  place_rows(masks, call, blockIdx.x, call.out.offset, call.out.counts + blockIdx.x * call.n_experts);
}

struct Arranged {
  void* rows = nullptr;  // x in the order of lanes, or null
  int64_t stride = 0;
};

template <typename Kernel>
void allow_shared(Kernel* kernel, size_t bytes) {
  if (bytes > 48 << 10)
    HAY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

void sort_rows(CudaContext& context, const SortCall& call, Matrix x, const Arranged& arranged) {
  const size_t shared = static_cast<size_t>(call.n_experts) * 20;  // masks and offsets
  const int n_chunks = (call.n_rows + kChunkRows - 1) / kChunkRows;
  const unsigned copies = arranged.rows != nullptr ? static_cast<unsigned>(call.n_rows) : 0;
  allow_shared(sort_few_kernel, shared);
  if (n_chunks > 1) {
    allow_shared(count_kernel, shared);
    allow_shared(place_kernel, shared);
    count_kernel<<<n_chunks, kThreads, shared, context.stream()>>>(call);
    scan_kernel<<<1, 1024, static_cast<size_t>(call.n_experts) * 4, context.stream()>>>(call, n_chunks);
    place_kernel<<<n_chunks, kThreads, shared, context.stream()>>>(call);
    HAY_LAUNCHED();
    if (copies == 0) return;
  }
  SortCall first = call;
  if (n_chunks > 1) first.n_rows = 0;
  launch_early(context, sort_few_kernel, 1 + copies, 512, shared, first, static_cast<__nv_bfloat16*>(arranged.rows),
               arranged.stride, static_cast<const __nv_bfloat16*>(x.data), x.stride, static_cast<int>(x.cols));
}

// ---- rows in and out
// ----------------------------------------------------------------------------------------------------

// Rows by place, zeros behind the last column. One block a place.
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(__nv_bfloat16* to, int64_t to_stride, const __nv_bfloat16* x, int64_t x_stride, int width,
                       const int32_t* row_of) {
  const int64_t place = blockIdx.x;
  const __nv_bfloat16* from = x + row_of[place] * x_stride;
  __nv_bfloat16* out = to + place * to_stride;
  const bool vector = width % 8 == 0 && x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  if (vector) {
    for (int c = threadIdx.x * 8; c < to_stride; c += kThreads * 8) {
      *reinterpret_cast<uint4*>(out + c) = c < width ? *reinterpret_cast<const uint4*>(from + c) : uint4{};
    }
  } else {
    for (int c = threadIdx.x; c < to_stride; c += kThreads) out[c] = c < width ? from[c] : __float2bfloat16_rn(0.f);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(T* y, int64_t y_stride, const T* out, int64_t out_stride, int width, int top_k,
                   const int32_t* place_of, const float* weight_of) {
  wait_for_previous();
  let_next_start();
  const int64_t row = blockIdx.x;
  const int32_t* place = place_of + row * top_k;
  const float* weight = weight_of + row * top_k;
  const int pairs = width / 2;
  if (y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(y) % (2 * sizeof(T)) == 0) {
    struct alignas(2 * sizeof(T)) Two {
      T v[2];
    };
    for (int c = threadIdx.x + blockIdx.y * kThreads; c < pairs; c += kThreads * gridDim.y) {
      float a = 0, b = 0;
      for (int i = 0; i < top_k; ++i) {
        const Two two = *reinterpret_cast<const Two*>(out + place[i] * out_stride + 2 * c);
        a = fmaf(weight[i], load(&two.v[0]), a);
        b = fmaf(weight[i], load(&two.v[1]), b);
      }
      Two sum;
      store(&sum.v[0], a);
      store(&sum.v[1], b);
      *reinterpret_cast<Two*>(y + row * y_stride + 2 * c) = sum;
    }
    if (width % 2 == 0) return;
  }
  const int from = y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(y) % (2 * sizeof(T)) == 0 ? 2 * pairs : 0;
  for (int c = from + threadIdx.x + blockIdx.y * kThreads; c < width; c += kThreads * gridDim.y) {
    float sum = 0;
    for (int i = 0; i < top_k; ++i) sum = fmaf(weight[i], load(out + place[i] * out_stride + c), sum);
    store(y + row * y_stride + c, sum);
  }
}

// ---- one kind of rows
// ---------------------------------------------------------------------------------------------------

struct Run {
  CudaContext& context;
  const ExpertsOnDevice& experts;
  const ExpertActivation& act;
  void* scratch;

  void operator()(Matrix y, Matrix x, const Routing& routing, RowKind kind) const {
    if (x.rows == 0) return;
    const bool plain = experts.type() == DType::f32;
    const bool tensor = !plain && kind == RowKind::prefill && context.properties().major == 9;
    const int columns = x.rows <= 8 ? 1 : x.rows <= 16 ? 2 : 4;
    const ExpertScratch s = carve_expert_scratch(experts.shape, experts.type(), scratch, x.rows, routing.top_k);
    const int64_t hidden = padded(experts.shape.hidden, kUnitInputs), width = padded(experts.shape.width, kUnitInputs);
    const Arranged arranged{plain || tensor ? nullptr : s.x, hidden};
    const SortCall sort{.out = s.sorted,
                        .expert = routing.expert,
                        .weight = routing.weight,
                        .n_rows = static_cast<int>(x.rows),
                        .top_k = routing.top_k,
                        .n_experts = static_cast<int>(experts.shape.n_experts),
                        .entry_rows = plain    ? kPlainRows
                                      : tensor ? kTensorRows
                                               : 8 * columns,
                        .counters = experts.counters()};
    sort_rows(context, sort, x, arranged);
    const int64_t pairs = x.rows * routing.top_k;
    ExpertCall up{
        .w = experts.matrix(Experts::Part::gate_up),
        .entries = s.sorted.entries,
        .n_entries = s.sorted.n_entries,
        .max_entries = static_cast<int>(pairs / sort.entry_rows + std::min<int64_t>(pairs, experts.shape.n_experts)),
        .x = plain ? x.data : s.x,
        .x_stride = plain ? x.stride : hidden,
        .row_of = s.sorted.row_of,
        .y = s.gate,
        .y_stride = width,
        .n_rows = static_cast<int>(x.rows),
        .act = act};
    if (tensor) {
      gather_rows_kernel<<<static_cast<unsigned>(pairs), kThreads, 0, context.stream()>>>(
          static_cast<__nv_bfloat16*>(s.out), hidden, static_cast<const __nv_bfloat16*>(x.data), x.stride,
          static_cast<int>(x.cols), s.sorted.row_of);
      HAY_LAUNCHED();
      up.x = s.out;  // free again when the second product writes there
      up.row_of = nullptr;
      up.n_rows = static_cast<int>(pairs);
    }
    ExpertCall down = up;
    down.w = experts.matrix(Experts::Part::down);
    down.x = s.gate;
    down.x_stride = width;
    down.row_of = nullptr;
    down.n_rows = static_cast<int>(pairs);
    down.y = s.out;
    down.entries_ready = true;
    down.y_stride = hidden;
    for (const ExpertCall& call : {up, down}) {
      if (plain)
        experts_plain(context, call);
      else if (tensor)
        experts_sm90(context, call);
      else
        experts_streamed(context, call, columns);
    }
    const dim3 grid(static_cast<unsigned>(x.rows),
                    static_cast<unsigned>(x.rows < 64 ? (y.cols / 2 + kThreads - 1) / kThreads + 1 : 1));
    with_type(y.dtype, [&](auto t) {
      using T = decltype(t);
      launch_early(context, combine_kernel<T>, grid, kThreads, 0, static_cast<T*>(y.data), y.stride,
                   static_cast<const T*>(s.out), hidden, static_cast<int>(y.cols), routing.top_k, s.sorted.place_of,
                   s.sorted.weight_of);
    });
  }
};

}  // namespace

void route(Context& base, Routing out, Matrix logits, const RouterParams& params, Vector scale) {
  HAY_CHECK(params.top_k >= 1 && params.top_k <= logits.cols && out.top_k == params.top_k &&
            logits.dtype == DType::f32 && (!scale || scale.size == logits.cols));
  if (logits.rows == 0) return;
  constexpr int64_t kRows = kThreads / 32;
  launch_early(of(base), route_kernel, static_cast<unsigned>((logits.rows + kRows - 1) / kRows), kThreads, 0,
               out.expert, out.weight, static_cast<const float*>(logits.data), logits.stride, logits.rows,
               static_cast<int>(logits.cols), params, scale.data);
}

void run_experts(Context& base, Matrix y, Matrix x, const Routing& routing, const Experts& experts,
                 const ExpertActivation& act, const RowGroups& groups, void* scratch) {
  int64_t prefill_end = 0;  // rows are sorted by kind
  for (const RowGroup& group : groups) {
    if (group.kind == RowKind::prefill) prefill_end = group.end;
  }
  const Run run{of(base), static_cast<const ExpertsOnDevice&>(experts), act, scratch};
  run(y.row_range(0, prefill_end), x.row_range(0, prefill_end), routing, RowKind::prefill);
  run(y.row_range(prefill_end, x.rows), x.row_range(prefill_end, x.rows), routing.from(prefill_end), RowKind::decode);
}

}  // namespace hayfork::engine::cuda
