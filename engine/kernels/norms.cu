// Norms on CUDA: rmsnorm over rows or heads, and the residual addition with a norm behind it. Sums run in float32 in an
// order given by the columns.
#include <algorithm>

#include "engine/kernels/fused.h"
#include "engine/kernels/rowwise.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct NormCall {
  T* to;
  int64_t to_stride;
  const T* x;
  int64_t x_stride;
  const float* w;
  float eps;
  NormKind kind;
  uint32_t group, n_groups, n_total;  // columns, groups a row, groups in all
};

// The addition before a norm: h ← h + scale · y, where the norm's x is h.
template <typename T>
struct Addition {
  T* h = nullptr;
  const T* y = nullptr;
  int64_t y_stride = 0;
  float scale = 1;
  int32_t* marks = nullptr;  // the first layer in which a row of h was not finite
  int32_t layer = 0;
};

__device__ inline void square(float& sum, const float (&v)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) sum = fmaf(v[j], v[j], sum);
}

// Whole rows, a block each and then the next: every thread squares eights lane, lane + 256, …, then a fixed tree. kKept
// eights of a thread stay in registers, as do their weights; a wider row reads the rest twice.
template <typename T, int kKept, bool kAdd, NormKind kKind>
__global__ void __launch_bounds__(kThreads) row_kernel(const NormCall<T> call, const Addition<T> addition) {
  const auto lane = threadIdx.x;
  __shared__ float warp_sums[2][kThreads / 32];
  float weights[kKept][8];
  const auto weight_at = [&](float(&w)[8], uint32_t c) {
    if (call.w != nullptr) return load_parameters(w, call.w + c);
#pragma unroll
    for (int j = 0; j < 8; ++j) w[j] = absent_weight(kKind);
  };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const uint32_t c = (i * kThreads + lane) * 8;
    if (c < call.group) weight_at(weights[i], c);
  }
  let_next_start();
  wait_for_previous();
  Eight<T> ahead[kKept], ahead_y[kAdd ? kKept : 1];  // the next row's, on their way while this one is worked on
  const auto read_ahead = [&](uint32_t row) {
    if (row >= call.n_total) return;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const uint32_t c = (i * kThreads + lane) * 8;
      if (c >= call.group) continue;
      ahead[i] = read_eight(call.x + row * call.x_stride + c);
      if constexpr (kAdd) ahead_y[i] = read_eight(addition.y + row * addition.y_stride + c);
    }
  };
  read_ahead(blockIdx.x);
  int parity = 0;
  for (uint32_t row = blockIdx.x; row < call.n_total; row += gridDim.x, parity ^= 1) {
    const T* in = call.x + row * call.x_stride;
    float sum = 0;
    bool bad = false;
    float kept[kKept][8];
    const auto add = [&](float(&v)[8], const float(&y)[8], uint32_t c) {
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += scaled<T>(y[j], addition.scale);
      round_eight<T>(v);
#pragma unroll
      for (int j = 0; j < 8; ++j) bad = bad || !isfinite(v[j]);
      store_eight(addition.h + row * call.x_stride + c, v);
    };
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const uint32_t c = (i * kThreads + lane) * 8;
      if (c >= call.group) continue;
      unpack(kept[i], ahead[i]);
      if constexpr (kAdd) {
        float y[8];
        unpack(y, ahead_y[i]);
        add(kept[i], y, c);
      }
      square(sum, kept[i]);
    }
    read_ahead(row + gridDim.x);
    for (uint32_t c = (kKept * kThreads + lane) * 8; c < call.group; c += kThreads * 8) {
      float v[8];
      load_eight(v, in + c);
      if constexpr (kAdd) {
        float y[8];
        load_eight(y, addition.y + row * addition.y_stride + c);
        add(v, y, c);
      }
      square(sum, v);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (lane % 32 == 0) warp_sums[parity][lane / 32] = sum;  // the next row's go elsewhere: one barrier a row
    if constexpr (kAdd) {
      const bool any = __syncthreads_or(bad);
      if (lane == 0 && addition.marks != nullptr) {
        const int32_t before = addition.layer == 0 ? -1 : addition.marks[row];
        addition.marks[row] = before < 0 && any ? addition.layer : before;
      }
    } else {
      __syncthreads();
    }
    sum = 0;
#pragma unroll
    for (int i = 0; i < kThreads / 32; ++i) sum += warp_sums[parity][i];
    const float r = 1.f / sqrtf(sum / static_cast<float>(call.group) + call.eps);
    T* out = call.to + row * call.to_stride;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const uint32_t c = (i * kThreads + lane) * 8;
      if (c >= call.group) continue;
      norm_eight<T, kKind>(kept[i], r, weights[i]);
      store_eight(out + c, kept[i]);
    }
    for (uint32_t c = (kKept * kThreads + lane) * 8; c < call.group; c += kThreads * 8) {
      float v[8], weight[8];
      load_eight(v, in + c);
      weight_at(weight, c);
      norm_eight<T, kKind>(v, r, weight);
      store_eight(out + c, v);
    }
  }
}

