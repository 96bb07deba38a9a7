// Elementwise ops around mixers on CUDA: weighted sums, gates, SiLU, L2 norms, and the step sizes and decays of Mamba-2
// and GLA. Each rounds where the unfused chain of the reference rounds.
#include <algorithm>
#include <type_traits>

#include "engine/kernels/recurrent.cuh"
#include "engine/kernels/rowwise.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) {
  return static_cast<unsigned>(std::clamp<int64_t>((n + kThreads - 1) / kThreads, 1, 1 << 20));
}

// body(row, column, width) over elements, eight at a time where all matrices allow it.
template <int kWidth, typename Body>
__global__ void __launch_bounds__(kThreads) elements_kernel(int64_t rows, int cols, Body body) {
  let_next_start();
  wait_for_previous();
  const int per_row = cols / kWidth;
  const int64_t n = rows * per_row;
  for (int64_t e = blockIdx.x * int64_t{kThreads} + threadIdx.x; e < n; e += gridDim.x * int64_t{kThreads}) {
    body(e / per_row, static_cast<int>(e % per_row) * kWidth, std::integral_constant<int, kWidth>{});
  }
}
template <typename Body>
void for_elements(Context& base, std::initializer_list<Matrix> matrices, Body body) {
  const Matrix& shape = *matrices.begin();
  if (shape.rows == 0 || shape.cols == 0) return;
  const auto cols = static_cast<int>(shape.cols);
  if (by_eight(matrices, shape.cols)) {
    launch_early(of(base), elements_kernel<8, Body>, blocks_for(shape.rows * shape.cols / 8), kThreads, 0, shape.rows,
                 cols, body);
  } else {
    launch_early(of(base), elements_kernel<1, Body>, blocks_for(shape.rows * shape.cols), kThreads, 0, shape.rows, cols,
                 body);
  }
}

// A matrix as a kernel sees it.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
  explicit Rows(Matrix m) : data(static_cast<T*>(m.data)), stride(m.stride) {}
  __device__ T* at(int64_t row, int column) const { return data + row * stride + column; }
};
template <int kWidth, typename T>
__device__ inline void get(float (&to)[kWidth], const T* from) {
  if constexpr (kWidth == 8) {
    load_eight(to, from);
  } else {
    to[0] = load(from);
  }
}
template <int kWidth, typename T>
__device__ inline void put(T* to, const float (&from)[kWidth]) {
  if constexpr (kWidth == 8) {
    store_eight(to, from);
  } else {
    store(to, from[0]);
  }
}

template <typename T>
struct Combine {
  Rows<T> out, x, y;
  float a, b;
  template <int kWidth>
  __device__ void operator()(int64_t row, int c, std::integral_constant<int, kWidth>) const {
    float v[kWidth], w[kWidth];
    get<kWidth>(v, x.at(row, c));
    if (b != 0.f) get<kWidth>(w, y.at(row, c));
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      v[i] *= a;
      if (b != 0.f) v[i] = rounded<T>(v[i]) + rounded<T>(b * w[i]);
    }
    put<kWidth>(out.at(row, c), v);
  }
};

template <typename T>
struct SigmoidMul {
  Rows<T> y, gate, x;
  bool one_column;
  template <int kWidth>
  __device__ void operator()(int64_t row, int c, std::integral_constant<int, kWidth>) const {
    float v[kWidth], g[kWidth];
    get<kWidth>(v, x.at(row, c));
    if (one_column) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) g[i] = load(gate.at(row, 0));
    } else {
      get<kWidth>(g, gate.at(row, c));
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] *= rounded<T>(1.f / (1.f + expf(-g[i])));
    put<kWidth>(y.at(row, c), v);
  }
};

template <typename T>
struct Silu {
  Rows<T> y, x;
  template <int kWidth>
  __device__ void operator()(int64_t row, int c, std::integral_constant<int, kWidth>) const {
    float v[kWidth];
    get<kWidth>(v, x.at(row, c));
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] = silu_of<T>(v[i]);
    put<kWidth>(y.at(row, c), v);
  }
};

template <typename T>
struct MambaSteps {
  Rows<float> steps, a;
  Rows<T> dt;
  const float *dt_bias, *a_log;
  float low, high;
  template <int kWidth>
  __device__ void operator()(int64_t row, int c, std::integral_constant<int, kWidth>) const {
    float v[kWidth], decay[kWidth];
    get<kWidth>(v, dt.at(row, c));
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float x = softplus(v[i] + dt_bias[c + i]);
      v[i] = x < low ? low : x > high ? high : x;
      decay[i] = -expf(a_log[c + i]) * v[i];
    }
    put<kWidth>(steps.at(row, c), v);
    put<kWidth>(a.at(row, c), decay);
  }
};

