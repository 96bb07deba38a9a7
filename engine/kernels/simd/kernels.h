// Row loops of the CPU ops and the table of all of them for one instruction set (HAY_ISA, HAY_ISA_NAME). Sums over a
// row run in 16 lanes, element i in lane i mod 16, lanes folded at the end: the same order for every instruction set.
#pragma once

#include "engine/kernels/simd/gemm.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/simd/state.h"
#include "engine/kernels/simd/vec.h"

namespace hayfork::engine::cpu::HAY_ISA {

constexpr int64_t kTileKeys = 64;
constexpr float kInfinity = __builtin_inff();

inline void to_bf16(const float* x, bf16* y, int64_t n) {
  int64_t i = 0;
#if defined(__AVX512BF16__)
  for (; i + 32 <= n; i += 32) {
    const __m512bh v = _mm512_cvtne2ps_pbh(load(x + i + 16), load(x + i));
    std::memcpy(y + i, &v, sizeof v);
  }
#endif
  for (; i + kLanes <= n; i += kLanes) {
    const Uint bits = round_bits(load(x + i));
    for (int j = 0; j < kLanes; ++j) y[i + j].bits = static_cast<uint16_t>(bits[j]);
  }
  if (i < n) {
    const Uint bits = round_bits(load_part(x + i, n - i));
    for (int64_t j = 0; j < n - i; ++j) y[i + j].bits = static_cast<uint16_t>(bits[j]);
  }
}

inline void to_f32(const bf16* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(x[i].bits) << 16;
    std::memcpy(y + i, &bits, sizeof bits);
  }
}

inline float exp_one(float x) {
  return exp(splat(x))[0];
}

// One row of a tile; Masked and Capped are known outside the loop over rows.
template <bool Masked, bool Capped>
inline void softmax_row(const SoftmaxTile& t, int64_t r) {
  constexpr int kVecs = kTileKeys / kLanes;
  float* s = t.s + r * kTileKeys;
  Vec score[kVecs];
  Vec top = splat(-kInfinity);
  Int lane;
  for (int j = 0; j < kLanes; ++j) lane[j] = j;
  for (int v = 0; v < kVecs; ++v) {
    Vec x = load(s + v * kLanes) * t.scale;
    if constexpr (Capped) x = tanh(x / t.cap) * t.cap;
    if constexpr (Masked) {
      const Int key = lane + v * kLanes;
      x = choose((key >= t.begin[r]) & (key < t.end[r]), x, splat(-kInfinity));
    }
    score[v] = x;
    top = max(x, top);  // drops NaN, which comes back through the sum
  }
  const float tile_max = largest(top);
  const float old_max = t.max[r];
  const float new_max = tile_max > old_max ? tile_max : old_max;
  const float base = new_max == -kInfinity ? 0.0F : new_max;
  t.max[r] = new_max;
  if (new_max != old_max) {
    const float rescale = exp_one(old_max - base);
    for (int64_t i = 0; i < kGroup; ++i) t.sums[r * kGroup + i] *= rescale;
    for (int64_t i = 0; i < t.o_width; ++i) t.o[r * t.o_stride + i] *= rescale;
  }
  Vec totals[kVecsPerGroup];
  for (int v = 0; v < kVecsPerGroup; ++v) totals[v] = load(t.sums + r * kGroup + v * kLanes);
  for (int v = 0; v < kVecs; ++v) {
    score[v] = exp(score[v] - base);
    totals[v % kVecsPerGroup] += score[v];
  }
  for (int v = 0; v < kVecsPerGroup; ++v) store(t.sums + r * kGroup + v * kLanes, totals[v]);
#if defined(__AVX512BF16__)
  if (t.p != nullptr) {
    for (int v = 0; v < kVecs; v += 2) {
      const __m512bh pair = _mm512_cvtne2ps_pbh(score[v + 1], score[v]);
      std::memcpy(t.p + r * kTileKeys + v * kLanes, &pair, sizeof pair);
    }
    return;
  }
#endif
  for (int v = 0; v < kVecs; ++v) store(s + v * kLanes, score[v]);
  if (t.p != nullptr) to_bf16(s, t.p + r * kTileKeys, kTileKeys);
}

template <bool Masked, bool Capped>
inline void softmax_rows(const SoftmaxTile& t) {
  for (int64_t r = 0; r < t.m; ++r) softmax_row<Masked, Capped>(t, r);
}

inline void softmax(const SoftmaxTile& t) {
  if (t.begin != nullptr) {
    t.cap > 0 ? softmax_rows<true, true>(t) : softmax_rows<true, false>(t);
  } else {
    t.cap > 0 ? softmax_rows<false, true>(t) : softmax_rows<false, false>(t);
  }
}

inline void scale(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

inline void scale_to(const float* x, float factor, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor + 0.0F;
}

inline void scale_add(float* x, float factor, const float* y, float y_factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] * factor + y[i] * y_factor;
}

