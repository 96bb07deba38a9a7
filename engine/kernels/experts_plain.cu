// Experts in float32 without tensor cores: for correctness. A block is 64 rows of one expert by 64 outputs; the sum of
// an output runs over k ascending.
#include "engine/kernels/experts.cuh"

namespace hayfork::engine::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16;
static_assert(kTile == kPlainRows);

// Output c of a tile of a paired matrix: gates in even columns, the ups they meet in odd ones.
__device__ inline int weight_row(const ExpertMatrix& w, int output) {
  if (!w.paired) return output < w.n ? output : -1;
  const int width = w.n / 2;
  return output / 2 < width ? output / 2 + output % 2 * width : -1;
}

__global__ void __launch_bounds__(256) plain_kernel(const ExpertCall call) {
  if (static_cast<int>(blockIdx.y) >= *call.n_entries) return;
  __shared__ float xs[kDepth][kTile + 1], ws[kDepth][kTile + 1];
  const ExpertRows rows = call.entries[blockIdx.y];
  const ExpertMatrix& m = call.w;
  const float* w = static_cast<const float*>(m.weights) + static_cast<int64_t>(rows.expert) * m.n * m.k;
  const auto* x = static_cast<const float*>(call.x);
  const int n0 = blockIdx.x * kTile, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < m.k; k0 += kDepth) {
    for (int e = threadIdx.x; e < kTile * kDepth; e += 256) {
      const int row = e / kDepth, depth = e % kDepth, k = k0 + depth;
      float a = 0, b = 0;
      if (row < rows.n && k < m.k) {
        const int place = rows.first + row;
        a = x[(call.row_of != nullptr ? call.row_of[place] : place) * call.x_stride + k];
      }
      const int from = weight_row(m, n0 + row);
      if (from >= 0 && k < m.k) b = w[static_cast<int64_t>(from) * m.k + k];
      xs[depth][row] = a;
      ws[depth][row] = b;
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i][j] = fmaf(xs[d][ty * 4 + i], ws[d][tx * 4 + j], acc[i][j]);
      }
    }
    __syncthreads();
  }
  const float* bias = m.bias != nullptr ? m.bias + static_cast<int64_t>(rows.expert) * m.n : nullptr;
  for (int i = 0; i < 4; ++i) {
    if (ty * 4 + i >= rows.n) continue;
    float* y = static_cast<float*>(call.y) + (rows.first + ty * 4 + i) * call.y_stride;
    for (int j = 0; j < 4; ++j) {
      const int from = weight_row(m, n0 + tx * 4 + j);
      if (from >= 0 && bias != nullptr) acc[i][j] += bias[from];
    }
    for (int j = 0; j < 4; ++j) {
      const int output = n0 + tx * 4 + j;
      if (weight_row(m, output) < 0) continue;
      if (!m.paired)
        y[output] = acc[i][j];
      else if (j % 2 == 0)
        y[output / 2] = expert_activate<false>(acc[i][j], acc[i][j + 1], call.act);
    }
  }
}

}  // namespace

void experts_plain(CudaContext& context, const ExpertCall& call) {
  const dim3 grid(static_cast<unsigned>((call.w.n + kTile - 1) / kTile), static_cast<unsigned>(call.max_entries));
  plain_kernel<<<grid, 256, 0, context.stream()>>>(call);
  HAY_LAUNCHED();
}

}  // namespace hayfork::engine::cuda
