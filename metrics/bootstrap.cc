#include "metrics/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "metrics/binomial.h"
#include "metrics/stats.h"

namespace hayfork::metrics {
namespace {

constexpr size_t kManyUnits = 1024;  // from here on drawing counts is faster than drawing units
constexpr size_t kFewValues = 32;

double total(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// NumPy's default quantile: linear between order statistics.
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t i = std::min(static_cast<size_t>(at), sorted.size() - 1);
  const size_t j = std::min(i + 1, sorted.size() - 1);
  return sorted[i] + (at - static_cast<double>(i)) * (sorted[j] - sorted[i]);
}

// Efron and Tibshirani 1993, eq. 14.15: Σ(θ̄ − θᵢ)³ ÷ 6(Σ(θ̄ − θᵢ)²)^1.5 over leave-one-out estimates.
double acceleration(std::span<const double> sums, std::span<const double> counts) {
  const double sum = total(sums), count = total(counts);
  std::vector<double> left(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) left[i] = (sum - sums[i]) / (count - counts[i]);
  const double mean = total(left) / static_cast<double>(left.size());
  double square = 0, cube = 0;
  for (const double x : left) {
    const double d = mean - x;
    square += d * d;
    cube += d * d * d;
  }
  return square > 0 ? cube / (6 * std::pow(square, 1.5)) : 0;
}

// Distinct (sum, count) pairs and how many units have each.
struct Distinct {
  std::vector<double> sums, counts;
  std::vector<int64_t> n;
};

// Empty when there are more than kFewValues.
std::optional<Distinct> few_distinct(std::span<const double> sums, std::span<const double> counts) {
  if (sums.size() < kManyUnits) return std::nullopt;
  std::map<std::pair<double, double>, int64_t> seen;
  for (size_t i = 0; i < sums.size(); ++i) {
    ++seen[{sums[i], counts[i]}];
    if (seen.size() > kFewValues) return std::nullopt;
  }
  Distinct out;
  for (const auto& [unit, n] : seen) {
    out.sums.push_back(unit.first);
    out.counts.push_back(unit.second);
    out.n.push_back(n);
  }
  return out;
}

// One resample by counts: category after category, each a binomial of what is left.
double draw_counts(const Distinct& d, int64_t n, Rng& rng) {
  double sum = 0, count = 0;
  int64_t left = n, units_left = n;
  for (size_t k = 0; k < d.n.size() && left > 0; ++k) {
    const int64_t times = k + 1 == d.n.size()
                              ? left
                              : draw_binomial(left, static_cast<double>(d.n[k]) / static_cast<double>(units_left), rng);
    sum += static_cast<double>(times) * d.sums[k];
    count += static_cast<double>(times) * d.counts[k];
    left -= times;
    units_left -= d.n[k];
  }
  return sum / count;
}

// Numbers below n, two from a word (Lemire 2019: multiply and shift, without bias).
class Picker {
 public:
  Picker(uint32_t n, Rng& rng) : n_(n), reject_((0 - n) % n), rng_(rng) {}  // 2^32 mod n
  // Both numbers of a new word; false when one of them must be drawn again.
  bool pair(uint64_t& a, uint64_t& b) {
    const uint64_t word = rng_.next();
    const uint64_t low = (word & 0xFFFFFFFFu) * n_, high = (word >> 32) * n_;
    a = low >> 32;
    b = high >> 32;
    return static_cast<uint32_t>(low) >= reject_ && static_cast<uint32_t>(high) >= reject_;
  }

