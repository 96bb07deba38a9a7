// Typed, shaped views of memory somebody else owns. The type is a value, not a template argument, so that model code is
// written once for float32 and bfloat16, CPU and CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/half.h"

namespace hayfork::engine {

enum class DType : uint8_t { f32, bf16, f16, f64, i64, i32, i16, i8, u8, boolean, other };

int64_t size_of(DType type);        // bytes an element; 0 for other
std::string_view name(DType type);  // "f32", "bf16", …

// A row-major matrix; `stride` elements lie between the starts of two rows (≥ cols), so that a slice of columns of a
// fused projection is a Matrix too.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0, stride = 0;

  float* f32(int64_t row) const { return static_cast<float*>(data) + row * stride; }
  Matrix columns(int64_t begin, int64_t n) const {
    return {static_cast<char*>(data) + begin * size_of(dtype), dtype, rows, n, stride};
  }
  Matrix row_range(int64_t begin, int64_t end) const {
    return {static_cast<char*>(data) + begin * stride * size_of(dtype), dtype, end - begin, cols, stride};
  }
};

// A one-dimensional parameter (norm weight, bias, sinks), float32 in the memory of the device that uses it.
struct Vector {
  const float* data = nullptr;  // null: absent
  int64_t size = 0;
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace hayfork::engine
