#include "metrics/stats.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace hayfork::metrics {
namespace {

double polynomial(std::span<const double> c, double x) {
  double y = 0;
  for (const double a : c) y = y * x + a;
  return y;
}

double total(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
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

Estimate estimate_mean(std::span<const double> values, std::span<const std::string> clusters,
                       const BootstrapOptions& options) {
  HAY_CHECK(!values.empty());
  const Units grouped = group_units(values, clusters);
  const bool binary = std::all_of(values.begin(), values.end(), [](double v) { return v == 0 || v == 1; });
  const bool constant = std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
  const auto n = static_cast<int64_t>(values.size());
  const auto hits = static_cast<int64_t>(std::llround(total(values)));
  Estimate out{constant ? values[0] : total(values) / static_cast<double>(n), n, {}, {}, {}};
  if (!constant)
    out.stderr_value = grouped.repeat ? unit_stderr(grouped.sums, grouped.counts) : mean_of(values).stderr_value;
  if (out.stderr_value == 0.0) out.stderr_value.reset();  // clusters that agree say nothing about the next one
  if (binary && !grouped.repeat) {
    out.interval = wilson(hits, n);
    out.method = "wilson";
    return out;
  }
  if (!constant) out.interval = bca_bootstrap(grouped.sums, grouped.counts, options);
  if (out.interval) {
    out.method = bootstrap_name("bca", options);
  } else if (binary) {
    out.interval = wilson_share(out.value, static_cast<double>(grouped.sums.size()));
    out.method = "wilson-clusters";
  }
  return out;
}

}  // namespace hayfork::metrics
