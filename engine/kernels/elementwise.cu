// Row-wise ops on CUDA: embedding gather, activations, additions, rotary embedding, cache writes, gathers.
// Each rounds where the unfused chain of the reference rounds; sums run in float32 in an order given by the columns.
#include <algorithm>
#include <type_traits>

#include "engine/kernels/linear.cuh"
#include "engine/kernels/rowwise.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t n) {
  return static_cast<unsigned>(std::clamp<int64_t>((n + kThreads - 1) / kThreads, 1, 1 << 20));
}

template <typename T, typename W, int kWidth>
__global__ void embed_kernel(T* x, int64_t stride, const Row* rows, int n_rows, const int32_t* last_ids, const W* table,
                             int64_t table_stride, int width, float multiplier) {
  const int row = blockIdx.x;
  if (row >= n_rows) return;
  const int token = rows[row].token;
  const W* from = table + (token >= 0 ? token : last_ids[~token]) * table_stride;
  for (int c = threadIdx.x * kWidth; c < width; c += blockDim.x * kWidth) {
    if constexpr (kWidth == 8) {
      float v[8];
      load_eight(v, from + c);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] *= multiplier;
      store_eight(x + row * stride + c, v);
    } else {
      store(x + row * stride + c, load(from + c) * multiplier);
    }
  }
}

template <typename T, int kWidth>
__global__ void add_kernel(T* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t rows, int cols, float scale) {
  const int per_row = cols / kWidth;
  const int64_t n = rows * per_row;
  for (int64_t e = blockIdx.x * int64_t{kThreads} + threadIdx.x; e < n; e += gridDim.x * int64_t{kThreads}) {
    const int64_t row = e / per_row, c = e % per_row * kWidth;
    T* to = x + row * x_stride + c;
    const T* from = y + row * y_stride + c;
    if constexpr (kWidth == 8) {
      float a[8], b[8];
      load_eight(a, to);
      load_eight(b, from);
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i] += scaled<T>(b[i], scale);
      store_eight(to, a);
    } else {
      store(to, load(to) + scaled<T>(load(from), scale));
    }
  }
}

template <typename T, int kWidth>
__global__ void act_mul_kernel(T* y, int64_t y_stride, const T* gate, int64_t gate_stride, const T* up,
                               int64_t up_stride, int64_t rows, int cols, Activation act) {
  const int per_row = cols / kWidth;
  const int64_t n = rows * per_row;
  for (int64_t e = blockIdx.x * int64_t{kThreads} + threadIdx.x; e < n; e += gridDim.x * int64_t{kThreads}) {
    const int64_t row = e / per_row, c = e % per_row * kWidth;
    if constexpr (kWidth == 8) {
      float a[8], b[8];
      load_eight(a, gate + row * gate_stride + c);
      load_eight(b, up + row * up_stride + c);
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i] = rounded<T>(activate(a[i], act)) * b[i];
      store_eight(y + row * y_stride + c, a);
    } else {
      store(y + row * y_stride + c,
            rounded<T>(activate(load(gate + row * gate_stride + c), act)) * load(up + row * up_stride + c));
    }
  }
}

template <typename T>
__global__ void affine_kernel(T* q, int64_t stride, int64_t rows, int cols, const float* scale, const float* offset) {
  const int64_t n = rows * cols;
  for (int64_t e = blockIdx.x * int64_t{kThreads} + threadIdx.x; e < n; e += gridDim.x * int64_t{kThreads}) {
    T* to = q + e / cols * stride + e % cols;
    store(to, mapped(load(to), scale[e % cols], offset[e % cols]));
  }
}

// cos and sin at float32 angles pos · inv_freq, rounded to the activation type where the reference does.
template <typename T>
__global__ void angles_kernel(float* cosines, float* sines, const Row* rows, int n_rows, const float* inv_freq,
                              const float* factors, const int* table_of_seq, int half) {
  const int64_t n = static_cast<int64_t>(n_rows) * half;
  for (int64_t e = blockIdx.x * int64_t{kThreads} + threadIdx.x; e < n; e += gridDim.x * int64_t{kThreads}) {
    const Row row = rows[e / half];
    const int table = table_of_seq[row.seq];
    const float angle = static_cast<float>(row.pos) * inv_freq[table * half + e % half];
    cosines[e] = rounded<T>(cosf(angle) * factors[table]);
    sines[e] = rounded<T>(sinf(angle) * factors[table]);
  }
}

