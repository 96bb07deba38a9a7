// The bootstrap of a mean over independent units. A unit is a sample, or a cluster of samples that share something
// random: it gives the sum and the number of its values, and the estimate is Σ sums ÷ Σ counts. Generator: SplitMix64
// (base/rng.h); every resample has a stream of its own, so that the draws depend on the seed and the number of the
// resample alone, not on threads. Where a thousand units and more take few distinct values, a resample draws how often
// each value comes (a multinomial, the same distribution) instead of every unit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hayfork::metrics {

struct Interval {
  double low = 0, high = 0;
};

struct BootstrapOptions {
  int resamples = 10000;
  uint64_t seed = 0;
  double alpha = 0.05;
};

// Values by cluster, clusters in the order of their names: the order of rows does not matter.
struct Units {
  std::vector<double> sums, counts;
  bool repeat = false;  // some unit has more than one value
};
// `names` is empty (every value is a unit) or one name a value. Requires: as many names as values, or none.
Units group_units(std::span<const double> values, std::span<const std::string> names);

// The estimates of all resamples, sorted. Requires: sums and counts of one size, at least 1; counts > 0.
std::vector<double> bootstrap_means(std::span<const double> sums, std::span<const double> counts,
                                    const BootstrapOptions& options = {});

// BCa (Efron 1987): bias from the share of resamples below the estimate (ties half), acceleration from the jackknife
// over units; quantiles by NumPy's linear rule. Empty when there are fewer than two units or every resample agrees.
std::optional<Interval> bca_bootstrap(std::span<const double> sums, std::span<const double> counts,
                                      const BootstrapOptions& options = {});
std::string bootstrap_name(const char* kind, const BootstrapOptions& options);  // "bca-b10000-splitmix64-seed0"

// Standard error of Σ sums ÷ Σ counts over units: linearised, with g ÷ (g − 1). Empty for fewer than two units.
std::optional<double> unit_stderr(std::span<const double> sums, std::span<const double> counts);

}  // namespace hayfork::metrics
