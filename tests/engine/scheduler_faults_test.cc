// Requests that cannot be answered, values that are not finite, memory that runs out, errors from outside, and stops.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>

#include "engine/block_store.h"
#include "tests/support/scheduler_cases.h"

namespace hayfork::engine {
namespace {

using test::all_expected;
using test::describe;
using test::expected;
using test::hash_models;
using test::HashModel;
using test::Ran;
using test::random_requests;
using test::run_scheduler;
using test::scheduler_context;

TEST(Scheduler, RefusesInvalidRequestsAndAnswersTheRest) {
  HashModel model({.max_length = 10});
  const std::vector<int32_t> ten(10, 1), eleven(11, 1);
  const std::vector<std::pair<Request, std::string>> cases{
      {ScoreRequest{.context = {1, 13}, .continuations = {{1}}}, "context id 13 at 1 is outside"},
      {ScoreRequest{.context = {1}, .continuations = {{-1}}}, "continuation id -1 at 0 is outside"},
      {ScoreRequest{.context = {1}, .continuations = {{}}}, "continuation 0 has no ids"},
      {ScoreRequest{.context = {}, .continuations = {{1}}}, "nothing predicts it"},
      {ScoreRequest{.context = ten, .continuations = {{1, 1}}}, "needs 11 positions and the model has 10"},
      {NllRequest{{}, {}}, "no tokens"},
      {NllRequest{{1, 2}, {{0}}}, "position 0 is out of order or outside"},
      {NllRequest{{1, 2}, {{2}}}, "position 2 is out of order or outside"},
      {NllRequest{{1, 2, 3}, {{2, 2}}}, "position 2 is out of order"},
      {NllRequest{{1, 99}, {}}, "token id 99"},
      {GenerateRequest{.prompt = {}, .max_new_tokens = 1}, "the prompt has no ids"},
      {GenerateRequest{.prompt = {1}, .max_new_tokens = -1}, "max_new_tokens is -1"},
      {GenerateRequest{.prompt = {1}, .max_new_tokens = 2000000000}, "longer than 2^30"},
      {GenerateRequest{.prompt = {1}, .max_new_tokens = 11}, "needs 11 positions"},
      {GenerateRequest{.prompt = {1}, .max_new_tokens = 1, .stops = {"x"}}, "need a tokenizer"},
      {GenerateRequest{.prompt = {1}, .max_new_tokens = 1, .sampling = {.temperature = -1}}, "temperature"},
      {GenerateRequest{.prompt = {1}, .max_new_tokens = 1, .sampling = {.temperature = 1, .top_p = 0}}, "top_p"},
  };
  std::vector<Request> requests;
  for (const auto& [request, message] : cases) {
    requests.push_back(request);
    requests.push_back(GenerateRequest{.prompt = {2, 3}, .max_new_tokens = 3});
  }
  requests.push_back(ScoreRequest{.context = ten, .continuations = {{1}}});
  requests.push_back(GenerateRequest{.prompt = ten, .max_new_tokens = 1});
  requests.push_back(GenerateRequest{.prompt = {1}, .max_new_tokens = 0});
  const Ran ran = run_scheduler(model, requests);
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_NE(ran.answers[2 * i].find(cases[i].second), std::string::npos) << ran.answers[2 * i];
    EXPECT_EQ(ran.answers[2 * i + 1], describe(expected(model, requests[2 * i + 1])));
  }
  for (size_t i = 2 * cases.size(); i < requests.size(); ++i) {
    EXPECT_EQ(ran.answers[i], describe(expected(model, requests[i])));
  }
  SchedulerOptions beyond;
  beyond.allow_beyond_window = true;
  const Request large = ScoreRequest{.context = eleven, .continuations = {{1, 1}}};
  EXPECT_EQ(run_scheduler(model, {large}, beyond).answers[0], describe(expected(model, large)));
}

TEST(Scheduler, FailsOnlyRequestsThatReadAValueThatIsNotFinite) {
  for (const bool two_streams : {false, true}) {
    HashModel model({.two_streams = two_streams, .bad_token = 12, .bad_head_token = 11});
    const std::vector<Request> requests{
        NllRequest{{1, 2, 3, 12, 4, 5}, {{3}}},                                  // wants the row before the bad one
        NllRequest{{1, 2, 3, 12, 4, 5}, {{3, 5}}},                               // and one behind it
        NllRequest{{1, 2, 3, 12, 4, 5, 6}, {}},                                  //
        ScoreRequest{.context = {1, 2}, .continuations = {{3, 4}, {3, 12, 4}}},  // only the second reads it
        GenerateRequest{.prompt = {1, 2, 3, 12}, .max_new_tokens = 3},           //
        GenerateRequest{.prompt = {1, 2, 3}, .max_new_tokens = 1},               //
        NllRequest{{1, 11, 3}, {{1}}},                                           // token 11 is read, its row not wanted
        NllRequest{{1, 11, 3}, {}},                                              //
        ScoreRequest{.context = {1, 2}, .continuations = {{3, 12}}},             // 12 is predicted, not read
    };
    const std::string bad = "failure layer 1 gave a value that is not finite at position 3";
    const std::string bad_head = "failure the logits gave a value that is not finite at position 1";
    for (const int32_t batch : {1, 64}) {
      for (const int32_t chunk : {1, 3, 64}) {
        for (const bool reuse : {true, false}) {
          SchedulerOptions options;
          options.memory.batch_size = batch;
          options.memory.chunk = chunk;
          options.prefix_reuse = reuse;
          for (const bool queued : {false, true}) {
            const Ran ran = run_scheduler(model, requests, options, queued);
            for (const size_t i : {0, 5, 6, 8}) EXPECT_EQ(ran.answers[i], describe(expected(model, requests[i]))) << i;
            for (const size_t i : {1, 2, 3, 4}) EXPECT_EQ(ran.answers[i], bad) << i;
            EXPECT_EQ(ran.answers[7], bad_head);
          }
        }
      }
    }
  }
}

TEST(Scheduler, FailsAGenerationThatStepsOnAValueThatIsNotFinite) {
  HashModel model({.bad_token = 12});
  std::vector<Request> requests;
  for (int32_t i = 0; i < 12; ++i) requests.push_back(GenerateRequest{.prompt = {i, 1}, .max_new_tokens = 40});
  for (const bool queued : {false, true}) {
    const Ran ran = run_scheduler(model, requests, {}, queued);
    size_t failed = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto want = std::get<GenerateAnswer>(expected(model, requests[i]));
      const auto at = std::find(want.ids.begin(), want.ids.end() - 1, 12);
      if (at == want.ids.end() - 1) {
        EXPECT_EQ(ran.answers[i], describe(want));
      } else {
        ++failed;
        EXPECT_EQ(ran.answers[i], "failure layer 1 gave a value that is not finite at position " +
                                      std::to_string(2 + (at - want.ids.begin())));
      }
    }
    EXPECT_GT(failed, 0u);
  }
}

