// Depth sweeps: what is computed again behind each edit, in how little memory, and that the answers stay.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/block_store.h"
#include "tests/support/scheduler_cases.h"

namespace hayfork::engine {
namespace {

using test::all_expected;
using test::HashModel;
using test::Ran;
using test::random_ids;
using test::run_scheduler;
using Layer = HashModel::Layer;

// One haystack, a needle of `n` tokens at each of 11 depths, and a question.
std::vector<Request> depth_sweep(Rng& rng, size_t length, size_t n, bool insert) {
  const std::vector<int32_t> haystack = random_ids(rng, length, 13), needle = random_ids(rng, n, 13);
  std::vector<Request> requests;
  for (size_t depth = 0; depth <= 10; ++depth) {
    const size_t at = (length - n) * depth / 10;
    std::vector<int32_t> ids(haystack.begin(), haystack.begin() + static_cast<long>(at));
    ids.insert(ids.end(), needle.begin(), needle.end());
    ids.insert(ids.end(), haystack.begin() + static_cast<long>(at + (insert ? 0 : n)), haystack.end());
    requests.push_back(GenerateRequest{.prompt = ids, .max_new_tokens = 3});
    if (depth % 4 == 1) requests.push_back(NllRequest{ids, {{5, 600, 601, 700, 1000}}});
  }
  return requests;
}

// orthros.md section 3, property 4; models of windows alone have one stream and the same reach.
TEST(Scheduler, ADepthSweepReusesAllButTheReachBehindEachEdit) {
  for (const bool two_streams : {true, false}) {
    HashModel model({.layers = {Layer::window, Layer::window, Layer::window}, .window = 5, .two_streams = two_streams});
    Rng rng(8);
    const std::vector<Request> requests = depth_sweep(rng, 1500, 10, false);
    const std::vector<std::string> want = all_expected(model, requests);
    for (const int32_t batch : {1, 2, 64}) {
      for (const int32_t chunk : {7, 64, 512}) {
        SchedulerOptions options;
        options.memory.batch_size = batch;
        options.memory.chunk = chunk;
        model.n_base_rows = 0;
        const Ran ran = run_scheduler(model, requests, options);
        EXPECT_EQ(ran.answers, want);
        // Per prompt: the needle, 12 positions of reach, the rest of a piece and 2 rows of decoding; once more where
        // the first prompt had its needle; the positions asked for.
        const int32_t rest = two_streams ? kPieceTokens + 1 : kBlockTokens;
        if (chunk == 512) {
          EXPECT_LT(model.n_base_rows, 1500 + 12 * (10 + 12 + rest + 2) + 3 * 5) << batch;
        }
        EXPECT_EQ(ran.stats.rows_base, model.n_base_rows);
      }
    }
    SchedulerOptions off;
    off.prefix_reuse = false;
    model.n_base_rows = 0;
    EXPECT_EQ(run_scheduler(model, requests, off).answers, want);
    EXPECT_GT(model.n_base_rows, 14 * 1000);
  }
}

// What plan() says of a sweep is what is computed, but for pieces cut by a pass.
TEST(Scheduler, PlansWhatASweepReuses) {
  for (const bool two_streams : {true, false}) {
    for (const bool insert : {true, false}) {
      HashModel model({.layers = {Layer::window, Layer::window}, .window = 40, .two_streams = two_streams});
      Rng rng(7);
      const std::vector<Request> requests = depth_sweep(rng, 3000, 20, insert);
      SchedulerOptions options;
      options.memory.batch_size = 1;
      const auto context = make_cpu_context(DType::f32);
      Scheduler scheduler(model, *context, nullptr, options);
      const WorkPlan plan = scheduler.plan(requests);
      scheduler.answer(
          requests, [](const Answer&) {}, StopFlag{});
      const int64_t rows = scheduler.stats().rows_base + scheduler.stats().rows_output;
      EXPECT_NEAR(static_cast<double>(plan.rows_planned), static_cast<double>(rows), 11 * kPieceTokens);
      EXPECT_LT(rows, (insert ? 3 : 2) * 3000);
      EXPECT_NEAR(static_cast<double>(plan.rows_reused), static_cast<double>(scheduler.stats().rows_reused),
                  11 * kPieceTokens);
      EXPECT_GT(plan.rows_reused, 8 * 3000);
    }
  }
}

TEST(Scheduler, SweepsAreAnsweredTheSameWithLittleMemoryAndInsertedNeedles) {
  for (const bool two_streams : {true, false}) {
    HashModel model({.layers = {Layer::window, Layer::window}, .window = 40, .two_streams = two_streams});
    Rng rng(9);
    const std::vector<Request> requests = depth_sweep(rng, 1100, 70, true);
    const std::vector<std::string> want = all_expected(model, requests);
    const int64_t block = Cache::bytes_per_block(model.state_specs(), DType::f32);
    for (const int64_t n_blocks : {24, 30, 45, 70, 1000}) {
      SchedulerOptions options;
      options.memory.batch_size = 3;
      options.memory.chunk = 100;
      options.memory.bytes = n_blocks * block + 100 * (2 * 106 + 103);
      EXPECT_EQ(run_scheduler(model, requests, options).answers, want) << n_blocks;
    }
  }
}

// Memory for a few of the prompts alone: what is kept of them comes before more of them at once, which decode for long.
TEST(Scheduler, ASweepReusesWithRoomForAFewSequences) {
  HashModel model({.layers = {Layer::window, Layer::window}, .window = 40, .two_streams = true});
  Rng rng(10);
  constexpr int64_t kLength = 3000, kNew = 40;
  std::vector<Request> requests = depth_sweep(rng, kLength, 20, false);
  for (Request& request : requests) {
    if (auto* generate = std::get_if<GenerateRequest>(&request)) generate->max_new_tokens = kNew;
  }
  const std::vector<std::string> want = all_expected(model, requests);
  const int64_t block = Cache::bytes_per_block(model.state_specs(), DType::f32);
  for (const int64_t n_sequences : {2, 3, 4, 6}) {
    SchedulerOptions options;
    options.memory.batch_size = 8;
    options.memory.chunk = 512;
    options.memory.bytes = n_sequences * (kLength / kBlockTokens + 2) * block + 100 * (2 * 528 + 34);
    model.n_base_rows = 0;
    EXPECT_EQ(run_scheduler(model, requests, options).answers, want) << n_sequences;
    // As above: each edit's needle and reach, once more where the one before it was; then what is decoded.
    EXPECT_LT(model.n_base_rows, kLength + 12 * (20 + 79 + kPieceTokens + 3) + 3 * 5 + 11 * (kNew - 1)) << n_sequences;
  }
}

// Keys that only output rows still read may lie elsewhere.
TEST(Scheduler, AnswersTheSameWithKeysParked) {
  HashModel model({.layers = {Layer::window, Layer::window}, .window = 70, .two_streams = true});
  Rng rng(12);
  std::vector<Request> requests{GenerateRequest{.prompt = random_ids(rng, 1000, 13), .max_new_tokens = 9},
                                NllRequest{random_ids(rng, 1090, 13), {{40, 500, 1089}}},
                                GenerateRequest{.prompt = random_ids(rng, 30, 13), .max_new_tokens = 100}};
  for (const Request& request : depth_sweep(rng, 1100, 10, false)) requests.push_back(request);
  const std::vector<std::string> want = all_expected(model, requests);
  const int64_t block = Cache::bytes_per_block(model.state_specs(), DType::f32);
  for (const int64_t n_blocks : {4, 7, 12, 18, 30}) {  // one prompt of 1,100 takes 18
    SchedulerOptions options;
    options.memory.batch_size = 2;
    options.memory.chunk = 64;
    options.memory.bytes = n_blocks * block + 100 * (2 * 68 + 66);
    options.memory.parked_bytes = 25 * block;
    EXPECT_EQ(run_scheduler(model, requests, options).answers, want) << n_blocks;
  }
  SchedulerOptions options;
  options.memory.bytes = 9 * block + 100 * (2 * 68 + 66);
  options.memory.chunk = 64;
  options.memory.batch_size = 1;
  options.memory.parked_bytes = 2 * block;
  EXPECT_NE(run_scheduler(model, requests, options).answers[0].find("the longest that fits"), std::string::npos);
}

}  // namespace
}  // namespace hayfork::engine
