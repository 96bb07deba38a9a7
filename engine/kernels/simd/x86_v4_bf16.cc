#define HAY_ISA x86_v4_bf16
#define HAY_ISA_NAME "x86-64-v4+bf16"

#if defined(__x86_64__)
#include "engine/kernels/simd/kernels.h"

namespace hayfork::engine::cpu {
extern const Simd kSimd_x86_v4_bf16;
const Simd kSimd_x86_v4_bf16 = x86_v4_bf16::make_table();
}  // namespace hayfork::engine::cpu
#endif
