// How often a comparison of equals is called a difference: 1,000 families of five comparisons for each
// test, kind of score, number of pairs, with and without clusters. A family alarms when a p-value adjusted by Holm is
// below 0.05; at most 6.5 % may. HAYFORK_STUDY=1 prints the table of
// docs/compare.md, and also runs the larger bootstraps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "base/parallel.h"
#include "base/rng.h"
#include "metrics/paired.h"

namespace hayfork::metrics {
namespace {

constexpr int kFamilies = 1000, kTests = 5;
constexpr int kClusterSize = 5;
enum class Score { binary, graded, skewed };
constexpr const char* kScoreNames[] = {"0/1", "graded", "skewed"};

struct Setting {
  PairedTest test;
  const char* name;
  Score score;
  int n;
  bool clustered;
};

// Both models answer with the same distribution given the document; with clusters, documents of one share its ease and
// half of the luck of each model.
double draw(Score score, double ease, double luck) {
  switch (score) {
    case Score::binary:
      return luck < ease ? 1 : 0;
    case Score::graded:
      return std::round(10 * std::min(1.0, 0.5 * (ease + luck))) / 10;
    case Score::skewed:
      return ease * std::exp(2 * luck);
  }
  return 0;
}

double null_p(const Setting& s, Rng& rng) {
  std::vector<double> gains;
  std::vector<std::string> clusters;
  double ease = 0, base_luck = 0, cand_luck = 0;
  for (int i = 0; i < s.n; ++i) {
    const bool fresh = !s.clustered || i % kClusterSize == 0;
    if (fresh) {
      ease = rng.uniform();
      base_luck = rng.uniform();
      cand_luck = rng.uniform();
    }
    const auto luck = [&](double shared) { return s.clustered && rng.uniform() < 0.5 ? shared : rng.uniform(); };
    const double base = draw(s.score, ease, luck(base_luck)), cand = draw(s.score, ease, luck(cand_luck));
    gains.push_back(cand - base);
    if (s.clustered) clusters.push_back("c" + std::to_string(i / kClusterSize));
  }
  PairedOptions options;
  options.test = s.test;
  options.interval = false;
  options.permutation.resamples = 2000;
  options.permutation.seed = rng.next();
  options.bootstrap.resamples = 500;
  options.bootstrap.seed = rng.next();
  return compare_paired(gains, clusters, s.score == Score::binary, options).p;
}

double alarm_rate(const Setting& s) {
  std::vector<int> alarms(kFamilies);
  parallel_for(kFamilies, 1, [&](int64_t begin, int64_t end) {
    for (int64_t family = begin; family < end; ++family) {
      Rng rng(static_cast<uint64_t>(family) * 7919 + static_cast<uint64_t>(s.n), s.name);
      std::vector<double> p;
      for (int t = 0; t < kTests; ++t) p.push_back(null_p(s, rng));
      for (const double adjusted : holm(p)) alarms[static_cast<size_t>(family)] |= adjusted < 0.05;
    }
  });
  return static_cast<double>(std::accumulate(alarms.begin(), alarms.end(), 0)) / kFamilies;
}

TEST(FalseAlarms, AreAtMostSixAndAHalfInAHundred) {
  const bool print = std::getenv("HAYFORK_STUDY") != nullptr;
  struct Tried {
    PairedTest test;
    const char* name;
  };
  for (const Tried& test : {Tried{PairedTest::mcnemar, "mcnemar"}, Tried{PairedTest::permutation, "sign-flip"},
                            Tried{PairedTest::bootstrap, "bootstrap-t"}}) {
    for (const Score score : {Score::binary, Score::graded, Score::skewed}) {
      for (const bool clustered : {false, true}) {
        if (test.test == PairedTest::mcnemar && (score != Score::binary || clustered)) continue;
        for (const int n : {10, 30, 110, 500}) {
          if (test.test == PairedTest::bootstrap && n > 30 && !print) continue;  // a minute of the whole
          const double rate = alarm_rate({test.test, test.name, score, n, clustered});
          if (print)
            std::printf("| %s | %s | %s | %d | %.1f %% |\n", test.name, kScoreNames[static_cast<int>(score)],
                        clustered ? "yes" : "no", n, 100 * rate);
          EXPECT_LE(rate, 0.065) << test.name << " " << kScoreNames[static_cast<int>(score)] << " n " << n
                                 << (clustered ? " in clusters" : "");
        }
      }
    }
  }
}

}  // namespace
}  // namespace hayfork::metrics
