#include "metrics/paired.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "metrics/binomial.h"
#include "metrics/stats.h"

namespace hayfork::metrics {
namespace {

constexpr size_t kGroup = 8;  // signs that one byte draws

double total(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

double share_of_all_patterns(std::span<const double> d, double reach) {
  const uint64_t patterns = uint64_t{1} << d.size();
  uint64_t hits = 0;
  for (uint64_t mask = 0; mask < patterns; ++mask) {
    double sum = 0;
    for (size_t i = 0; i < d.size(); ++i) sum += mask >> i & 1 ? -d[i] : d[i];
    hits += std::abs(sum) >= reach;
  }
  return static_cast<double>(hits) / static_cast<double>(patterns);
}

// Eight differences at a time: their 256 signed sums once, then one byte a resample picks one.
double share_of_sampled_patterns(std::span<const double> d, double reach, const PermutationOptions& options) {
  Rng rng(options.seed, "sign flip");
  std::vector<double> sums(static_cast<size_t>(options.resamples), 0.0);
  for (size_t from = 0; from < d.size(); from += kGroup) {
    const size_t n = std::min(kGroup, d.size() - from);
    double table[1 << kGroup];
    for (size_t mask = 0; mask < (size_t{1} << kGroup); ++mask) {
      double sum = 0;
      for (size_t i = 0; i < n; ++i) sum += mask >> i & 1 ? -d[from + i] : d[from + i];
      table[mask] = sum;
    }
    uint64_t word = 0;
    for (size_t r = 0; r < sums.size(); ++r) {
      if (r % 8 == 0) word = rng.next();
      sums[r] += table[word & 0xFF];
      word >>= 8;
    }
  }
  const auto hits = std::count_if(sums.begin(), sums.end(), [&](double sum) { return std::abs(sum) >= reach; });
  return static_cast<double>(1 + hits) / static_cast<double>(1 + options.resamples);
}

double squared_t(double mean, double variance) {
  return variance > 0 ? mean * mean / variance : mean == 0 ? 0 : INFINITY;
}

std::vector<size_t> ascending(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  return order;
}

void run_test(const Units& units, bool binary, const PairedOptions& options, PairedResult& out) {
  PairedTest test = options.test;
  const bool exact_applies = binary && !units.repeat;
  if (test == PairedTest::mcnemar && !exact_applies) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "McNemar's test does not apply to these pairs",
                {.why = units.repeat ? "samples share clusters" : "scores are not all 0 or 1",
                 .next = "--test auto picks the test that does"});
  }
  if (test == PairedTest::automatic) test = exact_applies ? PairedTest::mcnemar : PairedTest::permutation;
  if (test == PairedTest::mcnemar) {
    out.test = "mcnemar-exact";
    out.p = mcnemar_exact(out.n_worse, out.n_better);
  } else if (test == PairedTest::permutation) {
    const PermutationResult result = sign_flip_test(units.sums, options.permutation);
    out.p = result.p;
    out.test = result.exact ? "sign-flip-exact"
                            : "sign-flip-b" + std::to_string(options.permutation.resamples) + "-splitmix64-seed" +
                                  std::to_string(options.permutation.seed);
  } else {
    out.test = bootstrap_name("bootstrap-t", options.bootstrap);
    out.p = bootstrap_t_test(units.sums, units.counts, options.bootstrap);
  }
}

}  // namespace

double mcnemar_exact(int64_t worse, int64_t better) {
  HAY_CHECK(worse >= 0 && better >= 0);
  if (worse + better == 0) return 1;
  return std::min(1.0, 2 * binomial_cdf(std::min(worse, better), worse + better, 0.5));
}

PermutationResult sign_flip_test(std::span<const double> differences, const PermutationOptions& options) {
  std::vector<double> d;  // a difference of 0 keeps the sum whatever its sign
  for (const double x : differences)
    if (x != 0) d.push_back(x);
  if (d.empty()) return {1, true};
  double scale = 0;
  for (const double x : d) scale += std::abs(x);
  const double reach = std::abs(total(d)) - 1e-12 * scale;  // sums in another order must still count as equal
  if (static_cast<int>(d.size()) <= options.exact_up_to) return {share_of_all_patterns(d, reach), true};
  return {share_of_sampled_patterns(d, reach, options), false};
}

