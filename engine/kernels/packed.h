// A linear weight as the CPU keeps it: converted to the compute type and packed once in panels of kPanel outputs, so
// that one storage serves the matrix product, the product with few rows, and the gather of an embedding row.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/context.h"
#include "engine/kernels/ops.h"

namespace hayfork::engine::cpu {

constexpr int64_t kPanel = 64;  // outputs a panel

// f32:  [panels][k][kPanel]; bf16: [panels][k_padded / 2][kPanel][2]. Outputs ≥ n and inputs ≥ k are zero.
struct PackedWeight : LinearWeight {
  DType dtype = DType::f32;
  int64_t panels = 0, k_padded = 0;
  std::unique_ptr<Buffer> storage;
  std::vector<float> bias;  // [panels · kPanel], empty when no part has one

  const float* panel_f32(int64_t p) const { return static_cast<const float*>(storage->data()) + p * k_padded * kPanel; }
  const bf16* panel_bf16(int64_t p) const { return static_cast<const bf16*>(storage->data()) + p * k_padded * kPanel; }
  // Row `row` of W as [k] floats.
  void read_row(int64_t row, float* out) const;
};

// Requires: made by cpu::make_linear.
const PackedWeight& packed(const LinearWeight& weight);

// y[m, first_panel·kPanel …] of rows m for `n_panels` panels, bias added. y [M, stride].
void multiply_panels(const PackedWeight& weight, int64_t first_panel, int64_t n_panels, Matrix x, float* y,
                     int64_t stride);

}  // namespace hayfork::engine::cpu
