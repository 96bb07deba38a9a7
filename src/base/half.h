// bfloat16 and IEEE half as storage types: conversions to and from float, round to nearest even, NaN kept quiet.
#pragma once

#include <bit>
#include <cstdint>

namespace hayfork {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float to_float(float x) {
  return x;
}
inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>(u >> 16 | 0x40)};  // NaN stays NaN
  return {static_cast<uint16_t>((u + 0x7FFFu + (u >> 16 & 1u)) >> 16)};
}
inline float round_to_bf16(float x) {
  return to_float(to_bf16(x));
}

inline float to_float(f16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = x.bits >> 10 & 31u;
  uint32_t mantissa = x.bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = static_cast<float>(mantissa) * 0x1p-24f;  // subnormal or zero
  return sign ? -value : value;
}

}  // namespace hayfork