TEST(Scheduler, GoesOnWithSmallerPassesWhenMemoryRunsOut) {
  for (const HashModel::Options& model_options : hash_models()) {
    HashModel model(model_options);
    Rng rng(5);
    const std::vector<Request> requests = random_requests(rng, 30, 4);
    const std::vector<std::string> want = all_expected(model, requests);
    size_t largest = 0;
    int failures = 0;
    model.before_forward = [&](const Pass& pass) {
      largest = std::max(largest, pass.rows.size());
      if (pass.rows.size() > 40) {
        ++failures;
        throw std::bad_alloc();
      }
    };
    for (const bool queued : {false, true}) {
      failures = 0;
      EXPECT_EQ(run_scheduler(model, requests, {}, queued).answers, want);
      EXPECT_GT(failures, 0);
    }
    model.before_forward = [n = 0](const Pass&) mutable {
      if (++n % 50 == 0) throw Error(ErrorCode::resource, ErrorSubject::memory, "injected");
    };
    SchedulerOptions small;
    small.memory.chunk = 20;
    for (const bool queued : {false, true}) {
      const Ran ran = run_scheduler(model, requests, small, queued);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(ran.answers[i] == want[i] || ran.answers[i].starts_with("failure memory ran out")) << i;
      }
    }
  }
}

