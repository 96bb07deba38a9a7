#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/packed.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

constexpr int64_t kDepth = 2048;            // inputs a pass over a panel: 64 · 2048 · 2 bytes stay in a 1 MB L2 cache
constexpr int64_t kInputBytes = 384 << 10;  // rows taken together: beside the panel in L2
constexpr int64_t kAhead = 8192;            // bytes of a panel fetched early; panels follow each other in memory
constexpr int64_t kRowsEach = 48;           // from here on threads share rows rather than outputs
constexpr int64_t kSplit = kPanel / 2;      // outputs are shared among threads in units of half a panel
constexpr int64_t kSmallWork = int64_t{1} << 16;  // multiply-adds below which a second thread costs more than it saves

// Where W[n, k] is.
int64_t packed_index(const PackedWeight& w, int64_t n, int64_t k) {
  const int64_t panel = (n / kPanel) * w.k_padded * kPanel;
  if (w.dtype == DType::f32) return panel + k * kPanel + n % kPanel;
  return panel + ((k / 2) * kPanel + n % kPanel) * 2 + k % 2;
}

void convert(float x, float& to) {
  to = x;
}
void convert(float x, bf16& to) {
  to = to_bf16(x);
}

// Outputs [begin, end) of one part, a few inputs of all of them at a time, so that the lines written stay in cache.
template <typename From, typename To>
void pack_rows(const PackedWeight& w, To* to, int64_t first, const From* from, int64_t begin, int64_t end) {
  constexpr int64_t kStep = 32;
  for (int64_t k0 = 0; k0 < w.k; k0 += kStep) {
    const int64_t k1 = std::min(k0 + kStep, w.k);
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t k = k0; k < k1; ++k) convert(to_float(from[n * w.k + k]), to[packed_index(w, first + n, k)]);
    }
  }
}

template <typename From>
void pack_part(PackedWeight& w, int64_t first, const LinearPart& part) {
  const auto* from = static_cast<const From*>(part.data);
  void* const to = w.storage->data();
  parallel_for((part.n + kPanel - 1) / kPanel, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin * kPanel; n < std::min(end * kPanel, part.n); n += kPanel) {
      const int64_t stop = std::min(n + kPanel, part.n);
      if (w.dtype == DType::f32) {
        pack_rows(w, static_cast<float*>(to), first, from, n, stop);
      } else {
        pack_rows(w, static_cast<bf16*>(to), first, from, n, stop);
      }
    }
  });
}

void pack(PackedWeight& w, int64_t first, const LinearPart& part) {
  switch (part.dtype) {
    case DType::f32:
      return pack_part<float>(w, first, part);
    case DType::bf16:
      return pack_part<bf16>(w, first, part);
    case DType::f16:
      return pack_part<f16>(w, first, part);
    default:
      check_failed("weight dtype is f32, bf16 or f16", __FILE__, __LINE__, std::string(name(part.dtype)));
  }
}

// Rows of bfloat16 inputs start at odd multiples of a cache line, so that several rows do not meet in one cache set.
int64_t input_stride(const PackedWeight& w) {
  const int64_t lines = (w.k_padded + 31) / 32;
  return (lines | 1) * 32;
}

void multiply_groups(const PackedWeight& w, InputRows x, int64_t panel, int64_t group, int64_t groups, float* y,
                     int64_t stride) {
  for (int64_t k = 0; k < w.k_padded; k += kDepth) {
    const int64_t depth = std::min(kDepth, w.k_padded - k);
    if (w.dtype == DType::f32) {
      simd().gemm_f32(x.rows, groups, depth, static_cast<const float*>(x.data) + k, x.stride,
                      w.panel_f32(panel) + k * kPanel + group * kGroup, kPanel, y, stride, k > 0, kAhead);
    } else {
      simd().gemm_bf16(x.rows, groups, depth / 2, static_cast<const bf16*>(x.data) + k, x.stride,
                       w.panel_bf16(panel) + k * kPanel + group * kGroup * 2, kPanel, y, stride, k > 0, kAhead);
    }
  }
}

// The last columns of a weight whose outputs are no multiple of 16, by way of a buffer.
void multiply_ragged(const PackedWeight& w, InputRows x, int64_t panel, int64_t group, int64_t n, float* y,
                     int64_t stride) {
  constexpr int64_t kRowsAtOnce = 24;
  float wide[kRowsAtOnce * kGroup];
  for (int64_t m = 0; m < x.rows; m += kRowsAtOnce) {
    InputRows part = x;
    part.rows = std::min(kRowsAtOnce, x.rows - m);
    part.data = static_cast<const char*>(x.data) + m * x.stride * size_of(w.dtype);
    multiply_groups(w, part, panel, group, 1, wide, kGroup);
    for (int64_t r = 0; r < part.rows; ++r) std::copy_n(wide + r * kGroup, n, y + (m + r) * stride);
  }
}

}  // namespace

const PackedWeight& packed(const LinearWeight& weight) {
  return static_cast<const PackedWeight&>(weight);
}

