// A vector of floats of the instruction set this file is compiled for, in a namespace of its own (HAY_ISA), so that
// the copies for different instruction sets never meet. Nothing of the standard library that could be emitted as a
// shared function may be used below this line: the linker would keep one copy for all instruction sets.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/half.h"

namespace hayfork::engine::cpu::HAY_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t Int __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Uint __attribute__((vector_size(4 * kLanes)));

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof v);
}
inline Uint load_bits(const void* p) {
  Uint v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline Vec splat(float x) {
  return x - Vec{};
}
inline Uint splat_bits(uint32_t x) {
  return x + Uint{};
}

inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

inline Vec choose(Int mask, Vec a, Vec b) {
  return mask ? a : b;
}
inline Vec max(Vec a, Vec b) {
  return choose(a > b, a, b);
}
inline Vec min(Vec a, Vec b) {
  return choose(a < b, a, b);
}

// The bfloat16 in the low and in the high half of each 32-bit lane.
inline Vec low_half(Uint pairs) {
  return reinterpret_cast<Vec>(pairs << 16);
}
inline Vec high_half(Uint pairs) {
  return reinterpret_cast<Vec>(pairs & 0xFFFF0000u);
}

// c + a.low·b.low + a.high·b.high
inline Vec dot_pairs(Vec c, Uint a, Uint b) {
#if defined(__AVX512BF16__)
  return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#else
  return fma(high_half(a), high_half(b), fma(low_half(a), low_half(b), c));
#endif
}

// As bits of bfloat16 in the low half of each lane, to nearest even; NaN stays a NaN.
inline Uint round_bits(Vec x) {
  const Uint u = reinterpret_cast<Uint>(x);
  const Uint rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
  const Uint quiet = (u >> 16) | 0x40u;
  const Uint nan = reinterpret_cast<Uint>(x != x);
  return (nan & quiet) | (~nan & rounded);
}

inline float largest(Vec v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(v);
#else
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
  }
  return v[0];
#endif
}

// e^x to about 1 ulp; 0 far below, exactly 1 at 0, NaN kept. x = n·ln 2 + r, |r| ≤ ln 2 / 2; e^r = 1 + r + r²·q(r)
// with q of degree 4 by weighted least squares towards the smallest relative error (3.1e-9).
inline Vec exp(Vec x) {
#if defined(__AVX512F__)
  const Vec clamped = _mm512_max_ps(splat(-105.0F), x);  // a NaN in the second operand is kept; e^−105 rounds to 0
  const Vec n = _mm512_roundscale_ps(clamped * 1.44269504F, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  const Vec clamped = min(max(x, splat(-87.3F)), splat(88.3F));
  const Vec magic = splat(12582912.0F);  // 1.5·2²³: its sum with n has n in the low bits
  const Vec t = fma(clamped, splat(1.44269504F), magic);
  const Vec n = t - magic;
#endif
  Vec r = fma(n, splat(-0.693145751953125F), clamped);  // ln 2 in two parts, the first exact in 16 bits
  r = fma(n, splat(-1.42860677e-6F), r);
  Vec q = splat(0.0013814541F);
  q = fma(q, r, splat(0.0083687452F));
  q = fma(q, r, splat(0.041668391F));
  q = fma(q, r, splat(0.16666520F));
  q = fma(q, r, splat(0.49999993F));
  const Vec p = fma(q, r * r, r) + 1.0F;
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  const Int exponent = (reinterpret_cast<Int>(t) - reinterpret_cast<Int>(magic)) << 23;
  const Vec y = reinterpret_cast<Vec>(reinterpret_cast<Int>(p) + exponent);
  return choose(x != x, x, choose(x < splat(-87.3F), Vec{}, y));
#endif
}

// tanh x: odd polynomial (Taylor to x¹⁵) for |x| < 0.55, else by e^2x.
inline Vec tanh(Vec x) {
  const Vec q = x * x;
  Vec p = splat(-929569.0F / 638512875.0F);
  p = fma(p, q, splat(21844.0F / 6081075.0F));
  p = fma(p, q, splat(-1382.0F / 155925.0F));
  p = fma(p, q, splat(62.0F / 2835.0F));
  p = fma(p, q, splat(-17.0F / 315.0F));
  p = fma(p, q, splat(2.0F / 15.0F));
  p = fma(p, q, splat(-1.0F / 3.0F));
  const Vec small = fma(p * q, x, x);
  const Vec large = splat(1.0F) - splat(2.0F) / (exp(x + x) + splat(1.0F));
  return choose(q < splat(0.3025F), small, large);
}

// Calls body(i, n) with n = kLanes for whole vectors and once for the rest; load_part and store_part take that n.
inline Vec load_part(const float* p, int64_t n, float fill = 0.0F) {
  if (n == kLanes) return load(p);
  float part[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) part[i] = i < n ? p[i] : fill;
  return load(part);
}
inline void store_part(float* p, Vec v, int64_t n) {
  if (n == kLanes) return store(p, v);
  float part[kLanes];
  store(part, v);
  for (int64_t i = 0; i < n; ++i) p[i] = part[i];
}
template <typename Body>
inline void for_vectors(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}

}  // namespace hayfork::engine::cpu::HAY_ISA
