// Reference numbers: SciPy 1.17 (binomtest, norm.ppf, permutation_test, bootstrap) unless another source is named.
#include "metrics/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace hayfork::metrics {
namespace {

TEST(Wilson, MatchesScipy) {
  struct Case {
    int64_t hits, n;
    double low, high;
  };
  for (const Case& c : {Case{0, 10, 0, 0.27753279986288926}, Case{7, 10, 0.39677814746114526, 0.892208732593699},
                        Case{10, 10, 0.7224672001371109, 1}, Case{93, 110, 0.7663816228679399, 0.9012134763806012},
                        Case{499, 500, 0.9887592932948532, 0.9996468636054407}}) {
    const Interval i = wilson(c.hits, c.n);
    EXPECT_NEAR(i.low, c.low, 1e-12) << c.hits << "/" << c.n;
    EXPECT_NEAR(i.high, c.high, 1e-12) << c.hits << "/" << c.n;
  }
}

TEST(NormalQuantile, MatchesScipyIntoTheTails) {
  EXPECT_NEAR(normal_quantile(1e-300), -37.0470962993612, 1e-12);
  EXPECT_NEAR(normal_quantile(1e-10), -6.361340902404056, 1e-13);
  EXPECT_NEAR(normal_quantile(0.01), -2.3263478740408408, 1e-14);
  EXPECT_EQ(normal_quantile(0.5), 0);
  EXPECT_NEAR(normal_quantile(0.7), 0.5244005127080407, 1e-15);
  EXPECT_NEAR(normal_quantile(0.975), kZ95, 1e-14);
  EXPECT_NEAR(normal_quantile(1 - 1e-9), 5.997807019601637, 1e-12);
}

TEST(MeanOf, HasNoStandardErrorForOneValue) {
  const std::vector<double> one = {0.25}, four = {1, 2, 3, 6};
  EXPECT_EQ(mean_of(one).mean, 0.25);
  EXPECT_FALSE(mean_of(one).stderr_value);
  EXPECT_DOUBLE_EQ(mean_of(four).mean, 3);
  EXPECT_DOUBLE_EQ(*mean_of(four).stderr_value, std::sqrt(14.0 / 3 / 4));
}

// The limits are SciPy's means over 200 seeds; the tolerance is three of its Monte-Carlo standard deviations.
TEST(Bootstrap, BcaAgreesWithScipyWithinMonteCarloError) {
  const std::vector<double> flat = {0.1,  0.9,  0.3,  0.55, 0.7, 0.2,  1.0,  1.0, 0.0,  0.45,
                                    0.65, 0.05, 0.95, 0.35, 0.8, 0.12, 0.77, 0.5, 0.61, 0.29};
  std::vector<double> skewed = {0.1, 0.9, 0.3, 0.55, 3.7, 0.2, 1.0, 1.0, 0.0, 0.45, 2.65, 0.05};
  for (double& x : skewed) x = std::exp(x);
  const auto a = bca_bootstrap(flat, std::vector<double>(flat.size(), 1.0));
  ASSERT_TRUE(a);
  EXPECT_NEAR(a->low, 0.37418546828, 3 * 0.0021951717);
  EXPECT_NEAR(a->high, 0.65414548953, 3 * 0.0022725705);
  const auto b = bca_bootstrap(skewed, std::vector<double>(skewed.size(), 1.0));
  ASSERT_TRUE(b);
  EXPECT_NEAR(b->low, 1.87330939985, 3 * 0.0277517224);
  EXPECT_NEAR(b->high, 18.1050146192, 3 * 0.457496064);
}

TEST(Bootstrap, IsTheSameForTheSameSeedOnly) {
  const std::vector<double> x = {1, 2, 3, 4, 9}, ones(5, 1.0);
  const auto a = bca_bootstrap(x, ones, {.resamples = 500, .seed = 1}),
             b = bca_bootstrap(x, ones, {.resamples = 500, .seed = 1}),
             c = bca_bootstrap(x, ones, {.resamples = 500, .seed = 2});
  EXPECT_EQ(a->low, b->low);
  EXPECT_EQ(a->high, b->high);
  EXPECT_TRUE(a->low != c->low || a->high != c->high);
}

TEST(EstimateMean, UsesWilsonOnlyForIndependentZerosAndOnes) {
  const std::vector<double> binary = {1, 0, 1, 1};
  EXPECT_EQ(estimate_mean(binary).method, "wilson");
  EXPECT_DOUBLE_EQ(estimate_mean(binary).interval->low, wilson(3, 4).low);
  const std::vector<std::string> clusters = {"a", "a", "b", "c"}, alone = {"a", "b", "c", "d"};
  EXPECT_EQ(estimate_mean(binary, alone).method, "wilson");
  EXPECT_EQ(estimate_mean(binary, clusters).method, "bca-b10000-splitmix64-seed0");
  const std::vector<double> graded = {0.5, 0.25, 1, 0};
  EXPECT_EQ(estimate_mean(graded).method, "bca-b10000-splitmix64-seed0");
}

TEST(EstimateMean, RepeatedClustersWidenTheInterval) {
  std::vector<double> values;
  std::vector<std::string> clusters;
  for (int c = 0; c < 12; ++c)
    for (int i = 0; i < 10; ++i) {
      values.push_back(c % 3 == 0 ? 0 : 1);
      clusters.push_back("c" + std::to_string(c));
    }
  const Estimate grouped = estimate_mean(values, clusters), apart = estimate_mean(values);
  EXPECT_GT(grouped.interval->high - grouped.interval->low, 2 * (apart.interval->high - apart.interval->low));
  EXPECT_GT(*grouped.stderr_value, 2 * *apart.stderr_value);
}

TEST(EstimateMean, NeverClaimsCertaintyFromEqualValues) {
  const std::vector<double> right = {1, 1, 1, 1}, graded = {0.5, 0.5};
  const std::vector<std::string> two = {"a", "a", "b", "b"};
  EXPECT_FALSE(estimate_mean(right).stderr_value);
  EXPECT_DOUBLE_EQ(estimate_mean(right, two).interval->low, wilson(2, 2).low);
  EXPECT_EQ(estimate_mean(right, two).method, "wilson-clusters");
  EXPECT_FALSE(estimate_mean(graded).interval);
  // Every cluster has one right of two: the bootstrap would give [0.5, 0.5] and a standard error of 0.
  const std::vector<double> halves = {1, 0, 0, 1};
  const Estimate same = estimate_mean(halves, two);
  EXPECT_EQ(same.method, "wilson-clusters");
  EXPECT_DOUBLE_EQ(same.interval->low, wilson(1, 2).low);
  EXPECT_FALSE(same.stderr_value);
}

}  // namespace
}  // namespace hayfork::metrics
