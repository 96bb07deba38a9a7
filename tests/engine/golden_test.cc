// The checkpoints of tests/golden/models: a clone alone proves that every family computes what its reference does.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/golden_checks.h"
#include "tests/support/golden_model.h"
#include "tests/support/paths.h"

namespace hayfork::test {
namespace {

class Golden : public testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path folder() const { return source_dir() / "tests/golden/models" / GetParam(); }
};

TEST_P(Golden, LogitsEqualTheReference) {
  check_golden(folder(), 2e-5);
}

TEST_P(Golden, Bf16ErrorIsNoLargerThanTheReferences) {
  check_golden_bf16(folder());
}

const auto kName = [](const testing::TestParamInfo<std::string>& info) { return info.param; };

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Values("fla_gla", "gemma2", "gemma3_v4_bf16", "gemma4_ple", "gpt_oss_mxfp4",
                                         "hybrid_mixed", "llama3_rope", "llama_bf16_sharded", "llama_longrope",
                                         "mamba2", "minimax", "mistral", "orthros_h_switches", "orthros_qwen3_pre",
                                         "qwen2", "qwen3_5_wrapped_bf16", "qwen3_moe", "qwen3_next", "smollm3"),
                         kName);

TEST(GoldenFolder, HoldsNoCaseThatIsNotTested) {
  EXPECT_EQ(golden_cases(source_dir() / "tests/golden/models").size(), 19u);
}

}  // namespace
}  // namespace hayfork::test