inline void rmsnorm(const float* x, float* y, const float* w, float w_offset, float eps, int64_t n) {
  constexpr int kVecs = static_cast<int>(kGroup) / kLanes;
  Vec lanes[kVecs] = {};
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    for (int v = 0; v < kVecs; ++v) {
      const Vec a = load(x + i + v * kLanes);
      lanes[v] = fma(a, a, lanes[v]);
    }
  }
  for (int v = 0; v < kVecs && i + v * kLanes < n; ++v) {
    const int64_t rest = n - i - v * kLanes;
    const Vec a = load_part(x + i + v * kLanes, rest < kLanes ? rest : kLanes);
    lanes[v] = fma(a, a, lanes[v]);
  }
  float folded[kGroup];
  for (int v = 0; v < kVecs; ++v) store(folded + v * kLanes, lanes[v]);
  for (int half = kGroup / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) folded[j] += folded[j + half];
  }
  const float r = 1.0F / __builtin_sqrtf(folded[0] / static_cast<float>(n) + eps);
  if (w == nullptr) {
    for (i = 0; i < n; ++i) y[i] = x[i] * r;
  } else if (w_offset == 0) {
    for (i = 0; i < n; ++i) y[i] = x[i] * r * w[i];
  } else {
    for (i = 0; i < n; ++i) y[i] = x[i] * r * (w_offset + w[i]);
  }
}

inline void add(float* x, const float* y, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += factor * y[i];
}

inline void silu_mul(const float* gate, const float* up, float* y, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t w) {
    const Vec g = load_part(gate + i, w);
    store_part(y + i, g / (splat(1.0F) + exp(-g)) * load_part(up + i, w), w);
  });
}

// Hendrycks & Gimpel 2016: 0.5·x·(1 + tanh u) = x / (1 + e^−2u), u = √(2/π)(x + 0.044715 x³).
inline void gelu_mul(const float* gate, const float* up, float* y, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t w) {
    const Vec g = load_part(gate + i, w);
    const Vec u = 0.7978845608F * (g + 0.044715F * g * g * g);
    store_part(y + i, g / (splat(1.0F) + exp(-2.0F * u)) * load_part(up + i, w), w);
  });
}

inline void affine(float* x, const float* factor, const float* offset, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = factor[i] * x[i] + offset[i];
}

inline void rotate(float* low, float* high, const float* cos, const float* sin, int64_t half) {
  for_vectors(half, [&](int64_t i, int64_t w) {
    const Vec a = load_part(low + i, w), b = load_part(high + i, w);
    const Vec c = load_part(cos + i, w), s = load_part(sin + i, w);
    store_part(low + i, a * c - b * s, w);
    store_part(high + i, b * c + a * s, w);
  });
}

inline bool all_finite(const float* x, int64_t n) {
  Uint bad{};
  for_vectors(n, [&](int64_t i, int64_t w) {
    const Uint bits = reinterpret_cast<Uint>(load_part(x + i, w));
    bad |= reinterpret_cast<Uint>((bits & 0x7F800000u) == 0x7F800000u);
  });
  uint32_t any = 0;
  for (int j = 0; j < kLanes; ++j) any |= bad[j];
  return any == 0;
}

inline void softcap(float* x, float cap, int64_t n) {
  for_vectors(n, [&](int64_t i, int64_t w) { store_part(x + i, tanh(load_part(x + i, w) / cap) * cap, w); });
}

inline LogitSummary summarize(const float* x, int64_t n) {
  LogitSummary r{-kInfinity, -kInfinity, 0, all_finite(x, n), 0};
  // Per lane the two largest; the index is looked up afterwards, so the loop has no branch.
  Vec first = splat(-kInfinity), second = splat(-kInfinity);
  for_vectors(n, [&](int64_t i, int64_t w) {
    const Vec v = load_part(x + i, w, -kInfinity);
    second = max(second, min(first, v));
    first = max(first, v);
  });
  for (int j = 0; j < kLanes; ++j) {
    if (first[j] > r.top1) {
      r.top2 = r.top1 > second[j] ? r.top1 : second[j];
      r.top1 = first[j];
    } else if (first[j] > r.top2) {
      r.top2 = first[j];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] == r.top1) {
      r.argmax = static_cast<int32_t>(i);
      break;
    }
  }
  if (!r.finite) return r;
  double lanes[kGroup] = {};
  for (int64_t i = 0; i < n; i += kGroup) {
    float e[kGroup];
    for (int64_t v = 0; v < kGroup; v += kLanes) {
      const int64_t rest = n - i - v;
      const int64_t width = rest < 0 ? 0 : rest < kLanes ? rest : kLanes;
      store(e + v, width == 0 ? Vec{} : exp(load_part(x + i + v, width, -kInfinity) - r.top1));
    }
    for (int j = 0; j < kGroup; ++j) lanes[j] += static_cast<double>(e[j]);
  }
  for (int half = kGroup / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  r.sum = lanes[0];
  return r;
}

#if defined(__AVX512BF16__)
constexpr bool kMultipliesBf16 = true;
#else
constexpr bool kMultipliesBf16 = false;
#endif

constexpr Simd make_table() {
  return {.name = HAY_ISA_NAME,
          .multiplies_bf16 = kMultipliesBf16,
          .gemm_f32 = gemm_f32,
          .gemm_bf16 = gemm_bf16,
          .to_bf16 = to_bf16,
          .to_f32 = to_f32,
          .softmax = softmax,
          .exp = exp_one,
          .scale = scale,
          .scale_to = scale_to,
          .scale_add = scale_add,
          .rmsnorm = rmsnorm,
          .add = add,
          .silu_mul = silu_mul,
          .gelu_mul = gelu_mul,
          .affine = affine,
          .rotate = rotate,
          .all_finite = all_finite,
          .softcap = softcap,
          .summarize = summarize,
          .state_decay_read = state_decay_read,
          .state_update_read = state_update_read,
          .state_read = state_read,
          .conv_row = conv_row};
}

}  // namespace hayfork::engine::cpu::HAY_ISA