template <typename T>
struct LogSigmoid {
  Rows<float> y;
  Rows<T> x;
  float scale, floor;
  template <int kWidth>
  __device__ void operator()(int64_t row, int c, std::integral_constant<int, kWidth>) const {
    float v[kWidth];
    get<kWidth>(v, x.at(row, c));
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float log = (fminf(v[i], 0.f) - log1pf(expf(-fabsf(v[i])))) * scale;
      v[i] = log < floor ? floor : log;  // NaN stays
    }
    put<kWidth>(y.at(row, c), v);
  }
};

// kLanes threads a (row, group), each its columns in order, then a fixed tree: the order depends on the group's width
// and alignment alone.
template <typename T, int kLanes, int kWidth>
__global__ void __launch_bounds__(kThreads)
    l2norm_kernel(T* x, int64_t stride, float eps, float scale, int group, int n_groups, int64_t n_total) {
  let_next_start();
  wait_for_previous();
  constexpr int kPerBlock = kThreads / kLanes;
  const int lane = threadIdx.x % kLanes;
  const int64_t index = blockIdx.x * int64_t{kPerBlock} + threadIdx.x / kLanes;
  const bool in_range = index < n_total;
  T* const at = x + (in_range ? index / n_groups * stride + index % n_groups * group : 0);
  float sum = 0;
  for (int c = lane * kWidth; in_range && c < group; c += kLanes * kWidth) {
    float v[kWidth];
    get<kWidth>(v, at + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum = fmaf(v[i], v[i], sum);
  }
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  const float r = scale / sqrtf(sum + eps);
  for (int c = lane * kWidth; in_range && c < group; c += kLanes * kWidth) {
    float v[kWidth];
    get<kWidth>(v, at + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) v[i] *= r;
    put<kWidth>(at + c, v);
  }
}

}  // namespace

void combine(Context& context, Matrix out, Matrix x, float a, Matrix y, float b) {
  HAY_CHECK(out.rows == x.rows && out.cols == x.cols && y.rows == x.rows && y.cols == x.cols);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    for_elements(context, {out, x, y}, Combine<T>{Rows<T>(out), Rows<T>(x), Rows<T>(y), a, b});
  });
}

void sigmoid_mul(Context& context, Matrix y, Matrix gate, Matrix x) {
  HAY_CHECK(y.rows == x.rows && y.cols == x.cols && gate.rows == x.rows && (gate.cols == x.cols || gate.cols == 1));
  const bool one = gate.cols == 1;
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    for_elements(context, {y, x, one ? x : gate}, SigmoidMul<T>{Rows<T>(y), Rows<T>(gate), Rows<T>(x), one});
  });
}

void silu(Context& context, Matrix y, Matrix x) {
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    for_elements(context, {y, x}, Silu<T>{Rows<T>(y), Rows<T>(x)});
  });
}

void mamba2_steps(Context& context, Matrix steps, Matrix a, Matrix dt, Vector dt_bias, Vector a_log, float low,
                  float high) {
  with_type(dt.dtype, [&](auto t) {
    using T = decltype(t);
    for_elements(context, {dt, steps, a},
                 MambaSteps<T>{Rows<float>(steps), Rows<float>(a), Rows<T>(dt), dt_bias.data, a_log.data, low, high});
  });
}

void log_sigmoid(Context& context, Matrix y, Matrix x, float scale, float floor) {
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    for_elements(context, {x, y}, LogSigmoid<T>{Rows<float>(y), Rows<T>(x), scale, floor});
  });
}

void l2norm(Context& context, Matrix x, float eps, float scale, int64_t group) {
  if (x.rows == 0) return;
  const int n_groups = static_cast<int>(x.cols / group);
  const int64_t n = x.rows * n_groups;
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    const auto launch = [&](auto lanes, auto width) {
      constexpr int kLanes = decltype(lanes)::value;
      constexpr int kPerBlock = kThreads / kLanes;
      launch_early(of(context), l2norm_kernel<T, kLanes, decltype(width)::value>,
                   static_cast<unsigned>((n + kPerBlock - 1) / kPerBlock), kThreads, 0, static_cast<T*>(x.data),
                   x.stride, eps, scale, static_cast<int>(group), n_groups, n);
    };
    if (!by_eight({x}, group)) {
      launch(std::integral_constant<int, 32>{}, std::integral_constant<int, 1>{});
    } else if (group <= 128) {
      launch(std::integral_constant<int, 16>{}, std::integral_constant<int, 8>{});
    } else {
      launch(std::integral_constant<int, 32>{}, std::integral_constant<int, 8>{});
    }
  });
}

}  // namespace hayfork::engine::cuda
