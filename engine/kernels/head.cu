// The vocabulary head on CUDA: logits folded into log-sum-exp, arg max, top two and the logits of targets. On Hopper
// inside the matrix product (head_sm90.cuh); else slab by slab, float32 from the product. A row's sums run over a
// layout that the vocabulary alone decides.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "engine/kernels/head_sm90.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kSlab = 8192;      // ids a slab: 2,048 rows of one slab stay in the L2 cache
constexpr int64_t kSlabRows = 1024;  // rows a chunk

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

// An id is always one: with no finite logit there is no arg max, and the row's answer fails.
__device__ inline int32_t remembered(int argmax) {
  return argmax == 0x7fffffff ? 0 : argmax;
}

// One block a row: folds `cols` logits of ids first … into state[row]; the arg max also goes to ids[row], if any.
__global__ void __launch_bounds__(kThreads) fold_kernel(HeadState* state, int32_t* ids, float* logits, int64_t stride,
                                                        int first, int cols, float softcap, bool fresh) {
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
  HeadState next{sums[0], top.first, top.first, top.second, top.id, !any_bad, 0};
  if (!fresh) {
    const HeadState old = state[row];
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
  if (ids != nullptr) ids[row] = remembered(next.argmax);
}

// One warp a row: folds of the vocabulary's tiles, ascending in each lane, then a fixed tree.
__global__ void __launch_bounds__(kThreads)
    merge_folds_kernel(HeadState* state, int32_t* ids, const HeadFold* folds, int n_rows, int n_tiles) {
  const int row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= n_rows) return;
  const HeadFold* of_row = folds + static_cast<int64_t>(row) * n_tiles;
  Top top{-INFINITY, -INFINITY, 0x7fffffff};
  for (int t = lane; t < n_tiles; t += 32) top = better(top, {of_row[t].top1, of_row[t].top2, of_row[t].top});
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    top = better(top, {__shfl_xor_sync(~0u, top.first, offset), __shfl_xor_sync(~0u, top.second, offset),
                       __shfl_xor_sync(~0u, top.id, offset)});
  }
  double sum = 0;
  for (int t = lane; t < n_tiles; t += 32) {
    sum += static_cast<double>(of_row[t].sum) * static_cast<double>(expf(of_row[t].top1 - top.first));
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane != 0) return;
  state[row] = {sum, top.first, top.first, top.second, top.id, isfinite(sum) && isfinite(top.first), 0};
  if (ids != nullptr) ids[row] = remembered(top.id);
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

// Where the arg max of rows r0 … is remembered.
int32_t* ids_at(CudaContext& context, int64_t r0, int64_t n_rows) {
  return r0 + n_rows <= CudaContext::kRememberedIds ? context.last_ids() + r0 : nullptr;
}

// Queues the head of all rows with head_sm90, `chunk` rows at a time; with_logits: on_logits(row 0, logits [rows, N])
// after each.
template <typename F>
QueuedHead queue_folded(CudaContext& context, Matrix hidden, const LinearOnDevice& weight, float softcap,
                        std::span<const HeadRow> rows, bool with_logits, F on_logits) {
  std::vector<int32_t> first_target{0}, ids;
  for (const HeadRow& row : rows) {
    ids.insert(ids.end(), row.targets.begin(), row.targets.end());
    first_target.push_back(static_cast<int32_t>(ids.size()));
  }
  QueuedHead out{.n_rows = hidden.rows, .n_targets = static_cast<int64_t>(ids.size())};
  out.picked = static_cast<float*>(context.arena().allocate(std::max<size_t>(ids.size(), 1) * sizeof(float)));
  out.rows = static_cast<HeadState*>(context.arena().allocate(rows.size() * sizeof(HeadState)));
  const int32_t* device_first = nullptr;
  const int32_t* device_ids = nullptr;
  if (!ids.empty()) {
    device_first =
        static_cast<const int32_t*>(context.stage(first_target.data(), first_target.size() * sizeof(int32_t)));
    device_ids = static_cast<const int32_t*>(context.stage(ids.data(), ids.size() * sizeof(int32_t)));
  }
  const int64_t chunk = std::min<int64_t>(hidden.rows, with_logits ? 64 : 4096);
  const int64_t n_tiles = (weight.n + kHeadTile - 1) / kHeadTile;
  auto* folds = static_cast<HeadFold*>(context.op_scratch(static_cast<size_t>(chunk * n_tiles) * sizeof(HeadFold)));
  const Matrix logits = with_logits ? context.matrix(chunk, weight.n, DType::f32) : Matrix{};
  for (int64_t r0 = 0; r0 < hidden.rows; r0 += chunk) {
    const int64_t n = std::min(chunk, hidden.rows - r0);
    head_sm90(context, {hidden.row_range(r0, r0 + n), &weight, softcap, folds,
                        device_first == nullptr ? nullptr : device_first + r0, device_ids, out.picked,
                        static_cast<float*>(logits.data)});
    merge_folds_kernel<<<static_cast<unsigned>((n + kThreads / 32 - 1) / (kThreads / 32)), kThreads, 0,
                         context.stream()>>>(out.rows + r0, ids_at(context, r0, n), folds, static_cast<int>(n),
                                             static_cast<int>(n_tiles));
    HAY_LAUNCHED();
    if (with_logits) on_logits(r0, logits.row_range(0, n), 0);
  }
  return out;
}