 private:
  uint64_t n_;
  uint32_t reject_;
  Rng& rng_;
};

// One resample by units. Four sums side by side: one alone would wait for each addition.
double draw_units(std::span<const double> sums, std::span<const double> counts, bool single, Rng& rng) {
  const auto n = static_cast<uint32_t>(sums.size());
  Picker picker(n, rng);
  double sum[4] = {}, count[4] = {};
  uint32_t i = 0;
  while (i + 4 <= n) {
    uint64_t pick[4];
    const bool first = picker.pair(pick[0], pick[1]), second = picker.pair(pick[2], pick[3]);
    if (!first || !second) continue;  // all four again: none was looked at
    for (int k = 0; k < 4; ++k) sum[k] += sums[pick[k]];
    if (!single) {
      for (int k = 0; k < 4; ++k) count[k] += counts[pick[k]];
    }
    i += 4;
  }
  while (i < n) {
    uint64_t pick[2];
    if (!picker.pair(pick[0], pick[1])) continue;
    for (int k = 0; k < 2 && i < n; ++k, ++i) {
      sum[k] += sums[pick[k]];
      count[k] += counts[pick[k]];
    }
  }
  const double all = sum[0] + sum[1] + (sum[2] + sum[3]);
  return all / (single ? static_cast<double>(n) : count[0] + count[1] + (count[2] + count[3]));
}

}  // namespace

Units group_units(std::span<const double> values, std::span<const std::string> names) {
  Units out;
  if (names.empty()) {
    out.sums.assign(values.begin(), values.end());
    out.counts.assign(values.size(), 1.0);
    return out;
  }
  HAY_CHECK(names.size() == values.size());
  std::map<std::string_view, std::pair<double, double>> by_name;
  for (size_t i = 0; i < values.size(); ++i) {
    auto& [sum, count] = by_name[names[i]];
    sum += values[i];
    count += 1;
  }
  for (const auto& [name, both] : by_name) {
    out.sums.push_back(both.first);
    out.counts.push_back(both.second);
  }
  out.repeat = by_name.size() < values.size();
  return out;
}

std::vector<double> bootstrap_means(std::span<const double> sums, std::span<const double> counts,
                                    const BootstrapOptions& options) {
  HAY_CHECK(sums.size() == counts.size() && !sums.empty() && sums.size() < (uint64_t{1} << 32) &&
            options.resamples >= 1);
  const bool single = std::all_of(counts.begin(), counts.end(), [](double c) { return c == 1; });
  const std::optional<Distinct> distinct = few_distinct(sums, counts);
  Rng seeds(options.seed, "bootstrap");
  std::vector<uint64_t> streams(static_cast<size_t>(options.resamples));
  for (uint64_t& stream : streams) stream = seeds.next();
  std::vector<double> draws(streams.size());
  const auto grain = static_cast<int64_t>(1 + 2'000'000 / sums.size());
  parallel_for(options.resamples, grain, [&](int64_t begin, int64_t end) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      Rng rng(streams[r]);
      draws[r] = distinct ? draw_counts(*distinct, static_cast<int64_t>(sums.size()), rng)
                          : draw_units(sums, counts, single, rng);
    }
  });
  std::sort(draws.begin(), draws.end());
  return draws;
}

std::optional<Interval> bca_bootstrap(std::span<const double> sums, std::span<const double> counts,
                                      const BootstrapOptions& options) {
  HAY_CHECK(sums.size() == counts.size());
  if (sums.size() < 2) return std::nullopt;
  const std::vector<double> draws = bootstrap_means(sums, counts, options);
  if (draws.front() == draws.back()) return std::nullopt;
  const double estimate = total(sums) / total(counts);
  // Sums of the same values in another order must still count as equal.
  const double slack = 1e-12 * std::max(std::abs(draws.front()), std::abs(draws.back()));
  double below = 0;
  for (const double draw : draws) below += draw < estimate - slack ? 1.0 : draw <= estimate + slack ? 0.5 : 0.0;
  const double b = static_cast<double>(draws.size());
  // A share of 0 or 1 would put the bias at infinity: half a resample away is as far as it can be known.
  const double bias = normal_quantile(std::clamp(below / b, 0.5 / b, 1 - 0.5 / b));
  const double a = acceleration(sums, counts);
  const auto level = [&](double alpha) {
    const double z = bias + normal_quantile(alpha);
    return normal_cdf(bias + z / (1 - a * z));
  };
  return Interval{quantile(draws, level(options.alpha / 2)), quantile(draws, level(1 - options.alpha / 2))};
}

std::string bootstrap_name(const char* kind, const BootstrapOptions& options) {
  return std::string(kind) + "-b" + std::to_string(options.resamples) + "-splitmix64-seed" +
         std::to_string(options.seed);
}

std::optional<double> unit_stderr(std::span<const double> sums, std::span<const double> counts) {
  const size_t g = sums.size();
  if (g < 2) return std::nullopt;
  const double count = total(counts), ratio = total(sums) / count;
  double square = 0;
  for (size_t i = 0; i < g; ++i) square += std::pow(sums[i] - ratio * counts[i], 2);
  return std::sqrt(square * static_cast<double>(g) / static_cast<double>(g - 1)) / count;
}

}  // namespace hayfork::metrics
