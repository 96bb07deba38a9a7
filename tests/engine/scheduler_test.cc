#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/sanitizer.h"
#include "tests/support/scheduler_cases.h"

namespace hayfork::engine {
namespace {

using test::all_expected;
using test::describe;
using test::expected;
using test::hash_models;
using test::HashModel;
using test::Ran;
using test::random_ids;
using test::random_requests;
using test::run_scheduler;
using Layer = HashModel::Layer;

TEST(Scheduler, AnswersAsBruteForceWhateverTheSwitches) {
  for (const HashModel::Options& model_options : hash_models()) {
    for (uint64_t seed = 0; seed < (test::kSanitized ? 2 : 6); ++seed) {
      Rng rng(seed);
      HashModel model(model_options);
      const std::vector<Request> requests = random_requests(rng, 1 + rng.below(40), seed % 2 == 0 ? 4 : 13);
      const std::vector<std::string> want = all_expected(model, requests);
      for (const int32_t batch : {1, 3, 64}) {
        for (const int32_t chunk : {1, 7, 512}) {
          for (const Order order : {Order::given, Order::planned, Order::reverse, Order::shuffle}) {
            for (const bool reuse : {true, false}) {
              SchedulerOptions options;
              options.memory.batch_size = batch;
              options.memory.chunk = chunk;
              options.order = order;
              options.order_seed = seed;
              options.prefix_reuse = reuse;
              for (const bool queued : {false, true}) {
                if (queued && order == Order::given) continue;
                const Ran ran = run_scheduler(model, requests, options, queued);
                ASSERT_EQ(ran.answers, want)
                    << "seed " << seed << " batch " << batch << " chunk " << chunk << " queued " << queued;
                ASSERT_GE(ran.stats.rows_reused, 0);
                ASSERT_TRUE(reuse || ran.stats.rows_reused == 0) << "seed " << seed;
              }
            }
          }
        }
      }
    }
  }
}

TEST(Scheduler, AnswersTheSameWithHardlyAnyMemory) {
  for (const HashModel::Options& model_options : hash_models()) {
    for (uint64_t seed = 100; seed < 110; ++seed) {
      Rng rng(seed);
      HashModel model(model_options);
      const std::vector<Request> requests = random_requests(rng, 30, 4);
      const std::vector<std::string> want = all_expected(model, requests);
      const std::vector<StateSpec> specs = model.state_specs();
      const int64_t block = Cache::bytes_per_block(specs, DType::f32) + Cache::bytes_per_state(specs);
      SchedulerOptions options;
      options.memory.chunk = 16;
      options.memory.batch_size = 8;
      options.memory.bytes = 100 * (16 + 16 + 24) * 2 + 6 * block;  // scratch, and a few blocks
      size_t failed = 0;
      const Ran ran = run_scheduler(model, requests, options, seed % 2 == 1);
      for (size_t i = 0; i < requests.size(); ++i) {
        if (ran.answers[i].starts_with("failure the request needs more keys")) {
          ++failed;
        } else {
          ASSERT_EQ(ran.answers[i], want[i]) << "seed " << seed << " request " << i;
        }
      }
      EXPECT_LT(failed, requests.size());
    }
  }
}

TEST(Scheduler, RefusesWhatCanNotFitAlone) {
  HashModel model({});
  SchedulerOptions options;
  options.memory.chunk = 16;
  options.memory.batch_size = 1;
  options.memory.bytes = 100 * 34 * 2 + 3 * Cache::bytes_per_block(model.state_specs(), DType::f32);
  const std::vector<Request> requests{NllRequest{std::vector<int32_t>(1000, 1), {}},
                                      GenerateRequest{.prompt = {1, 2}, .max_new_tokens = 3}};
  const Ran ran = run_scheduler(model, requests, options);
  EXPECT_TRUE(ran.answers[0].starts_with("failure the request needs more keys and values")) << ran.answers[0];
  EXPECT_EQ(ran.answers[1], describe(expected(model, requests[1])));
}

TEST(Scheduler, SaysThatAStateAloneIsTooLarge) {
  HashModel model({.layers = {Layer::recurrent}});
  SchedulerOptions options;
  options.memory.bytes = 1;
  const std::vector<Request> requests{GenerateRequest{.prompt = {1, 2, 3}, .max_new_tokens = 1}};
  EXPECT_NE(run_scheduler(model, requests, options).answers[0].find("recurrent state of one sequence takes"),
            std::string::npos);
}

// orthros.md section 2: rows by regime.
TEST(Scheduler, ComputesTheRowsOfEachRegimeAndNoMore) {
  HashModel model({.layers = {Layer::window, Layer::full}, .window = 4, .two_streams = true});
  Rng rng(1);
  const std::vector<int32_t> context = random_ids(rng, 20, 13);
  const auto rows = [&](const Request& request) {
    model.n_base_rows = model.n_output_rows = 0;
    run_scheduler(model, {request});
    return std::pair(model.n_base_rows, model.n_output_rows);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(rows(GenerateRequest{.prompt = context, .max_new_tokens = 1}), Pair(20, 1));
  EXPECT_EQ(rows(GenerateRequest{.prompt = context, .max_new_tokens = 5}), Pair(24, 5));
  EXPECT_EQ(rows(NllRequest{context, {}}), Pair(19, 19));
  EXPECT_EQ(rows(NllRequest{context, {{3, 17}}}), Pair(17, 2));
  EXPECT_EQ(rows(ScoreRequest{.context = context, .continuations = {{1, 2, 3}}}), Pair(22, 3));  // n + 2m − 1
  // Four options of one token each share the one output row; longer ones add m − 1 of both.
  EXPECT_EQ(rows(ScoreRequest{.context = context, .continuations = {{1}, {2}, {3}, {4}}}), Pair(20, 1));
  EXPECT_EQ(rows(ScoreRequest{.context = context, .continuations = {{1, 2}, {2, 2}, {3, 2, 2}}}), Pair(24, 5));
}

TEST(Scheduler, ComputesAFullPrefixHitWithOneOutputRow) {
  HashModel model({.layers = {Layer::window}, .window = 4, .two_streams = true});
  Rng rng(2);
  const std::vector<int32_t> tokens = random_ids(rng, 50, 13);
  const std::vector<int32_t> half(tokens.begin(), tokens.begin() + 25);
  const std::vector<Request> requests{NllRequest{tokens, {{49}}}, GenerateRequest{.prompt = half, .max_new_tokens = 1}};
  SchedulerOptions options;
  options.order = Order::given;
  const Ran ran = run_scheduler(model, requests, options);
  EXPECT_EQ(model.n_base_rows, 49);
  EXPECT_EQ(model.n_output_rows, 2);
  EXPECT_EQ(ran.efforts[0].rows_base, 49);
  EXPECT_EQ(ran.efforts[1].rows_base, 0);
  EXPECT_EQ(ran.efforts[1].rows_reused, 25);
  EXPECT_EQ(ran.stats.rows_reused, 25);
}

TEST(Scheduler, PlansTheRowsItComputes) {
  for (const HashModel::Options& model_options : hash_models()) {
    HashModel::Options no_eos = model_options;
    no_eos.eos = {};
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Rng rng(seed);
      HashModel model(no_eos);
      const std::vector<Request> requests = random_requests(rng, 30, 4);
      const auto context = make_cpu_context(DType::f32);
      Scheduler scheduler(model, *context, nullptr, {});
      const WorkPlan plan = scheduler.plan(requests);
      scheduler.answer(
          requests, [](const Answer&) {}, StopFlag{});
      const EngineStats stats = scheduler.stats();
      EXPECT_EQ(plan.n_requests, 30);
      EXPECT_EQ(plan.rows_planned, stats.rows_base + stats.rows_output) << seed;
      EXPECT_EQ(plan.rows_reused, stats.rows_reused) << seed;
      EXPECT_EQ(stats.rows_base + stats.rows_output, model.n_base_rows + model.n_output_rows);
      EXPECT_GE(plan.peak_bytes, stats.peak_bytes - 4096);
    }
  }
}

TEST(Scheduler, RunsEqualGenerationsOnce) {
  HashModel model({});
  const GenerateRequest request{.prompt = {1, 2, 3}, .max_new_tokens = 6};
  GenerateRequest other = request;
  other.sampling = {.temperature = 1, .seed = 1};
  const std::vector<Request> requests{request, request, other, request};
  const Ran ran = run_scheduler(model, requests);
  EXPECT_EQ(model.n_base_rows, 3 + 5 + 5);
  EXPECT_EQ(ran.answers, all_expected(model, requests));
  EXPECT_EQ(ran.efforts[3].rows_reused, 3);
}

TEST(Scheduler, GivesLogitsOfManySequencesAtOnce) {
  HashModel model({});
  Rng rng(3);
  std::vector<std::vector<int32_t>> sequences;
  for (size_t i = 0; i < 9; ++i) sequences.push_back(random_ids(rng, 1 + rng.below(100), 3));
  const auto context = make_cpu_context(DType::f32);
  for (const bool all : {true, false}) {
    Scheduler scheduler(model, *context, nullptr, {});
    std::set<std::pair<size_t, int32_t>> seen;
    scheduler.logits(sequences, all, [&](size_t i, int32_t position, const float* row) {
      EXPECT_TRUE(seen.emplace(i, position).second);
      const auto head = std::span(sequences[i]).first(static_cast<size_t>(position) + 1);
      const std::vector<float> want = model.expected(head, 0, static_cast<int32_t>(sequences[i].size()));
      EXPECT_TRUE(std::equal(want.begin(), want.end(), row));
    });
    size_t rows = 0;
    for (const auto& ids : sequences) rows += all ? ids.size() : 1;
    EXPECT_EQ(seen.size(), rows);
  }
  Scheduler scheduler(model, *context, nullptr, {});
  const std::vector<std::vector<int32_t>> bad{{1, 99}};
  EXPECT_THROW(scheduler.logits(bad, true, [](size_t, int32_t, const float*) {}), Error);
}

TEST(Scheduler, KeepsUpWithLongLists) {
  HashModel model({.layers = {Layer::window}, .window = 2, .vocab_size = 1000});
  Rng rng(4);
  const std::vector<int32_t> stem = random_ids(rng, 200, 1000);
  std::vector<Request> requests;
  for (int i = 0; i < 20000; ++i) {
    ScoreRequest r{.context = stem, .continuations = {}};
    const std::vector<int32_t> question = random_ids(rng, 6, 1000);
    r.context.insert(r.context.end(), question.begin(), question.end());
    for (int c = 0; c < 4; ++c) r.continuations.push_back(random_ids(rng, 2, 1000));
    requests.push_back(std::move(r));
  }
  const auto context = make_cpu_context(DType::f32);
  Scheduler scheduler(model, *context, nullptr, {});
  const WorkPlan plan = scheduler.plan(requests);
  EXPECT_LT(plan.rows_planned, 200 + 20000 * 10 + 1);
  EXPECT_GT(plan.rows_reused, 190 * 20000);
}

}  // namespace
}  // namespace hayfork::engine
