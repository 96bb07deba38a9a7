// The checkpoints of golden/hf and golden/reference: logits against the float64 reference. Every case is named here, so
// that a missing one is seen.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/golden_checks.h"
#include "tests/support/paths.h"

namespace hayfork::test {
namespace {

class GoldenData : public testing::TestWithParam<std::string> {};

TEST_P(GoldenData, LogitsEqualTheReference) {
  HAY_NEED_DATA(folder, "golden/" + GetParam());
  // Recurrences add roundings: the float32 reference itself is up to 8e-6 away.
  const bool recurrent =
      std::string(testing::UnitTest::GetInstance()->current_test_info()->test_suite_name()).starts_with("Recurrent");
  check_golden(folder, recurrent ? 2e-5 : 1e-5);
}

TEST_P(GoldenData, Bf16ErrorIsNoLargerThanTheReferences) {
  HAY_NEED_DATA(folder, "golden/" + GetParam());
  check_golden_bf16(folder);
}

const auto kName = [](const testing::TestParamInfo<std::string>& info) {
  return info.param.substr(info.param.find('/') + 1);
};

INSTANTIATE_TEST_SUITE_P(Softmax, GoldenData,
                         testing::Values("hf/gemma2", "hf/gemma3_text", "hf/gemma3_v4_bf16", "hf/llama3_rope",
                                         "hf/llama_bf16_sharded", "hf/llama_dynamic", "hf/llama_longrope",
                                         "hf/llama_tied_linear", "hf/llama_v4_bias", "hf/llama_yarn_factor",
                                         "hf/llama_yarn_mscale", "hf/mistral", "hf/mistral_v4_nowindow", "hf/qwen2",
                                         "hf/qwen2_v4_swa", "hf/qwen3", "hf/qwen3_yarn_v4", "hf/smollm3"),
                         kName);

INSTANTIATE_TEST_SUITE_P(Orthros, GoldenData,
                         testing::Values("reference/orthros_llama", "reference/orthros_llama_layers",
                                         "reference/orthros_llama_no_affine", "reference/orthros_llama_wide",
                                         "reference/orthros_qwen3_post", "reference/orthros_qwen3_pre",
                                         "reference/sparse_llama_corner", "reference/sparse_qwen3_mean_std",
                                         "reference/sparse_orthros"),
                         kName);

INSTANTIATE_TEST_SUITE_P(Experts, GoldenData,
                         testing::Values("hf/gemma4_dense", "hf/gemma4_moe", "hf/gemma4_ple", "hf/gpt_oss",
                                         "hf/gpt_oss_mxfp4", "hf/qwen3_moe", "hf/qwen3_moe_step2"),
                         kName);

INSTANTIATE_TEST_SUITE_P(
    Recurrent, GoldenData,
    testing::Values("hf/mamba2", "hf/minimax", "hf/qwen3_5", "hf/qwen3_5_moe", "hf/qwen3_5_wrapped_bf16",
                    "hf/qwen3_next", "reference/fla_gated_deltanet", "reference/fla_gated_deltanet_hybrid",
                    "reference/fla_gla", "reference/fla_mamba2", "reference/fla_retnet", "reference/hybrid_gdn",
                    "reference/hybrid_headwise", "reference/hybrid_lightning", "reference/hybrid_lightning_normed",
                    "reference/hybrid_mamba2", "reference/hybrid_mixed", "reference/hybrid_swa_1to3",
                    "reference/hybrid_swa_nope", "reference/orthros_h", "reference/orthros_h_switches",
                    "reference/orthros_hybrid", "reference/sparse_hybrid"),
    kName);

}  // namespace
}  // namespace hayfork::test
