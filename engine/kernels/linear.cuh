// A linear weight in device memory, for the CUDA twins that read it: linear, embed, head.
#pragma once

#include <memory>

#include "engine/cuda/device.cuh"
#include "engine/kernels/ops.h"

namespace hayfork::engine::cuda {

struct LinearOnDevice : LinearWeight {
  DType dtype = DType::f32;  // f32 or bf16
  int64_t k_stride = 0;      // elements between rows; zeros behind k
  std::unique_ptr<Buffer> storage;
  std::unique_ptr<Buffer> bias;       // float32 [n], or null
  std::unique_ptr<Buffer> bias_bf16;  // the same numbers for cuBLASLt's epilogue; with bf16 weights
  const void* data() const { return storage->data(); }
};

// Requires: made by cuda::make_linear.
const LinearOnDevice& on_device(const LinearWeight& weight);

// y [M, n] float32 = x · W[first … first + n)ᵀ, as prefill rows are multiplied (no bias).
void linear_slab(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight, int64_t first, int64_t n);

// Decode rows on a device of compute capability 9; at most 64.
void linear_decode_sm90(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight);
void linear_act_mul_decode_sm90(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight, Activation act);

// A made-up part of `n` rows as `type`, rows `stride` elements apart, zeros behind k.
void fill_random(CudaContext& context, void* to, DType type, int64_t stride, const RandomPart& part, int64_t n,
                 int64_t k);

// Rows [first, first + n) of a checkpoint's part as `to_type`, rows `to_stride` elements apart.
void convert_rows(void* to, DType to_type, int64_t to_stride, const LinearPart& part, int64_t first, int64_t n,
                  int64_t k);

}  // namespace hayfork::engine::cuda
