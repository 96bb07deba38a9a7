// Two sets of answers to the same questions: tests of no difference, the interval of the difference, and how large a
// difference could have been seen (docs/compare.md). Differences are gains: positive is better, whatever the metric's
// direction. Clusters are kept or flipped, and resampled, as one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/bootstrap.h"

namespace hayfork::metrics {

// Exact two-sided sign test on the pairs that differ: 2·P(Binomial(b + c, ½) ≤ min(b, c)), at most 1.
double mcnemar_exact(int64_t worse, int64_t better);

struct PermutationOptions {
  int resamples = 10000;  // when the 2^n sign patterns are too many to go through
  uint64_t seed = 0;
  int exact_up_to = 16;  // units that differ
};
struct PermutationResult {
  double p = 1;        // two-sided; (1 + hits) ÷ (1 + resamples) when sampled
  bool exact = false;  // all patterns were gone through
};
// Sign-flip test of Σ differences = 0: every difference (one a cluster: its sum) keeps or changes its sign.
PermutationResult sign_flip_test(std::span<const double> differences, const PermutationOptions& options = {});

// Studentised bootstrap test of a mean of 0 over units: the share of resamples, centred on the estimate, whose mean ÷
// standard error is as large in size, (1 + hits) ÷ (1 + resamples). 1 when nothing varies.
double bootstrap_t_test(std::span<const double> sums, std::span<const double> counts,
                        const BootstrapOptions& options = {});

// Adjusted p-values in the order given: Holm 1979 (family-wise error), Benjamini and Hochberg 1995 (false discovery).
std::vector<double> holm(std::span<const double> p);
std::vector<double> benjamini_hochberg(std::span<const double> p);
enum class Adjust { holm, bh, none };
std::vector<double> adjust(std::span<const double> p, Adjust method);

// (z₁₋α/₂ + z₀.₈)·standard error: the true difference that a test at level alpha finds in four cases of five.
double minimal_detectable(double standard_error, double alpha = 0.05);

enum class PairedTest { automatic, mcnemar, permutation, bootstrap };

struct PairedOptions {
  PairedTest test = PairedTest::automatic;
  double alpha = 0.05;
  BootstrapOptions bootstrap;
  PermutationOptions permutation;
  bool interval = true;  // false: no bootstrap, for callers that want p alone
};

struct PairedResult {
  int64_t n = 0, n_units = 0;          // pairs, and clusters (or pairs again)
  int64_t n_worse = 0, n_better = 0;   // pairs with a gain below and above 0
  double gain = 0;                     // mean over pairs
  std::optional<double> stderr_value;  // over units; empty when it would say nothing
  std::optional<Interval> interval;    // BCa over units at 1 − alpha
  std::string ci_method;               // "bca-b10000-splitmix64-seed0", "" without one
  std::string test;                    // "mcnemar-exact", "sign-flip-exact", "sign-flip-b10000-splitmix64-seed0", …
  double p = 1;
  std::optional<double> mde;  // minimal_detectable; empty without a standard error
};
// `clusters` is empty or one name a pair; names that never repeat are the same as none. `automatic` is McNemar's exact
// test where every score is 0 or 1 and no cluster repeats, else the sign-flip test over units. Requires: at least one
// pair, all finite. Throws: usage when McNemar's test is asked for and does not apply.
PairedResult compare_paired(std::span<const double> gains, std::span<const std::string> clusters, bool binary,
                            const PairedOptions& options = {});

constexpr int64_t kFewPairs = 20;  // below: no verdict

// "better", "worse", "same" (every pair is equal), "same?" (no difference was seen; see the mde), "too few".
std::string_view verdict(const PairedResult& result, double adjusted_p, double alpha);

}  // namespace hayfork::metrics