double bootstrap_t_test(std::span<const double> sums, std::span<const double> counts, const BootstrapOptions& options) {
  HAY_CHECK(sums.size() == counts.size());
  const size_t g = sums.size();
  const auto se = unit_stderr(sums, counts);
  if (!se || *se == 0) return 1;
  const double estimate = total(sums) / total(counts);
  const double reach = squared_t(estimate, *se * *se) * (1 - 1e-12);
  Rng rng(options.seed, "bootstrap t");
  int64_t hits = 0;
  std::vector<double> s(g), c(g);
  for (int r = 0; r < options.resamples; ++r) {
    for (size_t i = 0; i < g; ++i) {
      const size_t pick = rng.below(g);
      s[i] = sums[pick];
      c[i] = counts[pick];
    }
    const double deviation = unit_stderr(s, c).value_or(0);
    hits += squared_t(total(s) / total(c) - estimate, deviation * deviation) >= reach;
  }
  return static_cast<double>(1 + hits) / static_cast<double>(1 + options.resamples);
}

std::vector<double> holm(std::span<const double> p) {
  const std::vector<size_t> order = ascending(p);
  std::vector<double> out(p.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, std::min(1.0, static_cast<double>(p.size() - rank) * p[order[rank]]));
    out[order[rank]] = largest;
  }
  return out;
}

std::vector<double> benjamini_hochberg(std::span<const double> p) {
  const std::vector<size_t> order = ascending(p);
  std::vector<double> out(p.size());
  double smallest = 1;
  for (size_t rank = order.size(); rank-- > 0;) {
    smallest = std::min(smallest, static_cast<double>(p.size()) / static_cast<double>(rank + 1) * p[order[rank]]);
    out[order[rank]] = smallest;
  }
  return out;
}

std::vector<double> adjust(std::span<const double> p, Adjust method) {
  switch (method) {
    case Adjust::holm:
      return holm(p);
    case Adjust::bh:
      return benjamini_hochberg(p);
    case Adjust::none:
      break;
  }
  return {p.begin(), p.end()};
}

double minimal_detectable(double standard_error, double alpha) {
  return (normal_quantile(1 - alpha / 2) + normal_quantile(0.8)) * standard_error;
}

PairedResult compare_paired(std::span<const double> gains, std::span<const std::string> clusters, bool binary,
                            const PairedOptions& options) {
  HAY_CHECK(!gains.empty());
  const Units units = group_units(gains, clusters);
  PairedResult out;
  out.n = static_cast<int64_t>(gains.size());
  out.n_units = static_cast<int64_t>(units.sums.size());
  for (const double gain : gains) {
    out.n_worse += gain < 0;
    out.n_better += gain > 0;
  }
  out.gain = total(gains) / static_cast<double>(out.n);
  run_test(units, binary, options, out);
  const bool varies = std::any_of(gains.begin(), gains.end(), [&](double gain) { return gain != gains[0]; });
  if (!varies) return out;
  out.stderr_value = unit_stderr(units.sums, units.counts);
  if (out.stderr_value == 0.0) out.stderr_value.reset();  // clusters that agree say nothing about the next one
  if (out.stderr_value) out.mde = minimal_detectable(*out.stderr_value, options.alpha);
  if (!options.interval) return out;
  BootstrapOptions bootstrap = options.bootstrap;
  bootstrap.alpha = options.alpha;
  out.interval = bca_bootstrap(units.sums, units.counts, bootstrap);
  if (out.interval) out.ci_method = bootstrap_name("bca", bootstrap);
  return out;
}

std::string_view verdict(const PairedResult& result, double adjusted_p, double alpha) {
  if (result.n_worse + result.n_better == 0) return "same";
  if (result.n < kFewPairs) return "too few";
  if (adjusted_p >= alpha || result.gain == 0) return "same?";
  return result.gain > 0 ? "better" : "worse";
}

}  // namespace hayfork::metrics
