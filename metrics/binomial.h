// The binomial distribution: its cumulative sums, and drawing from it.
#pragma once

#include <cstdint>

#include "base/rng.h"

namespace hayfork::metrics {

double binomial_cdf(int64_t k, int64_t n, double p);   // P(X ≤ k) of Binomial(n, p)
int64_t draw_binomial(int64_t n, double p, Rng& rng);  // Requires: n ≥ 0, 0 ≤ p ≤ 1

}  // namespace hayfork::metrics
