// The short causal convolution before recurrent mixers, its state, and the small row ops around it.
#pragma once

#include <cstdint>

#include "engine/context.h"
#include "engine/kernels/recurrent.h"
#include "engine/rows.h"
#include "engine/tensor.h"

namespace hayfork::engine {

// Floats of the state: the last taps − 1 inputs of every channel.
inline int64_t conv_state_floats(int64_t channels, int64_t taps) {
  return (taps - 1) * channels;
}

// x[t,c] ← silu( bias[c] + Σ_m w[m,c] · x[t − taps + 1 + m, c] ) over the base rows of each sequence, zeros before its
// start; other rows are left alone. w is [taps, channels] (transposed from the checkpoint's [channels, 1, taps]).
// Requires: x [rows of the pass, channels]; taps ≥ 2. The state of a sequence whose first row is position 0 is reset.
void causal_conv_silu(Context& context, const Pass& pass, Matrix x, Vector w, Vector bias, int64_t taps,
                      StateView state);

// y = silu(x), y may be x.
void silu(Context& context, Matrix y, Matrix x);

// x ← x · scale / sqrt(Σ x² + eps) over each group of `group` columns, in place.
void l2norm(Context& context, Matrix x, float eps, float scale, int64_t group);

}  // namespace hayfork::engine
