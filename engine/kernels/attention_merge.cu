// The last step of split attention: segments of a row are added up in ascending order.
#include "engine/kernels/attention_mma.cuh"

namespace hayfork::engine::cuda {
namespace {

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

}  // namespace

void attention_merge(CudaContext& context, const AttentionCall& call, const Partials& partials, int first_row,
                     int n_rows) {
  launch_early(context, merge_kernel, dim3(static_cast<unsigned>(n_rows), static_cast<unsigned>(call.n_heads)),
               kMergeWarps * 32, 0, call, partials, first_row);
}

}  // namespace hayfork::engine::cuda
