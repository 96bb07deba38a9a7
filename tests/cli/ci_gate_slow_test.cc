// The gate of docs/ci as a CI system runs it: a planted regression fails, a rerun without it passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::cli {
namespace {

TEST(CiGate, FailsOnAPlantedRegressionAndPassesOnARerun) {
  test::ProcessOptions options;
  options.cwd = test::source_dir();
  options.environment["HAYFORK"] = test::binary().string();
  const test::ProcessResult result = test::run_process(test::source_dir() / "scripts/ci_gate_test.sh", {}, options);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("fails on a planted regression and passes on a rerun"));
}

}  // namespace
}  // namespace hayfork::cli
