#include "engine/kernels/tensor_map.cuh"

#include <cudaTypedefs.h>

#include "engine/cuda/device.cuh"

namespace hayfork::engine::cuda {

CUtensorMap tensor_map(const void* base, int64_t rows, int64_t cols, int64_t stride, uint32_t box_rows) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    HAY_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
    HAY_CHECK(found == cudaDriverEntryPointSuccess);
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[2] = {64, box_rows};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), sizes, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HAY_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled " + std::to_string(static_cast<int>(result)));
  return map;
}

}  // namespace hayfork::engine::cuda
