#define HAY_ISA generic
#define HAY_ISA_NAME "generic"
#include "engine/kernels/simd/kernels.h"

namespace hayfork::engine::cpu {
extern const Simd kSimd_generic;
const Simd kSimd_generic = generic::make_table();
}  // namespace hayfork::engine::cpu
