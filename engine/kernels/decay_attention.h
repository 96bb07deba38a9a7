// Linear attention with decay (mixers.md 4, 5, 7): constant per head (Lightning, RetNet), per head and token (Mamba-2),
// per channel and token (GLA). One recurrence, S ← e^{λ} ⊙ S + k vᵀ, o = Sᵀ q.
#pragma once

#include <cstdint>

#include "engine/context.h"
#include "engine/kernels/recurrent.h"
#include "engine/rows.h"
#include "engine/tensor.h"

namespace hayfork::engine {

// States, and so outputs, are per head; query, key and value heads are shared by consecutive heads.
struct DecayHeads {
  int32_t n = 0, n_q = 0, n_k = 0, n_v = 0;
  int32_t dk = 0, dv = 0;
};

// Logarithms of the decays, all ≤ 0; exactly one is set.
struct Decay {
  Vector per_head;     // [n]
  Matrix per_token;    // [rows, n]
  Matrix per_channel;  // [rows, n_k · dk]
};

int64_t decay_attention_state_bytes(const Context& context, const DecayHeads& heads);

// Base rows only. v is multiplied by v_scale [rows, n] when that is given; skip [n] or [n · dv] adds skip ⊙ v
// (unscaled) to o. Requires: q [rows, n_q·dk], k [rows, n_k·dk], v [rows, n_v·dv], o [rows, n·dv].
void decay_attention(Context& context, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, const Decay& decay,
                     Matrix v_scale, Vector skip, const DecayHeads& heads, StateView state);

// Mamba-2's step sizes (mixers.md 7): dt ← clamp(softplus(dt + dt_bias), low, high); a = −exp(a_log) · dt. In place; a
// [rows, n] may not overlap dt.
void mamba2_steps(Context& context, Matrix dt, Matrix a, Vector dt_bias, Vector a_log, float low, float high);

// GLA's gate: x ← max(log σ(x) · scale, floor).
void log_sigmoid(Context& context, Matrix x, float scale, float floor);

}  // namespace hayfork::engine
