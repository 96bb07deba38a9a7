// Elementwise ops beside those of ops.h: weighted sums of streams, and sigmoid output gates.
#pragma once

#include "engine/context.h"
#include "engine/tensor.h"

namespace hayfork::engine {

// out = a · x + b · y; b = 0 leaves y unread. out may be x or y. All of one shape.
void combine(Context& context, Matrix out, Matrix x, float a, Matrix y, float b);
// y = σ(gate) ⊙ x. y may be gate or x. gate may have one column: then it scales the whole row.
void sigmoid_mul(Context& context, Matrix y, Matrix gate, Matrix x);

}  // namespace hayfork::engine
