#define HAY_ISA x86_v3
#define HAY_ISA_NAME "x86-64-v3"

#if defined(__x86_64__)
#include "engine/kernels/simd/kernels.h"

namespace hayfork::engine::cpu {
extern const Simd kSimd_x86_v3;
const Simd kSimd_x86_v3 = x86_v3::make_table();
}  // namespace hayfork::engine::cpu
#endif