void PackedWeight::read_row(int64_t row, float* out) const {
  const int64_t first = packed_index(*this, row, 0);
  if (dtype == DType::f32) {
    const float* w = static_cast<const float*>(storage->data()) + first;
    for (int64_t i = 0; i < k; ++i) out[i] = w[i * kPanel];
  } else {
    const bf16* w = static_cast<const bf16*>(storage->data()) + first;
    for (int64_t i = 0; i < k; ++i) out[i] = to_float(w[(i / 2) * kPanel * 2 + i % 2]);
  }
}

std::unique_ptr<LinearWeight> make_linear(Context& context, std::span<const LinearPart> parts, int64_t k) {
  HAY_CHECK(k >= 1 && !parts.empty());
  auto w = std::make_unique<PackedWeight>();
  w->dtype = context.weights();
  w->k = k;
  bool any_bias = false;
  for (const LinearPart& part : parts) {
    HAY_CHECK(part.n >= 1);
    w->n += part.n;
    any_bias = any_bias || part.bias;
  }
  w->panels = (w->n + kPanel - 1) / kPanel;
  w->k_padded = w->dtype == DType::bf16 ? (k + 1) / 2 * 2 : k;
  w->bytes = w->panels * kPanel * w->k_padded * size_of(w->dtype);
  w->storage = make_streamed_buffer(context, static_cast<size_t>(w->bytes));
  if (any_bias) w->bias.assign(static_cast<size_t>(w->panels * kPanel), 0.0F);
  int64_t first = 0;
  for (const LinearPart& part : parts) {
    pack(*w, first, part);
    if (part.bias) std::copy_n(part.bias.data, part.n, w->bias.begin() + first);
    first += part.n;
  }
  return w;
}

size_t input_bytes(const PackedWeight& w, int64_t rows) {
  return w.dtype == DType::f32 ? 0 : static_cast<size_t>(rows * input_stride(w)) * sizeof(bf16);
}

InputRows input_rows(const PackedWeight& w, Matrix x, void* scratch) {
  if (w.dtype == DType::f32) return {x.data, x.rows, x.stride};
  const int64_t stride = input_stride(w);
  for (int64_t m = 0; m < x.rows; ++m) {
    bf16* row = static_cast<bf16*>(scratch) + m * stride;
    simd().to_bf16(x.f32(m), row, w.k);
    std::fill(row + w.k, row + w.k_padded, bf16{0});
  }
  return {scratch, x.rows, stride};
}

void multiply(const PackedWeight& w, InputRows x, int64_t first, int64_t n, float* y, int64_t stride) {
  for (int64_t at = first, end = first + n; at < end;) {
    const int64_t panel = at / kPanel, group = at % kPanel / kGroup;
    const int64_t columns = std::min((panel + 1) * kPanel, end) - at;
    float* out = y + (at - first);
    if (columns >= kGroup) multiply_groups(w, x, panel, group, columns / kGroup, out, stride);
    const int64_t whole = columns / kGroup * kGroup;
    if (whole < columns) {
      multiply_ragged(w, x, panel, group + columns / kGroup, columns - whole, out + whole, stride);
    }
    if (!w.bias.empty()) {
      for (int64_t m = 0; m < x.rows; ++m) simd().add(out + m * stride, w.bias.data() + at, 1.0F, columns);
    }
    at += columns;
  }
}

void linear(Context& context, Matrix y, Matrix x, const LinearWeight& weight, RowKind) {
  const PackedWeight& w = packed(weight);
  HAY_CHECK(x.cols == w.k && y.cols == w.n && x.rows == y.rows && x.dtype == DType::f32 && y.dtype == DType::f32);
  if (x.rows == 0) return;
  // A grid of threads over rows and outputs. It decides who computes what, never how.
  const int64_t threads = x.rows * w.n * w.k < kSmallWork ? 1 : current_threads();
  const int64_t over_rows = std::clamp<int64_t>(x.rows / kRowsEach, 1, threads);
  const int64_t units = (w.n + kSplit - 1) / kSplit;
  const int64_t over_outputs = std::min(threads / over_rows, units);
  const int64_t block = std::clamp<int64_t>(kInputBytes / (w.k_padded * size_of(w.dtype)), 24, 480) / 24 * 24;
  const size_t bytes = (input_bytes(w, std::min(block, x.rows)) + 63) / 64 * 64;
  auto* memory = static_cast<char*>(scratch(context, bytes * static_cast<size_t>(over_rows * over_outputs)));
  parallel_for(over_rows * over_outputs, 1, [&](int64_t begin, int64_t end) {
    for (int64_t cell = begin; cell < end; ++cell) {
      const int64_t r = cell / over_outputs, c = cell % over_outputs;
      const int64_t first = units * c / over_outputs * kSplit;
      const int64_t last = std::min(units * (c + 1) / over_outputs * kSplit, w.n);
      for (int64_t m = x.rows * r / over_rows, stop = x.rows * (r + 1) / over_rows; m < stop; m += block) {
        const Matrix rows = x.row_range(m, std::min(m + block, stop));
        const InputRows in = input_rows(w, rows, memory + bytes * static_cast<size_t>(cell));
        multiply(w, in, first, last - first, y.f32(m) + first, y.stride);
      }
    }
  });
}

}  // namespace hayfork::engine::cpu
