// Maps of bfloat16 matrices for the copy engine. The driver's encoder is looked up at run time, so that the program
// loads on machines without a driver.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace hayfork::engine::cuda {

// A matrix [rows, cols], rows `stride` elements apart, read in boxes of box_rows by 64 columns that lie in shared
// memory with 128-byte swizzle; what lies beyond rows and cols reads as zeros. Requires: base and 2·stride multiples of
// 16 bytes, box_rows ≤ 256.
CUtensorMap tensor_map(const void* base, int64_t rows, int64_t cols, int64_t stride, uint32_t box_rows);

}  // namespace hayfork::engine::cuda
