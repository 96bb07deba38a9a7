// The checkpoints of tests/golden/models through the scheduler, and Engine::open on them.
#include <gtest/gtest.h>

#include <string>

#include "engine/engine.h"
#include "engine/scheduler.h"
#include "tests/support/golden_model.h"
#include "tests/support/golden_scheduler.h"
#include "tests/support/paths.h"

namespace hayfork::test {
namespace {

std::filesystem::path model(const std::string& name) {
  return source_dir() / "tests/golden/models" / name;
}

class SchedulerGolden : public testing::TestWithParam<std::string> {};

TEST_P(SchedulerGolden, GreedyAnswersEqualTheReferenceWhateverTheSwitches) {
  check_greedy(model(GetParam()));
}

TEST_P(SchedulerGolden, LogitsHaveTheSameBitsWhateverTheSwitches) {
  check_logit_bits(model(GetParam()));
}

const auto kName = [](const testing::TestParamInfo<std::string>& tested) { return tested.param; };

INSTANTIATE_TEST_SUITE_P(Families, SchedulerGolden,
                         testing::Values("gemma2", "gemma4_ple", "gpt_oss_mxfp4", "hybrid_mixed", "llama_longrope",
                                         "mistral", "orthros_h_switches", "orthros_qwen3_pre", "qwen3_next"),
                         kName);

TEST(SchedulerOrthros, ADepthSweepHasTheSameBitsWithAndWithoutReuse) {
  check_depth_sweep(model("orthros_qwen3_pre"));
}

TEST(SchedulerRecurrent, AStateLargerThanTheMemoryFailsTheRequestAlone) {
  GoldenModel golden(model("mamba2"), engine::DType::f32);
  engine::SchedulerOptions options;
  options.memory.chunk = 16;
  options.memory.batch_size = 1;
  options.memory.bytes = 64;
  engine::Scheduler scheduler(golden.model(), golden.context(), nullptr, options);
  const std::vector<engine::Request> requests{engine::NllRequest{.tokens = {1, 2, 3, 4}}};
  int n = 0;
  const auto check = [&](const engine::Answer& answer) {
    ++n;
    const auto* failure = std::get_if<engine::Failure>(&answer.result);
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->code, ErrorCode::resource);
    EXPECT_NE(failure->message.find("memory"), std::string::npos) << failure->message;
  };
  scheduler.answer(requests, check, StopFlag{});
  EXPECT_EQ(n, 1);
}

// ---- Engine::open

engine::EngineOptions cpu_options() {
  engine::EngineOptions options;
  options.device = "cpu";
  options.dtype = "f32";
  options.threads = 1;
  return options;
}

TEST(Engine, OpensAFolderWithoutATokenizerForRequestsOfIds) {
  const auto engine = engine::Engine::open(model("llama3_rope"), cpu_options());
  EXPECT_EQ(engine->tokenizer(), nullptr);
  const engine::ModelInfo& info = engine->info();
  EXPECT_EQ(info.device, "cpu");
  EXPECT_EQ(info.dtype, "f32");
  EXPECT_EQ(info.kv_dtype, "f32");
  EXPECT_EQ(info.weights_sha256.size(), 64u);
  EXPECT_EQ(info.config_sha256.size(), 64u);
  EXPECT_EQ(info.tokenizer_sha256, "");
  EXPECT_EQ(info.numerics_id.rfind("hayfork/", 0), 0u) << info.numerics_id;
  const std::vector<engine::Request> requests{engine::GenerateRequest{.prompt = {1, 2, 3}, .max_new_tokens = 4},
                                              engine::GenerateRequest{.prompt = {1}, .stops = {"x"}}};
  const engine::WorkPlan plan = engine->plan(requests);
  EXPECT_EQ(plan.n_requests, 2);
  EXPECT_EQ(plan.new_tokens, 4);
  int n_answers = 0, n_failures = 0;
  engine->answer(
      requests,
      [&](const engine::Answer& answer) {
        ++n_answers;
        if (std::holds_alternative<engine::Failure>(answer.result)) ++n_failures;
      },
      StopFlag{});
  EXPECT_EQ(n_answers, 2);
  EXPECT_EQ(n_failures, 1);  // stop strings without a tokenizer
  const engine::EngineStats stats = engine->stats();
  EXPECT_GE(stats.rows_base, 3);
  EXPECT_GT(stats.busy, 0);
  EXPECT_LE(stats.busy, 1);
  EXPECT_LE(stats.peak_bytes, stats.planned_bytes + (1 << 20));
}

TEST(Engine, RefusesOptionsItDoesNotKnow) {
  const auto message = [](const engine::EngineOptions& options, const std::filesystem::path& folder) -> std::string {
    try {
      engine::Engine::open(folder, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "opened";
  };
  for (const std::string device : {"gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1"}) {
    engine::EngineOptions options = cpu_options();
    options.device = device;
    EXPECT_NE(message(options, model("mistral")).find("--device " + device), std::string::npos);
  }
  engine::EngineOptions options = cpu_options();
  options.dtype = "f16";
  EXPECT_NE(message(options, model("mistral")).find("--dtype f16"), std::string::npos);
  options = cpu_options();
  options.kv_dtype = "fp8";
  EXPECT_NE(message(options, model("mistral")).find("--kv-dtype fp8"), std::string::npos);
  options = cpu_options();
  options.batch_size = -1;
  EXPECT_NE(message(options, model("mistral")).find("batch size"), std::string::npos);
  options = cpu_options();
  options.tokenizer = model("mistral") / "tokenizer.json";
  EXPECT_NE(message(options, model("mistral")), "opened");
  EXPECT_NE(message(cpu_options(), model("no such model")).find("no such model"), std::string::npos);
}

TEST(Engine, GivesKeysOfLayersThatKeepThem) {
  const auto engine = engine::Engine::open(model("mistral"), cpu_options());
  const std::vector<int32_t> ids{1, 2, 3};
  std::vector<float> k, v;
  engine->kv(ids, 0, k, v);
  EXPECT_EQ(k.size() % 3, 0u);
  EXPECT_GT(k.size(), 0u);
  EXPECT_THROW(engine->kv(ids, 99, k, v), Error);
  EXPECT_THROW(engine->kv(ids, -1, k, v), Error);
  const std::vector<int32_t> bad{1, 1 << 20};
  EXPECT_THROW(engine->kv(bad, 0, k, v), Error);
}

}  // namespace
}  // namespace hayfork::test
