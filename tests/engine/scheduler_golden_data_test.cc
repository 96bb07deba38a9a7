// Golden checkpoints through the scheduler. Every case is named here, so that a missing one is seen.
#include <gtest/gtest.h>

#include <string>

#include "tests/support/golden_scheduler.h"
#include "tests/support/paths.h"

namespace hayfork::test {
namespace {

class SchedulerGoldenData : public testing::TestWithParam<std::string> {};

TEST_P(SchedulerGoldenData, GreedyAnswersEqualTheReferenceWhateverTheSwitches) {
  HAY_NEED_DATA(folder, "golden/" + GetParam());
  check_greedy(folder);
}

TEST_P(SchedulerGoldenData, LogitsHaveTheSameBitsWhateverTheSwitches) {
  HAY_NEED_DATA(folder, "golden/" + GetParam());
  check_logit_bits(folder);
}

class SchedulerOrthrosData : public testing::TestWithParam<std::string> {};

TEST_P(SchedulerOrthrosData, ContinuationScoresAndKeysEqualTheReference) {
  HAY_NEED_DATA(folder, "golden/" + GetParam());
  check_continuation(folder);
}

TEST_P(SchedulerOrthrosData, ADepthSweepHasTheSameBitsWithAndWithoutReuse) {
  HAY_NEED_DATA(folder, "golden/" + GetParam());
  check_depth_sweep(folder);
}

const auto kName = [](const testing::TestParamInfo<std::string>& tested) {
  return tested.param.substr(tested.param.find('/') + 1);
};

INSTANTIATE_TEST_SUITE_P(Families, SchedulerGoldenData,
                         testing::Values("hf/gemma2", "hf/gemma3_text", "hf/gemma3_v4_bf16", "hf/gemma4_dense",
                                         "hf/gemma4_moe", "hf/gemma4_ple", "hf/gpt_oss", "hf/gpt_oss_mxfp4",
                                         "hf/llama3_rope", "hf/llama_bf16_sharded", "hf/llama_dynamic",
                                         "hf/llama_longrope", "hf/llama_tied_linear", "hf/llama_v4_bias",
                                         "hf/llama_yarn_factor", "hf/llama_yarn_mscale", "hf/mamba2", "hf/minimax",
                                         "hf/mistral", "hf/mistral_v4_nowindow", "hf/qwen2", "hf/qwen2_v4_swa",
                                         "hf/qwen3", "hf/qwen3_5", "hf/qwen3_5_moe", "hf/qwen3_5_wrapped_bf16",
                                         "hf/qwen3_moe", "hf/qwen3_moe_step2", "hf/qwen3_next", "hf/qwen3_yarn_v4",
                                         "hf/smollm3"),
                         kName);
INSTANTIATE_TEST_SUITE_P(
    Hybrids, SchedulerGoldenData,
    testing::Values("reference/fla_gated_deltanet", "reference/fla_gated_deltanet_hybrid", "reference/fla_gla",
                    "reference/fla_mamba2", "reference/fla_retnet", "reference/hybrid_gdn", "reference/hybrid_headwise",
                    "reference/hybrid_lightning", "reference/hybrid_lightning_normed", "reference/hybrid_mamba2",
                    "reference/hybrid_mixed", "reference/hybrid_swa_1to3", "reference/hybrid_swa_nope",
                    "reference/orthros_h", "reference/orthros_h_switches", "reference/orthros_hybrid"),
    kName);
INSTANTIATE_TEST_SUITE_P(Orthros, SchedulerGoldenData,
                         testing::Values("reference/orthros_llama", "reference/orthros_llama_layers",
                                         "reference/orthros_llama_no_affine", "reference/orthros_llama_wide",
                                         "reference/orthros_qwen3_post", "reference/orthros_qwen3_pre"),
                         kName);
INSTANTIATE_TEST_SUITE_P(Orthros, SchedulerOrthrosData,
                         testing::Values("reference/orthros_llama", "reference/orthros_llama_layers",
                                         "reference/orthros_llama_no_affine", "reference/orthros_llama_wide",
                                         "reference/orthros_qwen3_post", "reference/orthros_qwen3_pre"),
                         kName);

}  // namespace
}  // namespace hayfork::test
