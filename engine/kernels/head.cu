// The vocabulary head on CUDA: logits slab by slab (float32 from the matrix product), folded at once into log-sum-exp,
// arg max, top two and the logits of targets. A row's sums run in id order over a fixed thread layout.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "engine/kernels/linear.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kSlab = 8192;      // ids a slab: 2,048 rows of one slab stay in the L2 cache
constexpr int64_t kSlabRows = 1024;  // rows a chunk

struct Folded {
  double sum;  // of exp(logit − max)
  float max;
  float top1, top2;
  int argmax;
  int finite;
};

struct Top {
  float first, second;
  int id;
};
// Higher logit first, the lower id among equals.
__device__ inline Top better(Top a, Top b) {
  const bool a_first = a.first > b.first || (a.first == b.first && a.id < b.id);
  const Top& win = a_first ? a : b;
  const Top& lose = a_first ? b : a;
  return {win.first, fmaxf(win.second, lose.first), win.id};
}

// One block a row: folds `cols` logits of ids first … into state[row].
__global__ void __launch_bounds__(kThreads)
    fold_kernel(Folded* state, float* logits, int64_t stride, int first, int cols, float softcap, bool fresh) {
  const int row = blockIdx.x;
  float* in = logits + row * stride;
  Top top{-INFINITY, -INFINITY, 0x7fffffff};
  bool bad = false;
  for (int c = threadIdx.x; c < cols; c += kThreads) {
    float v = in[c];
    if (softcap > 0) {
      v = softcap * tanhf(v / softcap);
      in[c] = v;
    }
    bad = bad || !isfinite(v);
    top = better(top, {v, -INFINITY, first + c});
  }
  __shared__ Top tops[kThreads];
  __shared__ double sums[kThreads];
  tops[threadIdx.x] = top;
  const bool any_bad = __syncthreads_or(bad);
  for (int n = kThreads / 2; n > 0; n /= 2) {
    if (static_cast<int>(threadIdx.x) < n) tops[threadIdx.x] = better(tops[threadIdx.x], tops[threadIdx.x + n]);
    __syncthreads();
  }
  top = tops[0];
  double sum = 0;
  for (int c = threadIdx.x; c < cols; c += kThreads) sum += static_cast<double>(expf(in[c] - top.first));
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int n = kThreads / 2; n > 0; n /= 2) {
    if (static_cast<int>(threadIdx.x) < n) sums[threadIdx.x] += sums[threadIdx.x + n];
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  Folded next{sums[0], top.first, top.first, top.second, top.id, !any_bad};
  if (!fresh) {
    const Folded old = state[row];
    const float max = fmaxf(old.max, next.max);
    next.sum = old.sum * exp(static_cast<double>(old.max) - max) + next.sum * exp(static_cast<double>(next.max) - max);
    next.max = max;
    const Top merged = better({old.top1, old.top2, old.argmax}, {next.top1, next.top2, next.argmax});
    next.top1 = merged.first;
    next.top2 = merged.second;
    next.argmax = merged.id;
    next.finite = next.finite && old.finite;
  }
  state[row] = next;
}

struct Target {
  int row, id, out;
};
__global__ void pick_kernel(float* out, const Target* targets, int n, const float* logits, int64_t stride, int first,
                            int cols) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Target target = targets[i];
  if (target.id >= first && target.id < first + cols) out[target.out] = logits[target.row * stride + target.id - first];
}

}  // namespace

std::vector<HeadRowResult> head(Context& base, Matrix hidden, const LinearWeight& w, float softcap,
                                std::span<const HeadRow> rows) {
  CudaContext& context = of(base);
  const LinearOnDevice& weight = on_device(w);
  HAY_CHECK(hidden.rows == static_cast<int64_t>(rows.size()));
  std::vector<HeadRowResult> results(rows.size());
  for (int64_t r0 = 0; r0 < hidden.rows; r0 += kSlabRows) {
    const int64_t n_rows = std::min(kSlabRows, hidden.rows - r0);
    std::vector<Target> targets;
    bool want_logits = false;
    for (int64_t r = 0; r < n_rows; ++r) {
      const HeadRow& row = rows[static_cast<size_t>(r0 + r)];
      for (const int32_t id : row.targets)
        targets.push_back({static_cast<int>(r), id, static_cast<int>(targets.size())});
      want_logits = want_logits || row.logits != nullptr;
    }
    const int n_targets = static_cast<int>(targets.size());
    const auto* device_targets =
        static_cast<const Target*>(context.stage(targets.data(), targets.size() * sizeof(Target)));
    auto* picked =
        static_cast<float*>(context.arena().allocate(static_cast<size_t>(std::max(n_targets, 1)) * sizeof(float)));
    auto* state = static_cast<Folded*>(context.arena().allocate(static_cast<size_t>(n_rows) * sizeof(Folded)));
    const Matrix logits = context.matrix(n_rows, std::min(kSlab, weight.n), DType::f32);
    const Matrix x = hidden.row_range(r0, r0 + n_rows);
    std::vector<float> slab_host(want_logits ? static_cast<size_t>(n_rows * logits.cols) : 0);
    for (int64_t first = 0; first < weight.n; first += kSlab) {
      const int64_t cols = std::min(kSlab, weight.n - first);
      Matrix y = logits;
      y.cols = cols;
      linear_slab(context, y, x, weight, first, cols);
      fold_kernel<<<static_cast<unsigned>(n_rows), kThreads, 0, context.stream()>>>(
          state, static_cast<float*>(y.data), y.stride, static_cast<int>(first), static_cast<int>(cols), softcap,
          first == 0);
      HAY_LAUNCHED();
      if (n_targets > 0) {
        pick_kernel<<<static_cast<unsigned>((n_targets + 127) / 128), 128, 0, context.stream()>>>(
            picked, device_targets, n_targets, static_cast<const float*>(y.data), y.stride, static_cast<int>(first),
            static_cast<int>(cols));
        HAY_LAUNCHED();
      }
      if (want_logits) {
        context.download(slab_host.data(), logits.data, slab_host.size() * sizeof(float));
        for (int64_t r = 0; r < n_rows; ++r) {
          float* to = rows[static_cast<size_t>(r0 + r)].logits;
          if (to != nullptr) std::copy_n(slab_host.data() + r * logits.stride, cols, to + first);
        }
      }
    }
    std::vector<Folded> folded(static_cast<size_t>(n_rows));
    std::vector<float> values(static_cast<size_t>(n_targets));
    context.download(folded.data(), state, folded.size() * sizeof(Folded));
    context.download(values.data(), picked, values.size() * sizeof(float));
    size_t at = 0;
    for (int64_t r = 0; r < n_rows; ++r) {
      HeadRowResult& result = results[static_cast<size_t>(r0 + r)];
      const Folded& f = folded[static_cast<size_t>(r)];
      result.target_logits.assign(
          values.begin() + static_cast<int64_t>(at),
          values.begin() + static_cast<int64_t>(at + rows[static_cast<size_t>(r0 + r)].targets.size()));
      at += rows[static_cast<size_t>(r0 + r)].targets.size();
      result.log_sum_exp = static_cast<float>(static_cast<double>(f.max) + std::log(f.sum));
      result.top1 = f.top1;
      result.top2 = f.top2;
      result.argmax = f.argmax;
      result.finite = f.finite != 0;
    }
  }
  return results;
}

}  // namespace hayfork::engine::cuda
