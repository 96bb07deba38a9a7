// SIGKILL at random times, resumed each time: the end is that of a run nobody disturbed. The small form of
// scripts/kill_test.py --kills 50.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::cli {
namespace {

TEST(Kill, EightTimesAndTheDigestIsTheSame) {
  if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "needs python3";
  const std::string script = (test::source_dir() / "scripts" / "kill_test.py").string();
  const std::string model = (test::source_dir() / "demo" / "full").string();
  const test::ProcessResult result =
      test::run_process("/usr/bin/python3", {script, "--binary", test::binary().string(), "--model", model, "--kills",
                                             "8", "--", "--tasks", "niah", "--lengths", "256,512", "--depths",
                                             "0,50,100", "--samples", "4", "--batch-size", "2"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("ok: 8 kills"));
}

}  // namespace
}  // namespace hayfork::cli
