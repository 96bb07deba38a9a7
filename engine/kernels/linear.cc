#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/packed.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

float read_element(const void* data, DType type, int64_t i) {
  switch (type) {
    case DType::f32:
      return static_cast<const float*>(data)[i];
    case DType::bf16:
      return to_float(static_cast<const bf16*>(data)[i]);
    case DType::f16:
      return to_float(static_cast<const f16*>(data)[i]);
    default:
      break;
  }
  check_failed("weight dtype is f32, bf16 or f16", __FILE__, __LINE__, std::string(name(type)));
}

int64_t packed_index(const PackedWeight& w, int64_t n, int64_t k) {
  const int64_t panel = (n / kPanel) * w.k_padded * kPanel;
  if (w.dtype == DType::f32) return panel + k * kPanel + n % kPanel;
  return panel + (k / 2) * kPanel * 2 + (n % kPanel) * 2 + k % 2;
}

void pack_row(PackedWeight& w, int64_t n, const LinearPart& part, int64_t part_row) {
  for (int64_t k = 0; k < w.k; ++k) {
    const float value = read_element(part.data, part.dtype, part_row * w.k + k);
    const int64_t i = packed_index(w, n, k);
    if (w.dtype == DType::f32) {
      static_cast<float*>(w.storage->data())[i] = value;
    } else {
      static_cast<bf16*>(w.storage->data())[i] = to_bf16(value);
    }
  }
}

}  // namespace

const PackedWeight& packed(const LinearWeight& weight) {
  return static_cast<const PackedWeight&>(weight);
}

void PackedWeight::read_row(int64_t row, float* out) const {
  for (int64_t i = 0; i < k; ++i) {
    const int64_t at = packed_index(*this, row, i);
    out[i] = dtype == DType::f32 ? static_cast<const float*>(storage->data())[at]
                                 : to_float(static_cast<const bf16*>(storage->data())[at]);
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
  w->storage = context.make_buffer(static_cast<size_t>(w->bytes));
  if (any_bias) w->bias.assign(static_cast<size_t>(w->panels * kPanel), 0.0F);
  int64_t first = 0;
  for (const LinearPart& part : parts) {
    parallel_for(part.n, 64, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) pack_row(*w, first + n, part, n);
    });
    if (part.bias) std::copy_n(part.bias.data, part.n, w->bias.begin() + first);
    first += part.n;
  }
  return w;
}

void multiply_panels(const PackedWeight& w, int64_t first_panel, int64_t n_panels, Matrix x, float* y, int64_t stride) {
  for (int64_t m = 0; m < x.rows; ++m) {
    for (int64_t p = 0; p < n_panels; ++p) {
      const int64_t panel = first_panel + p;
      const int64_t width = std::min(kPanel, w.n - panel * kPanel);
      float sums[kPanel] = {};
      for (int64_t k = 0; k < w.k; ++k) {
        const float a = w.dtype == DType::f32 ? x.f32(m)[k] : round_to_bf16(x.f32(m)[k]);
        for (int64_t n = 0; n < kPanel; ++n) {
          sums[n] += a * (w.dtype == DType::f32 ? w.panel_f32(panel)[k * kPanel + n]
                                                : to_float(w.panel_bf16(panel)[(k / 2 * kPanel + n) * 2 + k % 2]));
        }
      }
      for (int64_t n = 0; n < width; ++n) {
        const float bias = w.bias.empty() ? 0.0F : w.bias[static_cast<size_t>(panel * kPanel + n)];
        y[m * stride + p * kPanel + n] = sums[n] + bias;
      }
    }
  }
}

void linear(Context&, Matrix y, Matrix x, const LinearWeight& weight, RowKind) {
  const PackedWeight& w = packed(weight);
  HAY_CHECK(x.cols == w.k && y.cols == w.n && x.rows == y.rows && x.dtype == DType::f32 && y.dtype == DType::f32);
  parallel_for(w.panels, 1, [&](int64_t begin, int64_t end) {
    multiply_panels(w, begin, end - begin, x, y.f32(0) + begin * kPanel, y.stride);
  });
}

}  // namespace hayfork::engine::cpu
