#include "metrics/scaling_fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hayfork::metrics {
namespace {

std::vector<ScalingPoint> exact_points(double a, double alpha, double b, double beta) {
  std::vector<ScalingPoint> out;
  for (const double n : {15e6, 31e6, 65e6}) {
    for (const double m : {100.0, 200.0, 300.0, 400.0, 500.0, 1000.0})
      out.push_back({n, n * m, a * std::pow(n, -alpha) + b * std::pow(n * m, -beta)});
  }
  return out;
}

TEST(FitScaling, RecoversALawWithoutNoise) {
  const auto points = exact_points(200, 0.3, 400, 0.25);
  const ScalingFit fit = fit_scaling(points);
  EXPECT_NEAR(std::exp(fit.log_a) / 200, 1, 1e-4);
  EXPECT_NEAR(std::exp(fit.log_b) / 400, 1, 1e-4);
  EXPECT_NEAR(fit.alpha, 0.3, 3e-5);
  EXPECT_NEAR(fit.beta, 0.25, 3e-5);
  EXPECT_GT(goodness(fit, points).r2, 1 - 1e-9);
  EXPECT_FALSE(fit.alpha_at_bound || fit.beta_at_bound);
}

TEST(FitScaling, OneWildPointBarelyMovesIt) {
  auto points = exact_points(200, 0.3, 400, 0.25);
  points[7].loss *= 1.5;
  const ScalingFit fit = fit_scaling(points);
  EXPECT_NEAR(fit.predict(31e6, 31e8), exact_points(200, 0.3, 400, 0.25)[6].loss, 0.02);
}

TEST(FitScaling, SaysThatAnExponentLiesAtItsBound) {
  auto points = exact_points(200, 0.3, 400, 0.25);
  for (ScalingPoint& p : points) p.loss = 1 + 400 * std::pow(p.d, -0.25);  // N says nothing
  EXPECT_TRUE(fit_scaling(points).alpha_at_bound);
}

TEST(BootstrapScaling, IsTheSameEveryTimeAndSpreads) {
  auto points = exact_points(200, 0.3, 400, 0.25);
  for (size_t i = 0; i < points.size(); ++i) points[i].loss *= 1 + 0.01 * static_cast<double>(i % 3) - 0.01;
  const ScalingFit fit = fit_scaling(points);
  const auto a = bootstrap_scaling(points, fit, 20), b = bootstrap_scaling(points, fit, 20);
  double low = INFINITY, high = -INFINITY;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].alpha, b[i].alpha);
    low = std::min(low, a[i].beta);
    high = std::max(high, a[i].beta);
  }
  EXPECT_LT(low, high);
}

TEST(Goodness, OfAConstantIsOfTheMean) {
  const ScalingFit flat{.log_a = std::log(2.0), .log_b = -800};
  const std::vector<ScalingPoint> points = {{1, 1, 1}, {1, 1, 3}};
  const Goodness g = goodness(flat, points);
  EXPECT_NEAR(g.r2, 0, 1e-12);
  EXPECT_NEAR(g.rmse, 1, 1e-12);
  EXPECT_NEAR(g.mae, 1, 1e-12);
}

}  // namespace
}  // namespace hayfork::metrics
