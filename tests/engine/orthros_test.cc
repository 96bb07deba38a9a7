// Orthros on the CPU, by its properties.
#include "base/parallel.h"
#include "tests/engine/orthros_properties.h"

namespace hayfork::test {

MakeContext device() {
  set_threads(1);  // models this small are slower with more
  return [](engine::DType type) { return engine::make_cpu_context(type); };
}
// Float32 sums of some hundred terms; decode and prefill rows go through the same operations.
Tolerances tolerances() {
  return {.oracle = 1e-5, .gated_delta = 1e-5, .decode_f32 = 1e-6, .decode_bf16 = 1e-2, .backbone_bf16 = 0};
}

INSTANTIATE_TEST_SUITE_P(Cpu, Orthros, testing::ValuesIn(device_cases()), case_name);

}  // namespace hayfork::test
