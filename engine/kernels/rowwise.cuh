// What kernels that go over rows share: eight elements at a time, and the arithmetic of norms, activations and
// rotations, each rounded where the unfused chain of the reference rounds.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "engine/cuda/device.cuh"
#include "engine/kernels/ops.h"

namespace hayfork::engine::cuda {

// Eight elements as they lie in memory: 16 bytes of bf16, 32 of float32. Requires: aligned addresses.
template <typename T>
struct Eight;
template <>
struct Eight<__nv_bfloat16> {
  uint4 v;
};
template <>
struct Eight<float> {
  float4 v[2];
};
__device__ inline void unpack(float (&to)[8], const Eight<__nv_bfloat16>& from) {
  const uint32_t words[4] = {from.v.x, from.v.y, from.v.z, from.v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
}
__device__ inline void unpack(float (&to)[8], const Eight<float>& from) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    to[4 * i] = from.v[i].x, to[4 * i + 1] = from.v[i].y;
    to[4 * i + 2] = from.v[i].z, to[4 * i + 3] = from.v[i].w;
  }
}
__device__ inline void pack(Eight<__nv_bfloat16>& to, const float (&from)[8]) {
  const auto pair = [&](int i) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(from[i], from[i + 1]);
    return *reinterpret_cast<const uint32_t*>(&two);
  };
  to.v = {pair(0), pair(2), pair(4), pair(6)};
}
__device__ inline void pack(Eight<float>& to, const float (&from)[8]) {
  to.v[0] = {from[0], from[1], from[2], from[3]};
  to.v[1] = {from[4], from[5], from[6], from[7]};
}
template <typename T>
__device__ inline Eight<T> read_eight(const T* from) {
  return *reinterpret_cast<const Eight<T>*>(from);
}
template <typename T>
__device__ inline void load_eight(float (&to)[8], const T* from) {
  unpack(to, read_eight(from));
}
template <typename T>
__device__ inline void store_eight(T* to, const float (&from)[8]) {
  Eight<T> e;
  pack(e, from);
  *reinterpret_cast<Eight<T>*>(to) = e;
}
// Each rounded as the type rounds it.
template <typename T>
__device__ inline void round_eight(float (&v)[8]) {
  Eight<T> e;
  pack(e, v);
  unpack(v, e);
}
// Whether rows of these matrices can be read eight elements at a time: a matter of shape, and results don't depend on
// it where an op has no sum.
inline bool by_eight(std::initializer_list<Matrix> matrices, int64_t width) {
  for (const Matrix& m : matrices) {
    const auto address = reinterpret_cast<uintptr_t>(m.data);
    if (m.stride % 8 != 0 || address % static_cast<uintptr_t>(8 * size_of(m.dtype)) != 0) return false;
  }
  return width % 8 == 0;
}

// Eight float32 parameters: two 16-byte reads.
__device__ inline void load_parameters(float (&to)[8], const float* from) {
  const float4 a = *reinterpret_cast<const float4*>(from), b = *reinterpret_cast<const float4*>(from + 4);
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
inline bool by_sixteen_bytes(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// x · r by the weight; r = 1 / sqrt(mean(x²) + eps).
template <typename T>
__device__ inline float normed(float x, float r, float weight, NormKind kind) {
  const float n = x * r;
  return kind == NormKind::llama      ? weight * rounded<T>(n)
         : kind == NormKind::one_cast ? weight * n
                                      : n * (1.f + weight);
}
template <typename T, NormKind kKind>
__device__ inline void norm_eight(float (&v)[8], float r, const float (&weight)[8]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] *= r;
  if constexpr (kKind == NormKind::llama) round_eight<T>(v);
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] *= kKind == NormKind::zero_centred ? 1.f + weight[j] : weight[j];
}
template <typename F>
void with_kind(NormKind kind, F f) {
  switch (kind) {
    case NormKind::llama:
      return f(std::integral_constant<NormKind, NormKind::llama>{});
    case NormKind::one_cast:
      return f(std::integral_constant<NormKind, NormKind::one_cast>{});
    case NormKind::zero_centred:
      return f(std::integral_constant<NormKind, NormKind::zero_centred>{});
  }
}
// What stands for a norm's weight when it has none.
__host__ __device__ inline float absent_weight(NormKind kind) {
  return kind == NormKind::zero_centred ? 0.f : 1.f;
}

__device__ inline float activate(float v, Activation act) {
  if (act == Activation::silu) return v / (1.f + expf(-v));
  return 0.5f * v * (1.f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
}

// a scaled by `scale` as it is added to a residual.
template <typename T>
__device__ inline float scaled(float a, float scale) {
  return scale == 1.f ? a : rounded<T>(__fmul_rn(a, scale));
}

// One half of a rotated pair: a cos ∓ b sin, each product rounded; no multiply-add that would skip it in float32.
template <typename T>
__device__ inline float turned(float a, float b, float cosine, float sine) {
  return __fadd_rn(rounded<T>(__fmul_rn(a, cosine)), rounded<T>(__fmul_rn(b, sine)));
}
__device__ inline float mapped(float x, float scale, float offset) {
  return __fadd_rn(__fmul_rn(scale, x), offset);
}

}  // namespace hayfork::engine::cuda
