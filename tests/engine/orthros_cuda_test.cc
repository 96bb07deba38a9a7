// Orthros on a GPU, by its properties.
#include "engine/cuda/devices.h"
#include "tests/engine/orthros_properties.h"

namespace hayfork::test {

MakeContext device() {
  if (engine::cuda::list_devices().devices.empty()) return {};
  return [](engine::DType type) { return engine::cuda::make_cuda_context(0, type); };
}

// bf16: decode rows have a GEMM of their own, so that every product may differ by a rounding; prefill output rows are
// attended by segments of keys (docs/numerics.md), the backbone's in tiles of rows, so that sums over keys may.
Tolerances tolerances() {
  return {.oracle = 1e-4, .gated_delta = 1e-4, .decode_f32 = 1e-4, .decode_bf16 = 5e-2, .backbone_bf16 = 5e-2};
}

INSTANTIATE_TEST_SUITE_P(Cuda, Orthros, testing::ValuesIn(device_cases()), case_name);

}  // namespace hayfork::test
