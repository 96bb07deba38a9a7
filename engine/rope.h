// Rotary frequencies: every scaling kind of transformers' modeling_rope_utils, made once per
// model, or per planned length where the kind depends on it. Rotation itself is an op (engine/kernels).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/ops.h"

namespace hayfork::engine {

struct RopeSpec {
  enum class Kind : uint8_t { standard, linear, dynamic, llama3, yarn, longrope, proportional };
  Kind kind = Kind::standard;
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;  // r: the first r channels of a head rotate (proportional: all, some by nothing)
  double base = 10000;
  double factor = 1;
  int64_t max_positions = 0;                         // max_position_embeddings
  int64_t original_positions = 0;                    // n0
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn
  float attention_factor = 1;                        // resolved: multiplies cos and sin
  double partial_factor = 1;                         // proportional
  std::vector<double> short_factors, long_factors;   // longrope, r/2 each

  bool depends_on_length() const { return kind == Kind::dynamic || kind == Kind::longrope; }
};

// yarn's attention factor when the file gives none: 0.1·mscale·ln(factor) + 1 (1 for factor ≤ 1).
double yarn_scale(double factor, double mscale);

// `n_tokens` is the request's planned total; only kinds that depend on the length look at it.
// Arithmetic in float32 where transformers' is, so that tables agree to an ulp of powf.
RopeTable make_rope_table(const RopeSpec& spec, int64_t n_tokens);

}  // namespace hayfork::engine