TEST(Scheduler, OtherErrorsEndTheRun) {
  HashModel model({});
  model.before_forward = [](const Pass&) { throw Error(ErrorCode::device, ErrorSubject::general, "lost"); };
  EXPECT_THROW(run_scheduler(model, {GenerateRequest{.prompt = {1}, .max_new_tokens = 2}}), Error);
}

TEST(Scheduler, AnErrorOfTheSinkPassesThroughAndLeavesNothingHeld) {
  HashModel model({});
  Rng rng(9);
  const std::vector<Request> requests = random_requests(rng, 40, 4);
  for (int allowed = 0; allowed < 20; ++allowed) {
    const auto context = scheduler_context(allowed % 2 == 1);
    Scheduler scheduler(model, *context, nullptr, {});
    int n = 0;
    const auto sink = [&](const Answer&) {
      if (n++ == allowed) throw Error(ErrorCode::resource, ErrorSubject::disk, "disk full");
    };
    EXPECT_THROW(scheduler.answer(requests, sink, StopFlag{}), Error);
    if (scheduler.cache() != nullptr) {
      EXPECT_EQ(scheduler.cache()->live_sequences(), 0);
      EXPECT_EQ(scheduler.cache()->held_blocks(), 0);
    }
  }
}

TEST(Scheduler, StopsAtTheNextPassOrAfterWhatHasBegun) {
  for (const HashModel::Options& model_options : hash_models()) {
    Rng rng(11);
    HashModel model(model_options);
    const std::vector<Request> requests = random_requests(rng, 60, 4);
    const std::vector<std::string> want = all_expected(model, requests);
    for (const bool hard : {true, false}) {
      for (int at = 0; at < 12; ++at) {
        StopFlag stop;
        int passes = 0;
        model.before_forward = [&](const Pass&) {
          if (passes++ == at) hard ? stop.request_hard() : stop.request_soft();
        };
        const auto context = scheduler_context(at % 2 == 1);
        SchedulerOptions options;
        options.memory.chunk = 32;
        options.memory.batch_size = 4;
        Scheduler scheduler(model, *context, nullptr, options);
        size_t n = 0;
        scheduler.answer(
            requests,
            [&](const Answer& answer) {
              ++n;
              EXPECT_EQ(describe(answer.result), want[answer.index]);
            },
            stop);
        EXPECT_LT(n, requests.size());
        if (hard) {
          EXPECT_EQ(passes, at + 1);
        }
        if (scheduler.cache() != nullptr) {
          EXPECT_EQ(scheduler.cache()->live_sequences(), 0);
        }
      }
    }
    model.before_forward = nullptr;
  }
}

TEST(Scheduler, ASoftStopFinishesShortGenerationsAndDropsLongOnes) {
  HashModel model({});
  StopFlag stop;
  int passes = 0;
  model.before_forward = [&](const Pass&) {
    if (passes++ == 3) stop.request_soft();
  };
  const std::vector<Request> requests{GenerateRequest{.prompt = {1, 2}, .max_new_tokens = 30},
                                      GenerateRequest{.prompt = {3, 4}, .max_new_tokens = 3000}};
  const auto context = make_cpu_context(DType::f32);
  Scheduler scheduler(model, *context, nullptr, {});
  std::vector<size_t> answered;
  scheduler.answer(
      requests, [&](const Answer& answer) { answered.push_back(answer.index); }, stop);
  EXPECT_EQ(answered, std::vector<size_t>{0});
  EXPECT_LT(passes, 40);
}

}  // namespace
}  // namespace hayfork::engine
