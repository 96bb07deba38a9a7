// A linear weight as the CPU keeps it: converted to the compute type and packed once in panels of kPanel outputs, so
// that one storage serves the products of many rows and of one, and the gather of an embedding row.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/context.h"
#include "engine/kernels/ops.h"

namespace hayfork::engine::cpu {

constexpr int64_t kPanel = 64;  // outputs a panel

// f32: [panels][k][kPanel]; bf16: [panels][k_padded / 2][kPanel][2]. Outputs ≥ n and inputs ≥ k are zero.
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

// Rows of x in the type the product reads: in place for float32, rounded into `scratch` for bfloat16.
struct InputRows {
  const void* data = nullptr;
  int64_t rows = 0, stride = 0;  // elements
};
size_t input_bytes(const PackedWeight& weight, int64_t rows);
InputRows input_rows(const PackedWeight& weight, Matrix x, void* scratch);

// y[m, 0 …] = x[m] · W for the outputs [first, first + n), bias added. `first` is a multiple of 16, and so is n unless
// it ends the weight. Single-threaded. A row's bits are those of one chain of multiply-adds with k ascending.
void multiply(const PackedWeight& weight, InputRows x, int64_t first, int64_t n, float* y, int64_t stride);

}  // namespace hayfork::engine::cpu