template <typename T>
__global__ void rope_kernel(T* x, int64_t stride, int64_t rows, int n_heads, int head_dim, const float* cosines,
                            const float* sines, int half) {
  const int64_t n = rows * n_heads * half;
  for (int64_t e = blockIdx.x * int64_t{kThreads} + threadIdx.x; e < n; e += gridDim.x * int64_t{kThreads}) {
    const int i = static_cast<int>(e % half);
    const int64_t row = e / half / n_heads;
    T* head = x + row * stride + e / half % n_heads * head_dim;
    const float c = cosines[row * half + i], s = sines[row * half + i];
    const float a = load(head + i), b = load(head + i + half);
    store(head + i, turned<T>(a, b, c, -s));
    store(head + i + half, turned<T>(b, a, c, s));
  }
}

// Slots behind the last written one of a page hold zeros, so that a masked probability of zero never meets a NaN there:
// the row that ends a sequence's rows clears the rest of its page when this pass began the page.
template <typename T, typename C>
__global__ void kv_write_kernel(C* k_cache, C* v_cache, const T* k, int64_t k_stride, const T* v, int64_t v_stride,
                                const Row* rows, int64_t n_rows, DevicePass pass, int group, int n_kv, int k_dim,
                                int v_dim) {
  const int64_t row = blockIdx.x;
  if (row >= n_rows) return;
  const Row at = rows[row];
  if (at.pos < 0) return;
  const int64_t block = block_table(pass, at.seq, group)[at.pos / kBlockTokens];
  const int slot = at.pos % kBlockTokens;
  for (int c = threadIdx.x; c < n_kv * k_dim; c += blockDim.x) {
    store(k_cache + ((block * n_kv + c / k_dim) * kBlockTokens + slot) * k_dim + c % k_dim,
          load(k + row * k_stride + c));
  }
  for (int c = threadIdx.x; c < n_kv * v_dim; c += blockDim.x) {
    store(v_cache + ((block * n_kv + c / v_dim) * kBlockTokens + slot) * v_dim + c % v_dim,
          load(v + row * v_stride + c));
  }
  const bool last = row + 1 == n_rows || rows[row + 1].seq != at.seq;
  const bool began = row >= slot && rows[row - slot].seq == at.seq;
  if (!last || !began) return;
  const int rest = (kBlockTokens - 1 - slot) * v_dim;
  for (int c = threadIdx.x; c < n_kv * rest; c += blockDim.x) {
    store(v_cache + ((block * n_kv + c / rest) * kBlockTokens + slot + 1) * v_dim + c % rest, 0.f);
  }
}

// The inverse of kv_write_kernel: one block a position.
template <typename T, typename C>
__global__ void kv_read_kernel(T* k, int64_t k_stride, T* v, int64_t v_stride, const C* k_cache, const C* v_cache,
                               const int32_t* table, int n_kv, int k_dim, int v_dim) {
  const int64_t pos = blockIdx.x, block = table[pos / kBlockTokens], slot = pos % kBlockTokens;
  for (int c = threadIdx.x; c < n_kv * k_dim; c += blockDim.x) {
    store(k + pos * k_stride + c,
          load(k_cache + ((block * n_kv + c / k_dim) * kBlockTokens + slot) * k_dim + c % k_dim));
  }
  for (int c = threadIdx.x; c < n_kv * v_dim; c += blockDim.x) {
    store(v + pos * v_stride + c,
          load(v_cache + ((block * n_kv + c / v_dim) * kBlockTokens + slot) * v_dim + c % v_dim));
  }
}

template <typename T, int kWidth>
__global__ void gather_kernel(T* out, int64_t out_stride, const T* x, int64_t x_stride, const Row* rows, int64_t n_rows,
                              int cols) {
  const int64_t row = blockIdx.x;
  if (row >= n_rows || rows[row].want < 0) return;
  T* to = out + rows[row].want * out_stride;
  const T* from = x + row * x_stride;
  for (int c = threadIdx.x * kWidth; c < cols; c += blockDim.x * kWidth) {
    if constexpr (kWidth == 8)
      *reinterpret_cast<Eight<T>*>(to + c) = read_eight(from + c);
    else
      to[c] = from[c];
  }
}

template <typename T, int kWidth>
__global__ void nonfinite_kernel(int32_t* marks, const T* x, int64_t stride, int cols, int32_t layer) {
  const int64_t row = blockIdx.x;
  bool bad = false;
  for (int c = threadIdx.x * kWidth; c < cols; c += blockDim.x * kWidth) {
    float v[kWidth];
    if constexpr (kWidth == 8)
      load_eight(v, x + row * stride + c);
    else
      v[0] = load(x + row * stride + c);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) bad |= !isfinite(v[i]);
  }
  const bool any = __syncthreads_or(bad);
  if (threadIdx.x != 0) return;
  const int32_t before = layer == 0 ? -1 : marks[row];
  marks[row] = before < 0 && any ? layer : before;
}

}  // namespace

