// What a comparison of two sets of answers says, and when it refuses to say anything.
#include "metrics/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "metrics/binomial.h"

namespace hayfork::metrics {
namespace {

// `worse` losses, `better` wins, the rest equal.
std::vector<double> flips(int worse, int better, int n) {
  std::vector<double> gains(static_cast<size_t>(n), 0.0);
  for (int i = 0; i < worse; ++i) gains[static_cast<size_t>(i)] = -1;
  for (int i = 0; i < better; ++i) gains[static_cast<size_t>(worse + i)] = 1;
  return gains;
}

std::vector<std::string> clusters_of(size_t n, size_t size) {
  std::vector<std::string> names;
  for (size_t i = 0; i < n; ++i) names.push_back("c" + std::to_string(i / size));
  return names;
}

TEST(SignFlip, SampledPAgreesWithMcNemarOnEqualDifferences) {
  const std::vector<double> d = flips(13, 24, 60);  // pairs that agree change nothing
  const PermutationResult r = sign_flip_test(d, {.resamples = 40000, .seed = 3});
  EXPECT_FALSE(r.exact);
  const double p = mcnemar_exact(13, 24);
  EXPECT_NEAR(r.p, p, 4 * std::sqrt(p * (1 - p) / 40000));
}

TEST(SignFlip, IsTheSameForTheSameSeedOnly) {
  std::vector<double> d;
  for (int i = 0; i < 40; ++i) d.push_back(std::sin(i) + 0.1);
  EXPECT_EQ(sign_flip_test(d, {.seed = 1}).p, sign_flip_test(d, {.seed = 1}).p);
  EXPECT_NE(sign_flip_test(d, {.seed = 1}).p, sign_flip_test(d, {.seed = 2}).p);
}

TEST(Bootstrap, DoesNotDependOnThreads) {
  std::vector<double> x;
  for (int i = 0; i < 5000; ++i) x.push_back(std::cos(i));
  const std::vector<double> ones(x.size(), 1.0);
  const int before = current_threads();
  set_threads(1);
  const auto one = bootstrap_means(x, ones, {.resamples = 2000});
  set_threads(3);
  const auto three = bootstrap_means(x, ones, {.resamples = 2000});
  set_threads(before);
  EXPECT_EQ(one, three);
}

TEST(DrawBinomial, HasTheMeanAndVarianceOfItsDistribution) {
  for (const auto& [n, p] : {std::pair<int64_t, double>{7, 0.3}, {1000, 0.004}, {1000, 0.3}, {100'000, 0.93}}) {
    Rng rng(5);
    const int draws = 20000;
    double sum = 0, square = 0;
    for (int i = 0; i < draws; ++i) {
      const auto k = static_cast<double>(draw_binomial(n, p, rng));
      sum += k;
      square += k * k;
    }
    const double mean = static_cast<double>(n) * p, variance = mean * (1 - p);
    EXPECT_NEAR(sum / draws, mean, 4 * std::sqrt(variance / draws)) << n << " " << p;
    const double seen = square / draws - sum / draws * (sum / draws);
    EXPECT_NEAR(seen / variance, 1, 4 * std::sqrt(2.0 / draws) * 1.2) << n << " " << p;
  }
  Rng rng(1);
  EXPECT_EQ(draw_binomial(9, 0, rng), 0);
  EXPECT_EQ(draw_binomial(9, 1, rng), 9);
}

TEST(ComparePaired, PicksTheTestByScoresAndClusters) {
  const std::vector<double> gains = flips(3, 17, 110);
  const PairedResult exact = compare_paired(gains, {}, true);
  EXPECT_EQ(exact.test, "mcnemar-exact");
  EXPECT_NEAR(exact.p, 0.0025768280029296875, 1e-12);
  EXPECT_EQ(exact.n_worse, 3);
  EXPECT_EQ(exact.n_better, 17);
  EXPECT_NEAR(exact.gain, 14.0 / 110, 1e-15);
  EXPECT_EQ(exact.ci_method, "bca-b10000-splitmix64-seed0");
  EXPECT_GT(exact.interval->low, 0);
  EXPECT_EQ(compare_paired(gains, clusters_of(110, 1), true).test, "mcnemar-exact");
  EXPECT_EQ(compare_paired(gains, {}, false).test, "sign-flip-b10000-splitmix64-seed0");
  const PairedResult clustered = compare_paired(gains, clusters_of(110, 10), true);
  EXPECT_EQ(clustered.n_units, 11);
  EXPECT_EQ(clustered.test, "sign-flip-exact");
}

TEST(ComparePaired, ClustersThatMoveTogetherAreWeakerEvidence) {
  std::vector<double> gains(60, 0.0);
  for (size_t i = 0; i < 30; ++i) gains[i] = 1;  // three clusters of ten won everything
  const PairedResult apart = compare_paired(gains, {}, true),
                     together = compare_paired(gains, clusters_of(60, 10), true);
  EXPECT_LT(apart.p, 1e-8);
  EXPECT_EQ(together.p, 0.25);  // 2 of 2^3 sign patterns
  EXPECT_GT(*together.mde, 2 * *apart.mde);
}

TEST(ComparePaired, McNemarWhereItDoesNotApplyIsRefused) {
  PairedOptions options;
  options.test = PairedTest::mcnemar;
  EXPECT_THROW(compare_paired(flips(1, 2, 30), {}, false, options), Error);
  EXPECT_THROW(compare_paired(flips(1, 2, 30), clusters_of(30, 3), true, options), Error);
  EXPECT_EQ(compare_paired(flips(1, 2, 30), {}, true, options).test, "mcnemar-exact");
}

TEST(ComparePaired, EqualDifferencesHaveNoStandardErrorAndNoInterval) {
  const PairedResult all_won = compare_paired(std::vector<double>(30, 1.0), {}, true);
  EXPECT_FALSE(all_won.stderr_value);
  EXPECT_FALSE(all_won.interval);
  EXPECT_FALSE(all_won.mde);
  EXPECT_LT(all_won.p, 1e-8);
  const PairedResult one = compare_paired(std::vector<double>{0.5}, {}, false);
  EXPECT_EQ(one.p, 1);
  EXPECT_EQ(one.n, 1);
}

TEST(Verdict, ComesFromTheAdjustedPAndTheNumberOfPairs) {
  EXPECT_EQ(verdict(compare_paired(flips(0, 0, 5), {}, true), 1, 0.05), "same");
  EXPECT_EQ(verdict(compare_paired(flips(0, 19, 19), {}, true), 1e-5, 0.05), "too few");
  EXPECT_EQ(verdict(compare_paired(flips(0, 20, 20), {}, true), 1e-5, 0.05), "better");
  EXPECT_EQ(verdict(compare_paired(flips(20, 0, 20), {}, true), 1e-5, 0.05), "worse");
  EXPECT_EQ(verdict(compare_paired(flips(20, 0, 20), {}, true), 0.05, 0.05), "same?");
}

TEST(Adjust, NoneKeepsWhatItIsGiven) {
  const std::vector<double> p = {0.04, 0.01};
  EXPECT_EQ(adjust(p, Adjust::none), p);
  EXPECT_EQ(adjust(p, Adjust::holm)[1], 0.02);
  EXPECT_TRUE(holm({}).empty());
  EXPECT_TRUE(benjamini_hochberg({}).empty());
}

}  // namespace
}  // namespace hayfork::metrics
