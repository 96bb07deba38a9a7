#include "metrics/stats.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace hayfork::metrics {
namespace {

double polynomial(std::span<const double> c, double x) {
  double y = 0;
  for (const double a : c) y = y * x + a;
  return y;
}

double log_choose(int64_t n, int64_t k) {
  // lgamma writes a global sign; the reentrant form does not.
  int sign = 0;
  return ::lgamma_r(static_cast<double>(n) + 1, &sign) - ::lgamma_r(static_cast<double>(k) + 1, &sign) -
         ::lgamma_r(static_cast<double>(n - k) + 1, &sign);
}

// P(X ≤ k) of Binomial(n, p).
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

// The p at which `tail`, rising in p, reaches `want`.
template <typename Tail>
double solve_probability(Tail tail, double want) {
  double low = 0, high = 1;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = 0.5 * (low + high);
    if (middle == low || middle == high) break;
    (tail(middle) < want ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// NumPy's default quantile: linear between order statistics.
double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const size_t i = std::min(static_cast<size_t>(at), sorted.size() - 1);
  const size_t j = std::min(i + 1, sorted.size() - 1);
  return sorted[i] + (at - static_cast<double>(i)) * (sorted[j] - sorted[i]);
}

double total(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
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

struct Clusters {
  std::vector<double> sums, counts;
  bool repeat = false;
};

Clusters group(std::span<const double> values, std::span<const std::string> names) {
  Clusters out;
  if (names.empty()) {
    out.sums.assign(values.begin(), values.end());
    out.counts.assign(values.size(), 1.0);
    return out;
  }
  HAY_CHECK(names.size() == values.size());
  std::map<std::string_view, std::pair<double, double>> by_name;  // sorted: the order of rows does not matter
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

// Standard error of Σ sums ÷ Σ counts over clusters (linearised, with g/(g−1)).
std::optional<double> cluster_stderr(const Clusters& c) {
  const size_t g = c.sums.size();
  if (g < 2) return std::nullopt;
  const double count = total(c.counts), ratio = total(c.sums) / count;
  double square = 0;
  for (size_t i = 0; i < g; ++i) square += std::pow(c.sums[i] - ratio * c.counts[i], 2);
  return std::sqrt(square * static_cast<double>(g) / static_cast<double>(g - 1)) / count;
}

}  // namespace

double normal_cdf(double z) {
  return 0.5 * std::erfc(-z / std::sqrt(2.0));
}

double normal_quantile(double p) {
  HAY_CHECK(p > 0 && p < 1);
  static constexpr double kA[] = {2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4,
                                  4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3,
                                  1.3314166789178437745e2, 3.3871328727963666080e0};
  static constexpr double kB[] = {
      5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
      5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0};
  static constexpr double kC[] = {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                                  1.27045825245236838258e0,  3.64784832476320460504e0,  5.76949722146069140550e0,
                                  4.63033784615654529590e0,  1.42343711074968357734e0};
  static constexpr double kD[] = {
      1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
      6.89767334985100004550e-1, 1.67638483018380384940e0,  2.05319162663775882187e0,  1.0};
  static constexpr double kE[] = {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                                  2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e0,
                                  5.46378491116411436990e0,  6.65790464350110377720e0};
  static constexpr double kF[] = {
      2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
      1.48753612908506148525e-2,  1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0};
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double z =
      r <= 5 ? polynomial(kC, r - 1.6) / polynomial(kD, r - 1.6) : polynomial(kE, r - 5) / polynomial(kF, r - 5);
  return q < 0 ? -z : z;
}

Interval wilson_share(double p, double n, double z) {
  HAY_CHECK(n > 0 && p >= 0 && p <= 1);
  const double z2 = z * z;
  const double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = z * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n);
  return {p == 0 ? 0.0 : std::max(0.0, centre - half), p == 1 ? 1.0 : std::min(1.0, centre + half)};
}

Interval wilson(int64_t hits, int64_t n, double z) {
  HAY_CHECK(n >= 1 && hits >= 0 && hits <= n);
  return wilson_share(static_cast<double>(hits) / static_cast<double>(n), static_cast<double>(n), z);
}

Interval exact_binomial(int64_t hits, int64_t n, double alpha) {
  HAY_CHECK(n >= 1 && hits >= 0 && hits <= n);
  Interval out{0, 1};
  if (hits > 0) out.low = solve_probability([&](double p) { return 1 - binomial_cdf(hits - 1, n, p); }, alpha / 2);
  if (hits < n) out.high = solve_probability([&](double p) { return 1 - binomial_cdf(hits, n, p); }, 1 - alpha / 2);
  return out;
}

Mean mean_of(std::span<const double> values) {
  HAY_CHECK(!values.empty());
  const double n = static_cast<double>(values.size());
  Mean out{total(values) / n, std::nullopt};
  if (values.size() >= 2) {
    double square = 0;
    for (const double v : values) square += (v - out.mean) * (v - out.mean);
    out.stderr_value = std::sqrt(square / (n - 1) / n);
  }
  return out;
}

std::optional<Interval> bca_bootstrap(std::span<const double> sums, std::span<const double> counts,
                                      const BootstrapOptions& options) {
  HAY_CHECK(sums.size() == counts.size() && options.resamples >= 1);
  const size_t n = sums.size();
  if (n < 2) return std::nullopt;
  const double estimate = total(sums) / total(counts);
  Rng rng(options.seed, "bootstrap");
  std::vector<double> draws(options.resamples);
  double below = 0;
  for (double& draw : draws) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < n; ++i) {
      const size_t pick = rng.below(n);
      sum += sums[pick];
      count += counts[pick];
    }
    draw = sum / count;
    below += draw < estimate ? 1.0 : draw == estimate ? 0.5 : 0.0;
  }
  std::sort(draws.begin(), draws.end());
  if (draws.front() == draws.back()) return std::nullopt;
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

Estimate estimate_mean(std::span<const double> values, std::span<const std::string> clusters,
                       const BootstrapOptions& options) {
  HAY_CHECK(!values.empty());
  const Clusters grouped = group(values, clusters);
  const bool binary = std::all_of(values.begin(), values.end(), [](double v) { return v == 0 || v == 1; });
  const bool constant = std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
  const auto n = static_cast<int64_t>(values.size());
  const auto hits = static_cast<int64_t>(std::llround(total(values)));
  Estimate out{constant ? values[0] : total(values) / static_cast<double>(n), n, {}, {}, {}};
  if (!constant) out.stderr_value = grouped.repeat ? cluster_stderr(grouped) : mean_of(values).stderr_value;
  if (out.stderr_value == 0.0) out.stderr_value.reset();  // clusters that agree say nothing about the next one
  if (binary && !grouped.repeat) {
    out.interval = wilson(hits, n);
    out.method = "wilson";
    return out;
  }
  if (!constant) out.interval = bca_bootstrap(grouped.sums, grouped.counts, options);
  if (out.interval) {
    out.method = "bca-b" + std::to_string(options.resamples) + "-seed" + std::to_string(options.seed);
  } else if (binary) {
    out.interval = wilson_share(out.value, static_cast<double>(grouped.sums.size()));
    out.method = "wilson-clusters";
  }
  return out;
}

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
  const double observed = std::abs(total(d));
  double scale = 0;
  for (const double x : d) scale += std::abs(x);
  const double reach = observed - 1e-12 * scale;  // sums in another order must still count as equal
  if (static_cast<int>(d.size()) <= options.exact_up_to) {
    const uint64_t patterns = uint64_t{1} << d.size();
    uint64_t hits = 0;
    for (uint64_t mask = 0; mask < patterns; ++mask) {
      double sum = 0;
      for (size_t i = 0; i < d.size(); ++i) sum += mask >> i & 1 ? -d[i] : d[i];
      hits += std::abs(sum) >= reach;
    }
    return {static_cast<double>(hits) / static_cast<double>(patterns), true};
  }
  Rng rng(options.seed, "sign flip");
  int64_t hits = 0;
  for (int r = 0; r < options.resamples; ++r) {
    double sum = 0;
    uint64_t bits = 0;
    for (size_t i = 0; i < d.size(); ++i) {
      if (i % 64 == 0) bits = rng.next();
      sum += bits >> (i % 64) & 1 ? -d[i] : d[i];
    }
    hits += std::abs(sum) >= reach;
  }
  return {static_cast<double>(1 + hits) / static_cast<double>(1 + options.resamples), false};
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> out(p.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    largest = std::max(largest, std::min(1.0, static_cast<double>(p.size() - rank) * p[order[rank]]));
    out[order[rank]] = largest;
  }
  return out;
}

}  // namespace hayfork::metrics
