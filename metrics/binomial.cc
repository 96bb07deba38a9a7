#include "metrics/binomial.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace hayfork::metrics {
namespace {

constexpr double kFewExpected = 10;  // below it, counting from 0 up is quick and the other method is not defined

double log_factorial(int64_t n) {
  int sign = 0;  // lgamma writes a global sign; the reentrant form does not
  return ::lgamma_r(static_cast<double>(n) + 1, &sign);
}

// By inversion: the first k whose cumulative probability passes a uniform number. Requires: n·p < kFewExpected.
int64_t draw_by_counting(int64_t n, double p, Rng& rng) {
  const double odds = p / (1 - p);
  double probability = std::exp(static_cast<double>(n) * std::log1p(-p));
  double u = rng.uniform();
  for (int64_t k = 0; k < n; ++k) {
    if (u < probability) return k;
    u -= probability;
    probability *= odds * static_cast<double>(n - k) / static_cast<double>(k + 1);
    if (probability == 0) return k;  // rounding left a rest of u past the tail
  }
  return n;
}

// Hörmann 1993, "The generation of binomial random variates", algorithm BTRS: transformed rejection with a squeeze.
// Requires: p ≤ ½, n·p ≥ kFewExpected.
int64_t draw_by_rejection(int64_t n, double p, Rng& rng) {
  const double np = static_cast<double>(n) * p;
  const double deviation = std::sqrt(np * (1 - p));
  const double b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p, c = np + 0.5;
  const double squeeze = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * deviation;
  const double log_odds = std::log(p / (1 - p));
  const auto mode = static_cast<int64_t>(static_cast<double>(n + 1) * p);
  const double at_mode = log_factorial(mode) + log_factorial(n - mode);
  for (;;) {
    const double u = rng.uniform() - 0.5, v = rng.uniform();
    const double us = 0.5 - std::abs(u);
    const double x = std::floor((2 * a / us + b) * u + c);
    if (!(x >= 0 && x <= static_cast<double>(n))) continue;
    const auto k = static_cast<int64_t>(x);
    if (us >= 0.07 && v <= squeeze) return k;
    const double bound = at_mode - log_factorial(k) - log_factorial(n - k) + static_cast<double>(k - mode) * log_odds;
    if (std::log(v * alpha / (a / (us * us) + b)) <= bound) return k;
  }
}

// Requires: 0 ≤ k ≤ n.
double log_choose(int64_t n, int64_t k) {
  return log_factorial(n) - log_factorial(k) - log_factorial(n - k);
}

}  // namespace

double binomial_cdf(int64_t k, int64_t n, double p) {
  if (k < 0) return 0;
  if (k >= n || p <= 0) return 1;
  if (p >= 1) return 0;
  double sum = 0;
  for (int64_t i = 0; i <= k; ++i)
    sum +=
        std::exp(log_choose(n, i) + static_cast<double>(i) * std::log(p) + static_cast<double>(n - i) * std::log1p(-p));
  return std::min(sum, 1.0);
}

int64_t draw_binomial(int64_t n, double p, Rng& rng) {
  HAY_CHECK(n >= 0 && p >= 0 && p <= 1);
  if (n == 0 || p == 0) return 0;
  if (p == 1) return n;
  if (p > 0.5) return n - draw_binomial(n, 1 - p, rng);
  return static_cast<double>(n) * p < kFewExpected ? draw_by_counting(n, p, rng) : draw_by_rejection(n, p, rng);
}

}  // namespace hayfork::metrics
