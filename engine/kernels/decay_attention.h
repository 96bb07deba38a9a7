// Linear attention with decay: constant per head (Lightning, RetNet), per head and token (Mamba-2),
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

// Logarithms of the decays, all ≤ 0 and float32; exactly one is set.
struct Decay {
  Vector per_head;     // [n]
  Matrix per_token;    // [rows, n]
  Matrix per_channel;  // [rows, n_k · dk]
};

// Bytes of one sequence's state, and of scratch a chunk (chunk_scratch_bytes() of recurrent.h; 0: none).
int64_t decay_attention_state_bytes(const Context& context, const DecayHeads& heads, bool per_channel);
int64_t decay_attention_chunk_bytes(const Context& context, const DecayHeads& heads, bool per_channel);

// Base rows only. v is multiplied by v_scale [rows, n] float32 when that is given; skip [n] or [n · dv] adds skip ⊙ v
// (unscaled) to o. Requires: q [rows, n_q·dk], k [rows, n_k·dk], v [rows, n_v·dv], o [rows, n·dv]; scratch: one row
// of bytes, or empty: from the arena.
void decay_attention(Context& context, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, const Decay& decay,
                     Matrix v_scale, Vector skip, const DecayHeads& heads, StateView state, Matrix scratch = {});

// Mamba-2's step sizes: steps = clamp(softplus(dt + dt_bias), low, high); a = −exp(a_log) · steps. steps
// and a are float32; steps may be dt.
void mamba2_steps(Context& context, Matrix steps, Matrix a, Matrix dt, Vector dt_bias, Vector a_log, float low,
                  float high);

// GLA's gate: y = max(log σ(x) · scale, floor), y float32; y may be x.
void log_sigmoid(Context& context, Matrix y, Matrix x, float scale, float floor);

}  // namespace hayfork::engine