void embed(Context& base, Matrix x, std::span<const Row> rows, const LinearWeight& table, float multiplier) {
  if (rows.empty()) return;
  CudaContext& context = of(base);
  const LinearOnDevice& weight = on_device(table);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    with_type(weight.dtype, [&](auto w) {
      using W = decltype(w);
      const auto launch = [&](auto width) {
        embed_kernel<T, W, decltype(width)::value>
            <<<static_cast<unsigned>(rows.size()), kThreads, 0, context.stream()>>>(
                static_cast<T*>(x.data), x.stride, context.device_rows(rows), static_cast<int>(rows.size()),
                context.last_ids(), static_cast<const W*>(weight.data()), weight.k_stride, static_cast<int>(x.cols),
                multiplier);
      };
      const Matrix read{const_cast<void*>(weight.data()), weight.dtype, weight.n, weight.k, weight.k_stride};
      if (by_eight({x, read}, x.cols))
        launch(std::integral_constant<int, 8>{});
      else
        launch(std::integral_constant<int, 1>{});
    });
  });
  HAY_LAUNCHED();
}

void add(Context& base, Matrix x, Matrix y, float scale) {
  if (x.rows == 0) return;
  const auto cols = static_cast<int>(x.cols);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    const auto launch = [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      add_kernel<T, kWidth><<<blocks_for(x.rows * x.cols / kWidth), kThreads, 0, of(base).stream()>>>(
          static_cast<T*>(x.data), x.stride, static_cast<const T*>(y.data), y.stride, x.rows, cols, scale);
    };
    if (by_eight({x, y}, x.cols))
      launch(std::integral_constant<int, 8>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
  HAY_LAUNCHED();
}

void act_mul(Context& base, Matrix y, Matrix gate, Matrix up, Activation act) {
  if (y.rows == 0) return;
  const auto cols = static_cast<int>(y.cols);
  with_type(y.dtype, [&](auto t) {
    using T = decltype(t);
    const auto launch = [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      act_mul_kernel<T, kWidth><<<blocks_for(y.rows * y.cols / kWidth), kThreads, 0, of(base).stream()>>>(
          static_cast<T*>(y.data), y.stride, static_cast<const T*>(gate.data), gate.stride,
          static_cast<const T*>(up.data), up.stride, y.rows, cols, act);
    };
    if (by_eight({y, gate, up}, y.cols))
      launch(std::integral_constant<int, 8>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
  HAY_LAUNCHED();
}

void affine(Context& base, Matrix q, Vector scale, Vector offset) {
  if (q.rows == 0) return;
  with_type(q.dtype, [&](auto t) {
    using T = decltype(t);
    affine_kernel<<<blocks_for(q.rows * q.cols), kThreads, 0, of(base).stream()>>>(
        static_cast<T*>(q.data), q.stride, q.rows, static_cast<int>(q.cols), scale.data, offset.data);
  });
  HAY_LAUNCHED();
}

RopeAngles rope_angles(Context& base, std::span<const Row> rows, std::span<const RopeTable> tables,
                       std::span<const int32_t> table_of_seq) {
  CudaContext& context = of(base);
  const int32_t half = tables.empty() ? 0 : static_cast<int32_t>(tables.front().inv_freq.size());
  if (rows.empty() || half == 0) return {};
  std::vector<float> inv_freq, factors;
  for (const RopeTable& table : tables) {
    HAY_CHECK(static_cast<int32_t>(table.inv_freq.size()) == half);
    inv_freq.insert(inv_freq.end(), table.inv_freq.begin(), table.inv_freq.end());
    factors.push_back(table.attention_factor);
  }
  const auto* device_freq = static_cast<const float*>(context.stage(inv_freq.data(), inv_freq.size() * sizeof(float)));
  const auto* device_factors = static_cast<const float*>(context.stage(factors.data(), factors.size() * sizeof(float)));
  const auto* device_tables = static_cast<const int*>(context.stage(table_of_seq.data(), table_of_seq.size_bytes()));
  const int64_t n = static_cast<int64_t>(rows.size()) * half;
  float* cosines = static_cast<float*>(context.arena().allocate(static_cast<size_t>(n) * sizeof(float)));
  float* sines = static_cast<float*>(context.arena().allocate(static_cast<size_t>(n) * sizeof(float)));
  with_type(context.activation(), [&](auto t) {
    angles_kernel<decltype(t)><<<blocks_for(n), kThreads, 0, context.stream()>>>(
        cosines, sines, context.device_rows(rows), static_cast<int>(rows.size()), device_freq, device_factors,
        device_tables, half);
  });
  HAY_LAUNCHED();
  return {cosines, sines, half};
}

void rope(Context& base, Matrix x, int64_t first_row, RopeAngles angles, int32_t head_dim) {
  if (x.rows == 0 || angles.half == 0) return;
  const int n_heads = static_cast<int>(x.cols / head_dim);
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    rope_kernel<<<blocks_for(x.rows * n_heads * angles.half), kThreads, 0, of(base).stream()>>>(
        static_cast<T*>(x.data), x.stride, x.rows, n_heads, head_dim, angles.cos + first_row * angles.half,
        angles.sin + first_row * angles.half, angles.half);
  });
  HAY_LAUNCHED();
}

void kv_write(Context& base, const Pass& pass, int64_t first_row, Matrix k, Matrix v, const KvLayer& layer) {
  if (k.rows == 0) return;
  CudaContext& context = of(base);
  const Row* rows = context.device_rows(pass.rows.subspan(static_cast<size_t>(first_row), static_cast<size_t>(k.rows)));
  with_type(k.dtype, [&](auto t) {
    using T = decltype(t);
    with_type(layer.dtype, [&](auto c) {
      using C = decltype(c);
      kv_write_kernel<<<static_cast<unsigned>(k.rows), kThreads, 0, context.stream()>>>(
          static_cast<C*>(layer.k), static_cast<C*>(layer.v), static_cast<const T*>(k.data), k.stride,
          static_cast<const T*>(v.data), v.stride, rows, k.rows, context.pass(), layer.group, layer.n_kv_heads,
          layer.k_dim, layer.v_dim);
    });
  });
  HAY_LAUNCHED();
}

void kv_read(Context& base, const SeqView& seq, Matrix k, Matrix v, const KvLayer& layer) {
  if (k.rows == 0) return;
  CudaContext& context = of(base);
  const size_t bytes = static_cast<size_t>((k.rows + kBlockTokens - 1) / kBlockTokens) * sizeof(int32_t);
  auto* table = static_cast<int32_t*>(context.arena().allocate(bytes));
  context.upload(table, seq.blocks[layer.group], bytes);
  with_type(k.dtype, [&](auto t) {
    using T = decltype(t);
    with_type(layer.dtype, [&](auto c) {
      using C = decltype(c);
      kv_read_kernel<<<static_cast<unsigned>(k.rows), kThreads, 0, context.stream()>>>(
          static_cast<T*>(k.data), k.stride, static_cast<T*>(v.data), v.stride, static_cast<const C*>(layer.k),
          static_cast<const C*>(layer.v), table, layer.n_kv_heads, layer.k_dim, layer.v_dim);
    });
  });
  HAY_LAUNCHED();
}

void gather_wanted(Context& base, Matrix out, Matrix x, std::span<const Row> rows) {
  if (rows.empty() || out.rows == 0) return;
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    const auto launch = [&](auto width) {
      gather_kernel<T, decltype(width)::value><<<static_cast<unsigned>(rows.size()), kThreads, 0, of(base).stream()>>>(
          static_cast<T*>(out.data), out.stride, static_cast<const T*>(x.data), x.stride, of(base).device_rows(rows),
          static_cast<int64_t>(rows.size()), static_cast<int>(x.cols));
    };
    if (by_eight({out, x}, x.cols))
      launch(std::integral_constant<int, 8>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
  HAY_LAUNCHED();
}

void mark_nonfinite(Context& base, Matrix marks, Matrix x, int32_t layer) {
  if (x.rows == 0) return;
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    const auto launch = [&](auto width) {
      nonfinite_kernel<T, decltype(width)::value><<<static_cast<unsigned>(x.rows), 128, 0, of(base).stream()>>>(
          static_cast<int32_t*>(marks.data), static_cast<const T*>(x.data), x.stride, static_cast<int>(x.cols), layer);
    };
    if (by_eight({x}, x.cols))
      launch(std::integral_constant<int, 8>{});
    else
      launch(std::integral_constant<int, 1>{});
  });
  HAY_LAUNCHED();
}

}  // namespace hayfork::engine::cuda
