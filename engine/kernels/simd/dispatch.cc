#include "engine/kernels/simd/simd.h"

namespace hayfork::engine::cpu {

extern const Simd kSimd_generic;
#if defined(__x86_64__)
extern const Simd kSimd_x86_v3, kSimd_x86_v4, kSimd_x86_v4_bf16;
#endif

namespace {

struct Available {
  const Simd* table[4];
  int n = 0;

  Available() {
#if defined(__x86_64__)
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (v4 && __builtin_cpu_supports("avx512bf16")) table[n++] = &kSimd_x86_v4_bf16;
    if (v4) table[n++] = &kSimd_x86_v4;
    if (v3) table[n++] = &kSimd_x86_v3;
#endif
    table[n++] = &kSimd_generic;
  }
};

const Available& available() {
  static const Available found;
  return found;
}

}  // namespace

const Simd& simd() {
  return *available().table[0];
}

const Simd* const* simd_all(int* n) {
  *n = available().n;
  return available().table;
}

}  // namespace hayfork::engine::cpu
