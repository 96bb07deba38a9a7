// Statistics of one set of scores: intervals of shares and means. (metrics/bootstrap.h resamples; metrics/paired.h
// compares two sets.) Everything is deterministic. Clusters are samples that share something random (a needle draw, an
// article): they are resampled together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "metrics/bootstrap.h"

namespace hayfork::metrics {

constexpr double kZ95 = 1.959963984540054;  // Φ⁻¹(0.975)

double normal_cdf(double z);
// Φ⁻¹(p), relative error below 1e-15 (Wichura 1988, AS 241). Requires: 0 < p < 1.
double normal_quantile(double p);

// Wilson 1927: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) ÷ (1 + z²/n). Requires: n ≥ 1, 0 ≤ hits ≤ n.
Interval wilson(int64_t hits, int64_t n, double z = kZ95);
// The same for a share of n units that need not be whole. Requires: n > 0, 0 ≤ p ≤ 1.
Interval wilson_share(double p, double n, double z = kZ95);

struct Mean {
  double mean = 0;
  std::optional<double> stderr_value;  // of the mean, sample variance with n − 1; empty for n < 2
};
// Sums in float64, in order. Requires: values not empty.
Mean mean_of(std::span<const double> values);

// What fold() writes for a mean: the value, its standard error and a 95 % interval: Wilson
// when every value is 0 or 1 and no cluster repeats; else the BCa bootstrap over clusters. Where the bootstrap has
// nothing to vary (every cluster has the same mean): Wilson over the number of clusters when values are 0 or 1, else
// none.
struct Estimate {
  double value = 0;
  int64_t n = 0;
  std::optional<double> stderr_value;  // over clusters when they repeat; empty when it would say nothing
  std::optional<Interval> interval;
  std::string method;  // "wilson", "wilson-clusters", "bca-b10000-splitmix64-seed0", "" without an interval
};
// `clusters` is empty (all independent) or one name a value. Requires: values not empty, all finite.
Estimate estimate_mean(std::span<const double> values, std::span<const std::string> clusters = {},
                       const BootstrapOptions& options = {});

}  // namespace hayfork::metrics