// Groups of up to 1,024 columns, kLanes threads each: every thread squares columns lane, lane + kLanes, … (of eights
// when kVector), then a fixed tree. Also rows of any width that cannot be read by eights, with kLanes = 256.
template <typename T, int kLanes, bool kVector>
__global__ void __launch_bounds__(kThreads) group_kernel(const NormCall<T> call) {
  constexpr uint32_t kPerBlock = kThreads / kLanes;
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t index = blockIdx.x * kPerBlock + threadIdx.x / kLanes;
  let_next_start();
  wait_for_previous();
  const bool in_range = index < call.n_total;
  const int64_t row = in_range ? index / call.n_groups : 0;
  const uint32_t first = in_range ? index % call.n_groups * call.group : 0;
  const T* in = call.x + row * call.x_stride + first;
  T* out = call.to + row * call.to_stride + first;
  float sum = 0;
  if constexpr (kVector) {
    for (uint32_t c = lane * 8; c < call.group; c += kLanes * 8) {
      float v[8];
      load_eight(v, in + c);
      square(sum, v);
    }
  } else {
    for (uint32_t c = lane; c < call.group; c += kLanes) {
      const float v = load(in + c);
      sum = fmaf(v, v, sum);
    }
  }
#pragma unroll
  for (int offset = kLanes < 32 ? kLanes / 2 : 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if constexpr (kLanes > 32) {
    __shared__ float warp_sums[kLanes / 32];
    if (lane % 32 == 0) warp_sums[lane / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int i = 0; i < kLanes / 32; ++i) sum += warp_sums[i];
  }
  if (!in_range) return;
  const float r = 1.f / sqrtf(sum / static_cast<float>(call.group) + call.eps);
  const float absent = absent_weight(call.kind);
  if constexpr (kVector) {
    for (uint32_t c = lane * 8; c < call.group; c += kLanes * 8) {
      float v[8], weight[8];
      load_eight(v, in + c);
#pragma unroll
      for (int j = 0; j < 8; ++j) weight[j] = absent;
      if (call.w != nullptr) load_parameters(weight, call.w + c);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = normed<T>(v[j], r, weight[j], call.kind);
      store_eight(out + c, v);
    }
  } else {
    for (uint32_t c = lane; c < call.group; c += kLanes) {
      store(out + c, normed<T>(load(in + c), r, call.w != nullptr ? call.w[c] : absent, call.kind));
    }
  }
}

template <typename T>
NormCall<T> norm_call(Matrix y, Matrix x, Vector w, float eps, NormKind kind, int64_t group) {
  const int64_t n_groups = x.cols / group;
  HAY_CHECK(x.rows * n_groups < int64_t{1} << 31);
  return {static_cast<T*>(y.data),
          y.stride,
          static_cast<const T*>(x.data),
          x.stride,
          w.data,
          eps,
          kind,
          static_cast<uint32_t>(group),
          static_cast<uint32_t>(n_groups),
          static_cast<uint32_t>(x.rows * n_groups)};
}

template <typename T, bool kAdd>
void launch_rows(CudaContext& context, const NormCall<T>& call, const Addition<T>& addition) {
  const auto most = static_cast<uint32_t>(context.properties().multiProcessorCount) * 4;
  const uint32_t blocks = std::min(call.n_total, most);
  with_kind(call.kind, [&](auto kind) {
    constexpr NormKind kKind = decltype(kind)::value;
    if (call.group <= kThreads * 16)
      launch_early(context, row_kernel<T, 2, kAdd, kKind>, blocks, kThreads, 0, call, addition);
    else
      launch_early(context, row_kernel<T, 4, kAdd, kKind>, blocks, kThreads, 0, call, addition);
  });
}

// Whole rows that are wide enough for a block each.
bool by_block(int64_t cols, int64_t group) {
  return group == cols && group > 1024;
}

}  // namespace

void rmsnorm(Context& base, Matrix y, Matrix x, Vector w, float eps, NormKind kind, int64_t group) {
  if (x.rows == 0) return;
  CudaContext& context = of(base);
  const bool vector = by_eight({y, x}, group) && by_sixteen_bytes(w.data);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    const NormCall<T> call = norm_call<T>(y, x, w, eps, kind, group);
    if (vector && by_block(x.cols, group)) return launch_rows<T, false>(context, call, {});
    const auto launch = [&](auto kernel, uint32_t per_block) {
      launch_early(context, kernel, (call.n_total + per_block - 1) / per_block, kThreads, 0, call);
    };
    if (!vector) {
      if (group <= 512)
        launch(group_kernel<T, 32, false>, 8);
      else
        launch(group_kernel<T, 256, false>, 1);
    } else if (group <= 128) {
      launch(group_kernel<T, 16, true>, 16);
    } else if (group <= 1024) {
      launch(group_kernel<T, 32, true>, 8);
    } else {
      launch(group_kernel<T, 256, true>, 1);
    }
  });
}

void add_rmsnorm(Context& base, Matrix x, Matrix h, Matrix y, float scale, Vector w, float eps, NormKind kind,
                 NonfiniteCheck check) {
  if (h.rows == 0) return;
  if (!by_eight({x, h, y}, h.cols) || !by_sixteen_bytes(w.data) || !by_block(h.cols, h.cols)) {
    return add_then_rmsnorm(base, x, h, y, scale, w, eps, kind, check);
  }
  with_type(h.dtype, [&](auto t) {
    using T = decltype(t);
    launch_rows<T, true>(of(base), norm_call<T>(x, h, w, eps, kind, h.cols),
                         {static_cast<T*>(h.data), static_cast<const T*>(y.data), y.stride, scale,
                          static_cast<int32_t*>(check.marks.data), check.layer});
  });
}

}  // namespace hayfork::engine::cuda
