// Every statistic beside SciPy and statsmodels (scripts/make_statistics_golden.py): 1e-9, bootstraps within three
// Monte-Carlo standard errors.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "metrics/binomial.h"
#include "metrics/paired.h"
#include "metrics/stats.h"
#include "tests/support/paths.h"

namespace hayfork::metrics {
namespace {

using nlohmann::json;
using Values = std::vector<double>;

Values pair(const Interval& i) {
  return {i.low, i.high};
}
int64_t whole(const json& value, size_t i) {
  return value.at(i).get<int64_t>();
}
Units units_of(const json& in) {
  return group_units(in.at("values").get<Values>(), in.at("clusters").get<std::vector<std::string>>());
}

const std::map<std::string, Values (*)(const json&)>& statistics() {
  static const std::map<std::string, Values (*)(const json&)> table = {
      {"wilson", [](const json& in) { return pair(wilson(whole(in, 0), whole(in, 1))); }},
      {"normal_quantile", [](const json& in) { return Values{normal_quantile(in.at(0).get<double>())}; }},
      {"normal_cdf", [](const json& in) { return Values{normal_cdf(in.at(0).get<double>())}; }},
      {"binomial_cdf",
       [](const json& in) { return Values{binomial_cdf(whole(in, 0), whole(in, 1), in.at(2).get<double>())}; }},
      {"mcnemar", [](const json& in) { return Values{mcnemar_exact(whole(in, 0), whole(in, 1))}; }},
      {"sign_flip", [](const json& in) { return Values{sign_flip_test(in.get<Values>()).p}; }},
      {"holm", [](const json& in) { return holm(in.get<Values>()); }},
      {"bh", [](const json& in) { return benjamini_hochberg(in.get<Values>()); }},
      {"stderr",
       [](const json& in) {
         const Units u = units_of(in);
         return Values{*unit_stderr(u.sums, u.counts)};
       }},
      {"mde",
       [](const json& in) {
         const Units u = units_of(in);
         return Values{minimal_detectable(*unit_stderr(u.sums, u.counts))};
       }},
      {"bca",
       [](const json& in) { return pair(*bca_bootstrap(in.at("sums").get<Values>(), in.at("counts").get<Values>())); }},
  };
  return table;
}

TEST(StatisticsGolden, EqualScipyAndStatsmodels) {
  std::ifstream file(test::source_dir() / "tests/golden/statistics.json");
  const json golden = json::parse(file);
  ASSERT_GE(golden.at("cases").size(), 60u);
  for (const json& c : golden.at("cases")) {
    SCOPED_TRACE(c.at("kind").get<std::string>() + ": " + c.at("name").get<std::string>());
    const Values got = statistics().at(c.at("kind"))(c.at("in"));
    const json& tolerance = c.at("tolerance");
    ASSERT_EQ(got.size(), c.at("want").size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], c.at("want").at(i).get<double>(), tolerance.is_array() ? tolerance.at(i) : tolerance);
    }
  }
}

}  // namespace
}  // namespace hayfork::metrics
