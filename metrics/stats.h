// Statistics of scores: intervals for one set of samples, paired tests for two. Everything is deterministic: resampling
// uses base/rng.h (SplitMix64) with the seed given. Clusters are samples that share something random (a needle draw, an
// article): they are resampled, and their signs flipped, together (rulings B9).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hayfork::metrics {

constexpr double kZ95 = 1.959963984540054;  // Φ⁻¹(0.975)

double normal_cdf(double z);
// Φ⁻¹(p), relative error below 1e-15 (Wichura 1988, AS 241). Requires: 0 < p < 1.
double normal_quantile(double p);

struct Interval {
  double low = 0, high = 0;
};

// Wilson 1927: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) ÷ (1 + z²/n). Requires: n ≥ 1, 0 ≤ hits ≤ n.
Interval wilson(int64_t hits, int64_t n, double z = kZ95);
// The same for a share of n units that need not be whole. Requires: n > 0, 0 ≤ p ≤ 1.
Interval wilson_share(double p, double n, double z = kZ95);
// Clopper and Pearson 1934, two-sided at 1 − alpha; all of n right gives the lower bound (alpha/2)^(1/n).
Interval exact_binomial(int64_t hits, int64_t n, double alpha = 0.05);

struct Mean {
  double mean = 0;
  std::optional<double> stderr_value;  // of the mean, sample variance with n − 1; empty for n < 2
};
// Sums in float64, in order. Requires: values not empty.
Mean mean_of(std::span<const double> values);

struct BootstrapOptions {
  int resamples = 10000;
  uint64_t seed = 0;
  double alpha = 0.05;
};
// BCa interval (Efron 1987) of Σ sums ÷ Σ counts over clusters: a cluster gives the sum and the number of its values;
// an ordinary sample is a cluster with count 1. Bias from the share of resamples below the estimate (ties half),
// acceleration from the jackknife over clusters. Empty when there are fewer than two clusters or every resample agrees.
std::optional<Interval> bca_bootstrap(std::span<const double> sums, std::span<const double> counts,
                                      const BootstrapOptions& options = {});

// What fold() writes for a mean: the value, its standard error and a 95 % interval by the rules of rulings B9: Wilson
// when every value is 0 or 1 and no cluster repeats; else the BCa bootstrap over clusters. Where the bootstrap has
// nothing to vary (every cluster has the same mean): Wilson over the number of clusters when values are 0 or 1, else
// none.
struct Estimate {
  double value = 0;
  int64_t n = 0;
  std::optional<double> stderr_value;  // over clusters when they repeat; empty when it would say nothing
  std::optional<Interval> interval;
  std::string method;  // "wilson", "wilson-clusters", "bca-b10000-seed0", "" without an interval
};
// `clusters` is empty (all independent) or one name a value. Requires: values not empty, all finite.
Estimate estimate_mean(std::span<const double> values, std::span<const std::string> clusters = {},
                       const BootstrapOptions& options = {});

// ---- Two sets of answers to the same questions ---------------------------------------------------------------------

// Exact two-sided sign test on the pairs that differ: 2·P(Binomial(b + c, ½) ≤ min(b, c)), at most 1.
double mcnemar_exact(int64_t worse, int64_t better);

struct PermutationOptions {
  int resamples = 10000;  // when the 2^n sign patterns are too many to go through
  uint64_t seed = 0;
  int exact_up_to = 16;  // clusters
};
struct PermutationResult {
  double p = 1;        // two-sided; (1 + hits) ÷ (1 + resamples) when sampled
  bool exact = false;  // all patterns were gone through
};
// Sign-flip test of Σ differences = 0: every difference (one a cluster: its sum) keeps or changes its sign.
PermutationResult sign_flip_test(std::span<const double> differences, const PermutationOptions& options = {});

// Holm 1979: adjusted p-values in the order given.
std::vector<double> holm(std::span<const double> p);

}  // namespace hayfork::metrics
