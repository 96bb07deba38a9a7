// The vocabulary head on CUDA: logits folded into log-sum-exp, arg max, top two and the logits of targets. Prefill rows
// on Hopper: inside the matrix product (head_sm90.cuh). Decode rows: the linear that streams the weights, then its
// logits. Everything else: slab by slab, float32 from the product. Rows of a kind have one way; sums run over a layout
// that the vocabulary alone decides.
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
constexpr int kFoldIds = 2048;       // ids that a block folds of a decode row
constexpr int64_t kStreamRows = 64;

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

// What a block finds in `cols` logits of ids first …; capped in place when softcap > 0. All threads get the same.
struct BlockFold {
  Top top;
  double sum;  // of exp(logit − top.first)
  bool bad;    // a logit was not finite
};
__device__ BlockFold fold_block(float* in, int first, int cols, float softcap) {
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
  bad = __syncthreads_or(bad);
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
  return {top, sums[0], bad};
}

// One block a row: folds a slab into state[row]; the arg max also goes to ids[row], if any.
__global__ void __launch_bounds__(kThreads) fold_kernel(HeadState* state, int32_t* ids, float* logits, int64_t stride,
                                                        int first, int cols, float softcap, bool fresh) {
  const int row = blockIdx.x;
  const BlockFold fold = fold_block(logits + row * stride, first, cols, softcap);
  if (threadIdx.x != 0) return;
  HeadState next{fold.sum, fold.top.first, fold.top.first, fold.top.second, fold.top.id, !fold.bad, 0};
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

// One block a (row, kFoldIds ids).
__global__ void __launch_bounds__(kThreads)
    fold_tiles_kernel(HeadFold* folds, float* logits, int64_t stride, int n, float softcap) {
  const int row = blockIdx.y, first = blockIdx.x * kFoldIds;
  const BlockFold fold = fold_block(logits + row * stride + first, first, min(kFoldIds, n - first), softcap);
  if (threadIdx.x != 0) return;
  folds[static_cast<int64_t>(row) * gridDim.x + blockIdx.x] = {
      fold.top.first, fold.top.second, fold.bad ? NAN : static_cast<float>(fold.sum), fold.top.id};
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

// Targets in device memory: those of row r are ids[first[r]] … ids[first[r + 1] − 1], and so are their logits.
struct Targets {
  const int32_t* first = nullptr;  // null: none
  const int32_t* ids = nullptr;
  float* logits = nullptr;
  Targets from(int64_t row) const { return {first == nullptr ? nullptr : first + row, ids, logits}; }
};
// One block a row: the logits of those of its targets that are among ids begin … begin + cols.
__global__ void pick_kernel(Targets targets, const float* logits, int64_t stride, int begin, int cols) {
  const int row = blockIdx.x;
  for (int t = targets.first[row] + static_cast<int>(threadIdx.x); t < targets.first[row + 1]; t += blockDim.x) {
    const int id = targets.ids[t];
    if (id >= begin && id < begin + cols) targets.logits[t] = logits[row * stride + id - begin];
  }
}

// A head on its way: f(row 0, logits, first id) after each piece when `wants` logits.
template <typename F>
struct Head {
  CudaContext& context;
  const LinearOnDevice& weight;
  float softcap;
  bool wants;
  F on_logits;
  HeadState* states = nullptr;
  Targets targets;

  int32_t* ids_at(int64_t r0, int64_t n_rows) const {
    return r0 + n_rows <= CudaContext::kRememberedIds ? context.last_ids() + r0 : nullptr;
  }
  void pick(int64_t r0, Matrix logits, int64_t first) const {
    if (targets.first == nullptr) return;
    pick_kernel<<<static_cast<unsigned>(logits.rows), 128, 0, context.stream()>>>(
        targets.from(r0), static_cast<const float*>(logits.data), logits.stride, static_cast<int>(first),
        static_cast<int>(logits.cols));
    HAY_LAUNCHED();
  }
  void merge(int64_t r0, int64_t n, const HeadFold* folds, int64_t n_tiles) const {
    constexpr int64_t kRows = kThreads / 32;
    merge_folds_kernel<<<static_cast<unsigned>((n + kRows - 1) / kRows), kThreads, 0, context.stream()>>>(
        states + r0, ids_at(r0, n), folds, static_cast<int>(n), static_cast<int>(n_tiles));
    HAY_LAUNCHED();
  }

  // Rows [r0, r0 + x.rows), one chunk after the other, slab by slab.
  void by_slabs(Matrix x, int64_t r0) {
    const Matrix logits = context.matrix(std::min(kSlabRows, x.rows), std::min(kSlab, weight.n), DType::f32);
    for (int64_t r = 0; r < x.rows; r += kSlabRows) {
      const int64_t n = std::min(kSlabRows, x.rows - r);
      for (int64_t first = 0; first < weight.n; first += kSlab) {
        const int64_t cols = std::min(kSlab, weight.n - first);
        Matrix y = logits.row_range(0, n);
        y.cols = cols;
        linear_slab(context, y, x.row_range(r, r + n), weight, first, cols);
        fold_kernel<<<static_cast<unsigned>(n), kThreads, 0, context.stream()>>>(
            states + r0 + r, first + cols == weight.n ? ids_at(r0 + r, n) : nullptr, static_cast<float*>(y.data),
            y.stride, static_cast<int>(first), static_cast<int>(cols), softcap, first == 0);
        HAY_LAUNCHED();
        pick(r0 + r, y, first);
        if (wants) on_logits(r0 + r, y, first);
      }
    }
  }

  // The same in one product (head_sm90.cuh).
  void by_product(Matrix x, int64_t r0) {
    const int64_t chunk = std::min<int64_t>(x.rows, wants ? kStreamRows : 4096);
    const int64_t n_tiles = (weight.n + kHeadTile - 1) / kHeadTile;
    auto* folds = static_cast<HeadFold*>(context.op_scratch(static_cast<size_t>(chunk * n_tiles) * sizeof(HeadFold)));
    const Matrix logits = wants ? context.matrix(chunk, weight.n, DType::f32) : Matrix{};
    for (int64_t r = 0; r < x.rows; r += chunk) {
      const int64_t n = std::min(chunk, x.rows - r);
      const Targets some = targets.from(r0 + r);
      head_sm90(context, {x.row_range(r, r + n), &weight, softcap, folds, some.first, some.ids, some.logits,
                          static_cast<float*>(logits.data)});
      merge(r0 + r, n, folds, n_tiles);
      if (wants) on_logits(r0 + r, logits.row_range(0, n), 0);
    }
  }

  // Decode rows.
  void by_stream(Matrix x, int64_t r0) {
    const int64_t chunk = std::min(kStreamRows, x.rows), n_tiles = (weight.n + kFoldIds - 1) / kFoldIds;
    const size_t logit_bytes = (static_cast<size_t>(chunk * weight.n) * sizeof(float) + 255) / 256 * 256;
    char* scratch =
        static_cast<char*>(context.op_scratch(logit_bytes + static_cast<size_t>(chunk * n_tiles) * sizeof(HeadFold)));
    auto* folds = reinterpret_cast<HeadFold*>(scratch + logit_bytes);
    for (int64_t r = 0; r < x.rows; r += chunk) {
      const int64_t n = std::min(chunk, x.rows - r);
      const Matrix logits{scratch, DType::f32, n, weight.n, weight.n};
      cuda::linear(context, logits, x.row_range(r, r + n), weight, RowKind::decode);
      fold_tiles_kernel<<<dim3(static_cast<unsigned>(n_tiles), static_cast<unsigned>(n)), kThreads, 0,
                          context.stream()>>>(folds, static_cast<float*>(logits.data), logits.stride,
                                              static_cast<int>(weight.n), softcap);
      HAY_LAUNCHED();
      merge(r0 + r, n, folds, n_tiles);
      pick(r0 + r, logits, 0);
      if (wants) on_logits(r0 + r, logits, 0);
    }
  }
};

template <typename F>
QueuedHead queue_rows(CudaContext& context, Matrix hidden, const LinearOnDevice& weight, float softcap,
                      std::span<const HeadRow> rows, bool wants_logits, F on_logits) {
  HAY_CHECK(hidden.rows == static_cast<int64_t>(rows.size()));
  std::vector<int32_t> first{0}, ids;
  for (const HeadRow& row : rows) {
    ids.insert(ids.end(), row.targets.begin(), row.targets.end());
    first.push_back(static_cast<int32_t>(ids.size()));
  }
  QueuedHead out{.n_rows = hidden.rows, .n_targets = static_cast<int64_t>(ids.size())};
  out.picked = static_cast<float*>(context.arena().allocate(std::max<size_t>(ids.size(), 1) * sizeof(float)));
  out.rows = static_cast<HeadState*>(context.arena().allocate(rows.size() * sizeof(HeadState)));
  Head<F> head{context, weight, softcap, wants_logits, on_logits, out.rows, {}};
  if (!ids.empty()) {
    head.targets = {static_cast<const int32_t*>(context.stage(first.data(), first.size() * sizeof(int32_t))),
                    static_cast<const int32_t*>(context.stage(ids.data(), ids.size() * sizeof(int32_t))), out.picked};
  }
  // Stretches of rows of one kind.
  for (int64_t begin = 0, end; begin < hidden.rows; begin = end) {
    const RowKind kind = rows[static_cast<size_t>(begin)].kind;
    for (end = begin + 1; end < hidden.rows && rows[static_cast<size_t>(end)].kind == kind;) ++end;
    const Matrix x = hidden.row_range(begin, end);
    if (kind == RowKind::decode && weight.dtype == DType::bf16)
      head.by_stream(x, begin);
    else if (supports_head_sm90(context, x, weight))
      head.by_product(x, begin);
    else
      head.by_slabs(x, begin);
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
  const bool wants_logits =
      std::any_of(rows.begin(), rows.end(), [](const HeadRow& row) { return row.logits != nullptr; });
  std::vector<float> host;
  const auto take = [&](int64_t r0, Matrix logits, int64_t first) {
    host.resize(static_cast<size_t>(logits.rows * logits.stride));
    context.download(host.data(), logits.data, host.size() * sizeof(float));
    for (int64_t r = 0; r < logits.rows; ++r) {
      float* to = rows[static_cast<size_t>(r0 + r)].logits;
      if (to != nullptr) std::copy_n(host.data() + r * logits.stride, logits.cols, to + first);
    }
  };
  const QueuedHead queued = queue_rows(context, hidden, on_device(weight), softcap, rows, wants_logits, take);
  std::vector<HeadState> states(rows.size());
  std::vector<float> picked(static_cast<size_t>(queued.n_targets));
  context.download(states.data(), queued.rows, states.size() * sizeof(HeadState));
  context.download(picked.data(), queued.picked, picked.size() * sizeof(float));
  std::vector<int32_t> n_targets;
  for (const HeadRow& row : rows) n_targets.push_back(static_cast<int32_t>(row.targets.size()));
  return head_read(states.data(), picked.data(), n_targets);
}

}  // namespace hayfork::engine::cuda
