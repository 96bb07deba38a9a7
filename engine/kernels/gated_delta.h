// The gated delta rule (Yang et al. 2024, arXiv 2412.06464, eq. 10).
#pragma once

#include <cstdint>

#include "engine/context.h"
#include "engine/kernels/recurrent.h"
#include "engine/rows.h"
#include "engine/tensor.h"

namespace hayfork::engine {

struct GatedDeltaParams {
  int32_t n_q = 0, n_k = 0, n_v = 0;  // query heads, key heads, states; outputs: max(n_q, n_v) heads
  int32_t dk = 0, dv = 0;
  bool negative_eigenvalues = false;  // β up to 2
  bool read_before_write = false;     // output rows read the state as the token before left it, not decayed
  int32_t n_out() const { return n_q > n_v ? n_q : n_v; }
};

// Bytes of one sequence's state for this op, and of scratch a chunk (chunk_scratch_bytes() of recurrent.h; 0: none).
int64_t gated_delta_state_bytes(const Context& context, const GatedDeltaParams& params);
int64_t gated_delta_chunk_bytes(const Context& context, const GatedDeltaParams& params);

// Per state j and base row t: S ← e^{g_t} S; δ = β_t (v_t − Sᵀk_t); S ← S + k_t δᵀ; o_t = Sᵀ q_t, with
// β = σ(b) (· 2), g = −exp(a_log) · softplus(a + dt_bias), all float32. State j takes key head ⌊j·n_k/n_v⌋; output head
// h takes query head ⌊h·n_q/n_out⌋ and state ⌊h·n_v/n_out⌋. An output row at position t reads the state after base row
// t (or before it), which is in the same pass or is the last one of the sequence; it writes nothing.
// q, k come normalised and scaled. Requires: q [rows, n_q·dk], k [rows, n_k·dk], v [rows, n_v·dv], a, b [rows, n_v],
// a_log, dt_bias [n_v], o [rows, n_out·dv]; scratch: one row of bytes, or empty: from the arena.
void gated_delta(Context& context, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, Matrix a, Matrix b,
                 Vector a_log, Vector dt_bias, const GatedDeltaParams& params, StateView state, Matrix scratch = {});

}  // namespace hayfork::engine
