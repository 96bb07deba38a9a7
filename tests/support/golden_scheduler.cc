#include "tests/support/golden_scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "engine/scheduler.h"
#include "tests/support/golden_model.h"

namespace hayfork::test {

using namespace engine;  // NOLINT: a test's source

namespace {

std::vector<SchedulerOptions> switches() {
  std::vector<SchedulerOptions> all;
  for (const auto& [batch, chunk, order, reuse] :
       std::vector<std::tuple<int32_t, int32_t, Order, bool>>{{64, 512, Order::given, true},
                                                              {1, 512, Order::reverse, true},
                                                              {7, 16, Order::shuffle, true},
                                                              {64, 1, Order::planned, true},
                                                              {1, 1, Order::given, false},
                                                              {7, 512, Order::reverse, false},
                                                              {64, 16, Order::shuffle, false}}) {
    SchedulerOptions options;
    options.memory.batch_size = batch;
    options.memory.chunk = chunk;
    options.order = order;
    options.order_seed = 5;
    options.prefix_reuse = reuse;
    options.allow_beyond_window = true;  // llama_dynamic's longest input
    all.push_back(options);
  }
  return all;
}

}  // namespace

void check_greedy(const std::filesystem::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  set_threads(1);  // models this small are slower with more
  GoldenModel golden(folder, DType::f32);
  std::vector<Request> requests;
  std::vector<std::vector<int64_t>> want;
  for (const GoldenModel::Sequence& s : golden.sequences()) {
    // transformers keeps keys rotated by an outdated table there (golden README).
    if (folder.filename() == "llama_dynamic" && s.ids.size() > 64) continue;
    requests.push_back(GenerateRequest{.prompt = s.ids, .max_new_tokens = 24, .ignore_eos = true});
    want.push_back(s.greedy);
  }
  ASSERT_GE(requests.size(), 2u);
  std::map<size_t, std::vector<float>> first_logprobs;
  for (const SchedulerOptions& options : switches()) {
    Scheduler scheduler(golden.model(), golden.context(), nullptr, options);
    size_t n = 0;
    const auto check = [&](const Answer& answer) {
      ++n;
      const auto& got = std::get<GenerateAnswer>(answer.result);
      const std::vector<int64_t> ids(got.ids.begin(), got.ids.end());
      EXPECT_EQ(ids, want[answer.index]) << "sequence " << answer.index;
      const auto& first = first_logprobs.try_emplace(answer.index, got.logprobs).first->second;
      EXPECT_EQ(got.logprobs, first) << "bits of sequence " << answer.index;
    };
    scheduler.answer(requests, check, StopFlag{});
    EXPECT_EQ(n, requests.size());
  }
}

void check_logit_bits(const std::filesystem::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  set_threads(1);  // models this small are slower with more
  GoldenModel golden(folder, DType::f32);
  const std::vector<GoldenModel::Sequence> sequences = golden.sequences();
  std::vector<std::vector<int32_t>> ids;
  for (const auto& s : sequences) {
    ids.push_back(s.ids);
    ids.emplace_back(s.ids.begin(), s.ids.begin() + static_cast<long>(s.ids.size() + 1) / 2);  // a shared prefix
    ids.push_back(s.ids);
    ids.back().back() = (ids.back().back() + 1) % golden.model().info().vocab_size;
  }
  const auto vocab = static_cast<size_t>(golden.model().info().vocab_size);
  std::vector<std::vector<float>> first;
  for (const SchedulerOptions& options : switches()) {
    Scheduler scheduler(golden.model(), golden.context(), nullptr, options);
    std::vector<std::vector<float>> logits;
    for (const auto& one : ids) logits.emplace_back(one.size() * vocab);
    scheduler.logits(ids, true, [&](size_t i, int32_t position, const float* row) {
      std::copy_n(row, vocab, logits[i].begin() + position * static_cast<long>(vocab));
    });
    if (first.empty()) {
      first = logits;
      for (size_t s = 0; s < sequences.size(); ++s) {
        EXPECT_LE(test::relative_l2(logits[3 * s], sequences[s].logits64), 2e-5);
      }
    }
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_TRUE(logits[i] == first[i]) << "sequence " << i;
  }
}

void check_continuation(const std::filesystem::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  set_threads(1);  // models this small are slower with more
  const auto meta = nlohmann::json::parse(read_file(folder / "meta.json", ErrorSubject::data));
  GoldenModel golden(folder, DType::f32);
  const std::vector<GoldenModel::Sequence> sequences = golden.sequences();
  const auto& c = meta["continuation"];
  const auto& ids = sequences.at(c["sequence"].get<size_t>()).ids;
  const auto context = c["context"].get<long>(), tokens = c["tokens"].get<long>();
  const std::vector<Request> requests{
      ScoreRequest{.context = {ids.begin(), ids.begin() + context},
                   .continuations = {{ids.begin() + context, ids.begin() + context + tokens}}}};
  const auto want = c["logprobs"].get<std::vector<double>>();
  for (const SchedulerOptions& options : switches()) {
    Scheduler scheduler(golden.model(), golden.context(), nullptr, options);
    const auto check = [&](const Answer& answer) {
      const ContinuationScore& score = std::get<ScoreAnswer>(answer.result).continuations.at(0);
      ASSERT_EQ(score.token_logprobs.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(score.token_logprobs[i], want[i], 1e-5 * std::abs(want[i])) << i;
      EXPECT_EQ(answer.effort.rows_base, context + tokens - 1);
      EXPECT_EQ(answer.effort.rows_output, tokens);
    };
    scheduler.answer(requests, check, StopFlag{});
    for (const GoldenModel::Sequence& s : sequences) {
      std::vector<float> k, v;
      scheduler.kv(s.ids, static_cast<int32_t>(golden.model().state_specs().size()) - 1, k, v);
      EXPECT_LE(test::relative_l2(k, s.k_last), 1e-5);
      EXPECT_LE(test::relative_l2(v, s.v_last), 1e-5);
    }
  }
}

// orthros.md section 3, property 4, on the real arithmetic: what is taken over has the bits of what is computed.
void check_depth_sweep(const std::filesystem::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  set_threads(1);  // models this small are slower with more
  GoldenModel golden(folder, DType::f32);
  const ModelInfo& info = golden.model().info();
  Rng rng(1);
  std::vector<int32_t> haystack(500);
  for (int32_t& id : haystack) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(info.vocab_size)));
  std::vector<Request> requests;
  for (size_t at = 0; at < haystack.size(); at += 99) {
    GenerateRequest request{.prompt = haystack, .max_new_tokens = 4, .ignore_eos = true};
    std::fill_n(request.prompt.begin() + static_cast<long>(at), 5, 7);
    requests.emplace_back(request);
    requests.emplace_back(NllRequest{request.prompt, {{100, 300, 499}}});
  }
  std::vector<std::vector<float>> first(requests.size());
  int64_t rows[2] = {0, 0};
  for (const bool reuse : {false, true}) {
    SchedulerOptions options;
    options.prefix_reuse = reuse;
    options.memory.chunk = 128;
    options.allow_beyond_window = true;
    Scheduler scheduler(golden.model(), golden.context(), nullptr, options);
    const auto check = [&](const Answer& answer) {
      const auto* generated = std::get_if<GenerateAnswer>(&answer.result);
      const std::vector<float> values =
          generated != nullptr ? generated->logprobs : std::get<NllAnswer>(answer.result).nll;
      if (reuse) {
        EXPECT_EQ(values, first[answer.index]) << answer.index;
      } else {
        first[answer.index] = values;
      }
    };
    scheduler.answer(requests, check, StopFlag{});
    rows[reuse ? 1 : 0] = scheduler.stats().rows_base;
  }
  if (info.kv_reach_tokens > 0 && info.kv_reach_tokens < 100) {
    EXPECT_LT(rows[1], 500 + 6 * (5 + info.kv_reach_tokens + 2 * 64 + 4));
  }
  EXPECT_LT(rows[1], rows[0]);
}

}  // namespace hayfork::test
