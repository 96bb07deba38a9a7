// The hot loops of the CPU ops, compiled once per instruction set from one source (kernels.h) and chosen at run time.
// Each function computes every row by the same chain of operations whatever else it is given: a row's bits depend on
// the instruction set and on the row, never on the number of rows or threads.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/half.h"

namespace hayfork::engine::cpu {

constexpr int64_t kGroup = 16;  // columns the products work in; wider panels are several groups

// What a stretch of logits says of one row.
struct LogitSummary {
  float top1, top2;  // the two largest
  int32_t argmax;    // lowest index among equals
  bool finite;       // no NaN, no infinity
  double sum;        // Σ exp(logit − top1), float64; 0 when not finite
};

// Rows of attention over one tile of 64 keys: scores in, weights out, running state updated.
struct SoftmaxTile {
  int64_t m;  // rows
  float* s;  // [m][64] in: q·k of the keys in [begin, end), anything elsewhere; out, unless p is given: exp(s − max),
             // else 0
  const int32_t* begin;  // [m] visible keys of each row; null: all 64
  const int32_t* end;
  float scale, cap;  // s · scale, then cap·tanh(s/cap) when cap > 0
  float* max;        // [m] running maximum
  float* sums;       // [m][16] running Σ exp, key j in lane j mod 16
  float* o;          // [m][o_stride] what was accumulated under the old maximum: rescaled
  int64_t o_stride, o_width;
  bf16* p;  // [m][64] the weights rounded, or null. The sums are of unrounded ones.
};

struct Simd {
  std::string_view name;
  bool multiplies_bf16;  // in hardware; otherwise two float32 multiply-adds a pair

  // c[m][n] (+)= Σ_k a[m][k] b[k][n], k ascending in one chain, n < 16·groups. Strides in elements. Memory `ahead`
  // bytes after what is read of b is fetched early (0: none).
  void (*gemm_f32)(int64_t m, int64_t groups, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                   float* c, int64_t ldc, bool accumulate, int64_t ahead);
  // The same with pairs: b is [pairs][ldb][2], a row of a is [pairs][2]; products and sums in float32.
  void (*gemm_bf16)(int64_t m, int64_t groups, int64_t pairs, const bf16* a, int64_t lda, const bf16* b, int64_t ldb,
                    float* c, int64_t ldc, bool accumulate, int64_t ahead);

  void (*to_bf16)(const float* x, bf16* y, int64_t n);  // round to nearest even
  void (*to_f32)(const bf16* x, float* y, int64_t n);

  void (*softmax)(const SoftmaxTile& tile);
  float (*exp)(float x);
  void (*scale)(float* x, float factor, int64_t n);                     // x *= factor
  void (*scale_to)(const float* x, float factor, float* y, int64_t n);  // y = x·factor + 0: never −0
  void (*scale_add)(float* x, float factor, const float* y, float y_factor, int64_t n);  // x = x·factor + y·y_factor

  void (*rmsnorm)(const float* x, float* y, const float* w, float w_offset, float eps, int64_t n);  // w may be null
  void (*add)(float* x, const float* y, float scale, int64_t n);
  void (*silu_mul)(const float* gate, const float* up, float* y, int64_t n);
  void (*gelu_mul)(const float* gate, const float* up, float* y, int64_t n);
  void (*affine)(float* x, const float* scale, const float* offset, int64_t n);
  void (*rotate)(float* low, float* high, const float* cos, const float* sin, int64_t half);
  bool (*all_finite)(const float* x, int64_t n);
  void (*softcap)(float* x, float cap, int64_t n);  // x = cap·tanh(x/cap)
  LogitSummary (*summarize)(const float* x, int64_t n);

  // Recurrent states s [dk][dv] (state.h). s *= decay; u = sᵀ k.
  void (*state_decay_read)(float* s, int64_t dk, int64_t dv, float decay, const float* k, float* u);
  // s = decay ⊙ s + k dᵀ (decays [dk] instead of decay unless null); o = sᵀ q.
  void (*state_update_read)(float* s, int64_t dk, int64_t dv, float decay, const float* decays, const float* k,
                            const float* d, const float* q, float* o);
  void (*state_read)(const float* s, int64_t dk, int64_t dv, const float* q, float* o);  // o = sᵀ q
  // y = bias + Σ_m w[m] ⊙ x[m] over `taps` rows, then SiLU when asked; bias may be null. y may be x[taps−1].
  void (*conv_row)(const float* const* x, const float* w, int64_t w_stride, const float* bias, int64_t taps, float* y,
                   int64_t n, bool silu);
};

// The best table this processor can run: "x86-64-v4+bf16", "x86-64-v4", "x86-64-v3" or "generic".
const Simd& simd();
// All tables this processor can run, best first; for tests.
const Simd* const* simd_all(int* n);

}  // namespace hayfork::engine::cpu