// Queues the head of all rows, chunk by chunk and slab by slab; with_logits: on_slab(row 0, logits,
// first id) after each slab.
template <typename F>
QueuedHead queue_rows(CudaContext& context, Matrix hidden, const LinearOnDevice& weight, float softcap,
                      std::span<const HeadRow> rows, bool with_logits, F on_slab) {
  HAY_CHECK(hidden.rows == static_cast<int64_t>(rows.size()));
  if (supports_head_sm90(context, hidden, weight)) {
    return queue_folded(context, hidden, weight, softcap, rows, with_logits, on_slab);
  }
  std::vector<Target> targets;
  std::vector<int> first_target{0};  // by chunk
  for (int64_t r = 0; r < hidden.rows; ++r) {
    for (const int32_t id : rows[static_cast<size_t>(r)].targets) {
      targets.push_back({static_cast<int>(r % kSlabRows), id, static_cast<int>(targets.size())});
    }
    if ((r + 1) % kSlabRows == 0 || r + 1 == hidden.rows) first_target.push_back(static_cast<int>(targets.size()));
  }
  QueuedHead out{.n_rows = hidden.rows, .n_targets = static_cast<int64_t>(targets.size())};
  const auto* device_targets =
      static_cast<const Target*>(context.stage(targets.data(), targets.size() * sizeof(Target)));
  out.picked = static_cast<float*>(context.arena().allocate(std::max<size_t>(targets.size(), 1) * sizeof(float)));
  out.rows = static_cast<HeadState*>(context.arena().allocate(rows.size() * sizeof(HeadState)));
  const Matrix logits = context.matrix(std::min(kSlabRows, hidden.rows), std::min(kSlab, weight.n), DType::f32);
  for (int64_t r0 = 0; r0 < hidden.rows; r0 += kSlabRows) {
    const int64_t n_rows = std::min(kSlabRows, hidden.rows - r0);
    const Matrix x = hidden.row_range(r0, r0 + n_rows);
    const int begin = first_target[static_cast<size_t>(r0 / kSlabRows)];
    const int n_targets = first_target[static_cast<size_t>(r0 / kSlabRows) + 1] - begin;
    int32_t* ids = ids_at(context, r0, n_rows);
    for (int64_t first = 0; first < weight.n; first += kSlab) {
      const int64_t cols = std::min(kSlab, weight.n - first);
      Matrix y = logits.row_range(0, n_rows);
      y.cols = cols;
      linear_slab(context, y, x, weight, first, cols);
      fold_kernel<<<static_cast<unsigned>(n_rows), kThreads, 0, context.stream()>>>(
          out.rows + r0, first + cols == weight.n ? ids : nullptr, static_cast<float*>(y.data), y.stride,
          static_cast<int>(first), static_cast<int>(cols), softcap, first == 0);
      HAY_LAUNCHED();
      if (n_targets > 0) {
        pick_kernel<<<static_cast<unsigned>((n_targets + 127) / 128), 128, 0, context.stream()>>>(
            out.picked, device_targets + begin, n_targets, static_cast<const float*>(y.data), y.stride,
            static_cast<int>(first), static_cast<int>(cols));
        HAY_LAUNCHED();
      }
      if (with_logits) on_slab(r0, y, first);
    }
  }
  return out;
}

}  // namespace

QueuedHead head_queue(Context& base, Matrix hidden, const LinearWeight& weight, float softcap,
                      std::span<const HeadRow> rows) {
  return queue_rows(of(base), hidden, on_device(weight), softcap, rows, false, [](int64_t, Matrix, int64_t) {});
}

std::vector<HeadRowResult> head(Context& base, Matrix hidden, const LinearWeight& weight, float softcap,
                                std::span<const HeadRow> rows) {
  CudaContext& context = of(base);
  const bool want_logits =
      std::any_of(rows.begin(), rows.end(), [](const HeadRow& row) { return row.logits != nullptr; });
  std::vector<float> host;
  const QueuedHead queued = queue_rows(context, hidden, on_device(weight), softcap, rows, want_logits,
                                       [&](int64_t r0, Matrix logits, int64_t first) {
                                         host.resize(static_cast<size_t>(logits.rows * logits.stride));
                                         context.download(host.data(), logits.data, host.size() * sizeof(float));
                                         for (int64_t r = 0; r < logits.rows; ++r) {
                                           float* to = rows[static_cast<size_t>(r0 + r)].logits;
                                           if (to != nullptr)
                                             std::copy_n(host.data() + r * logits.stride, logits.cols, to + first);
                                         }
                                       });
  std::vector<HeadState> states(rows.size());
  std::vector<float> picked(static_cast<size_t>(queued.n_targets));
  context.download(states.data(), queued.rows, states.size() * sizeof(HeadState));
  context.download(picked.data(), queued.picked, picked.size() * sizeof(float));
  std::vector<int32_t> n_targets;
  for (const HeadRow& row : rows) n_targets.push_back(static_cast<int32_t>(row.targets.size()));
  return head_read(states.data(), picked.data(), n_targets);
}

}  // namespace hayfork::engine::cuda
