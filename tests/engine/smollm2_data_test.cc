// A real model through Engine::open, against Hugging Face transformers and lm_eval in float32.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/text/tokenizer.h"
#include "tests/support/paths.h"
#include "tests/support/smollm2.h"

namespace hayfork::engine {
namespace {

constexpr double kTolerance = 1e-3;  // of logits and log-probabilities; transformers' own spread over machines is 1e-4

// Opened once for all tests of the file.
Engine* open(const std::filesystem::path& folder) {
  static const std::unique_ptr<Engine> engine = [&] {
    EngineOptions options;
    options.device = "cpu";
    options.dtype = "f32";
    options.weights_digest = false;
    return Engine::open(folder, options);
  }();
  return engine.get();
}

nlohmann::json golden(const std::filesystem::path& path) {
  return nlohmann::json::parse(test::read_xz(path));
}

void compare_row(const float* row, int32_t vocab, const nlohmann::json& text, size_t position) {
  const auto ids = text["top10_ids"][position].get<std::vector<int32_t>>();
  const auto logits = text["top10_logits"][position].get<std::vector<double>>();
  double top = row[0], sum = 0;
  int32_t argmax = 0;
  for (int32_t v = 0; v < vocab; ++v) {
    if (row[v] > top) {
      top = row[v];
      argmax = v;
    }
  }
  for (int32_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]) - top);
  EXPECT_NEAR(top + std::log(sum), text["logsumexp"][position].get<double>(), kTolerance);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_NEAR(row[ids[i]], logits[i], kTolerance) << "position " << position;
  if (logits[0] - logits[1] > 2 * kTolerance) {
    EXPECT_EQ(argmax, ids[0]) << "position " << position;
  }
}

TEST(SmolLm2, LogitsEqualTransformers) {
  HAY_NEED_SMOLLM2(folder);
  HAY_NEED_DATA(path, "golden/smollm2/logits.json.xz");
  const nlohmann::json want = golden(path);
  Engine* engine = open(folder);
  std::vector<std::vector<int32_t>> sequences;
  std::vector<Request> requests;
  for (const auto& text : want["texts"]) {
    sequences.push_back(text["ids"].get<std::vector<int32_t>>());
    requests.push_back(NllRequest{sequences.back(), {}});
    EXPECT_EQ(engine->tokenizer()->encode(text["text"].get<std::string>()), sequences.back());
  }
  engine->logits_of(sequences, true, [&](size_t i, int32_t position, const float* row) {
    compare_row(row, engine->info().vocab_size, want["texts"][i], static_cast<size_t>(position));
  });
  const auto check = [&](const Answer& answer) {
    const auto& nll = std::get<NllAnswer>(answer.result).nll;
    const auto& theirs = want["texts"][answer.index]["next_nll"];
    ASSERT_LE(nll.size(), theirs.size());
    for (size_t i = 0; i < nll.size(); ++i) EXPECT_NEAR(nll[i], theirs[i].get<double>(), kTolerance);
  };
  engine->answer(requests, check, StopFlag{});
}

TEST(SmolLm2, GreedyAnswersEqualTransformers) {
  HAY_NEED_SMOLLM2(folder);
  HAY_NEED_DATA(path, "golden/smollm2/logits.json.xz");
  const nlohmann::json want = golden(path);
  Engine* engine = open(folder);
  std::vector<Request> requests;
  for (const auto& entry : want["greedy"]) {
    GenerateRequest request{.prompt = entry["prompt_ids"].get<std::vector<int32_t>>(), .ignore_eos = true};
    request.max_new_tokens = static_cast<int32_t>(entry["new_ids"].size());
    requests.emplace_back(request);
  }
  const auto check = [&](const Answer& answer) {
    const auto& got = std::get<GenerateAnswer>(answer.result);
    const auto& entry = want["greedy"][answer.index];
    EXPECT_EQ(got.ids, entry["new_ids"].get<std::vector<int32_t>>()) << entry["name"];
    EXPECT_EQ(engine->tokenizer()->decode(got.ids, true), got.text);
    for (size_t i = 0; i < got.logprobs.size(); ++i) {
      EXPECT_NEAR(got.logprobs[i], entry["logprobs"][i].get<double>(), kTolerance);
    }
  };
  engine->answer(requests, check, StopFlag{});
}

// With end-of-text ids honoured the answer ends at the first; a stop string ends it earlier, inside a token.
TEST(SmolLm2, AnswersEndAtStopStringsAndEndOfText) {
  HAY_NEED_SMOLLM2(folder);
  HAY_NEED_DATA(path, "golden/smollm2/logits.json.xz");
  const nlohmann::json want = golden(path);
  Engine* engine = open(folder);
  std::vector<Request> requests;
  for (const auto& entry : want["greedy"]) {
    requests.push_back(
        GenerateRequest{.prompt = entry["prompt_ids"].get<std::vector<int32_t>>(), .max_new_tokens = 48});
  }
  GenerateRequest stopped = std::get<GenerateRequest>(requests[0]);
  stopped.stops = {"an eye: re", "man eye: re"};
  requests.emplace_back(stopped);
  const auto check = [&](const Answer& answer) {
    const auto& got = std::get<GenerateAnswer>(answer.result);
    if (answer.index == want["greedy"].size()) {
      EXPECT_EQ(got.text, " the primary colours of the hu");
      EXPECT_EQ(got.finish, Finish::stop);
      EXPECT_EQ(got.stop, "man eye: re");
      return;
    }
    const auto& entry = want["greedy"][answer.index];
    if (entry["first_eos"].is_null()) {
      EXPECT_EQ(got.finish, Finish::length);
      EXPECT_EQ(got.ids.size(), 48u);
    } else {
      EXPECT_EQ(got.finish, Finish::eos);
      EXPECT_EQ(got.ids.size(), entry["first_eos"].get<size_t>() + 1);
    }
  };
  engine->answer(requests, check, StopFlag{});
}

TEST(SmolLm2, LoglikelihoodsEqualLmEval) {
  HAY_NEED_SMOLLM2(folder);
  HAY_NEED_DATA(tasks, "golden/lm_eval");
  Engine* engine = open(folder);
  for (const std::string name : {"arc_easy", "copa", "winogrande"}) {
    const test::LmEvalTask task = test::read_lm_eval(tasks / (name + ".jsonl.xz"));
    const test::LmEvalDifference difference = test::compare_lm_eval(*engine, task);
    std::printf("  %-20s %d scores, largest difference %.1e\n", name.c_str(), difference.n_scores, difference.largest);
    EXPECT_GT(difference.n_scores, 50);
    EXPECT_LE(difference.largest, kTolerance) << name;
    EXPECT_EQ(difference.n_flags, 0) << name;
  }
}

}  // namespace
}  // namespace hayfork::engine
