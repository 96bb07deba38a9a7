// The law fitted to measured LongPPL of 18 + 6 windowed models, against values computed once in double precision by
// several restarts of another program (L-BFGS-B with α, β ≥ 0).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "metrics/scaling_fit.h"
#include "tests/support/paths.h"

namespace hayfork::metrics {
namespace {

TEST(FitScaling, EqualsTheReferenceOnMeasuredPoints) {
  HAY_NEED_DATA(file, "longppl/scaling/swa128_longppl.tsv");
  std::ifstream in(file);
  std::string line, size, tokens;
  std::getline(in, line);
  std::vector<ScalingPoint> fitted, held_out;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    double n = 0, longppl = 0;
    fields >> size >> tokens >> n >> longppl;
    const double times = std::stod(tokens);
    const ScalingPoint point{n, n * times, std::log(longppl)};
    if (size == "S4") held_out.push_back(point);
    if (size == "S1" ? times > 150 : size == "S2" || size == "S3") fitted.push_back(point);
  }
  ASSERT_EQ(fitted.size(), 17u);
  ASSERT_EQ(held_out.size(), 6u);
  const ScalingFit fit = fit_scaling(fitted);
  EXPECT_NEAR(fit.log_a, 7.959555, 2e-5);
  EXPECT_NEAR(fit.log_b, 4.414938, 2e-5);
  EXPECT_NEAR(fit.alpha, 0.474245, 2e-6);
  EXPECT_NEAR(fit.beta, 0.174486, 2e-6);
  EXPECT_NEAR(fit.objective, 1.951552e-4, 1e-10);
  EXPECT_NEAR(goodness(fit, fitted).r2, 0.988059, 1e-6);
  EXPECT_NEAR(goodness(fit, held_out).r2, 0.978982, 1e-6);
  EXPECT_NEAR(goodness(fit, held_out).rmse, 0.022351, 1e-6);
}

}  // namespace
}  // namespace hayfork::metrics
