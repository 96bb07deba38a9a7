#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <string>

#include "base/rng.h"
#include "engine/block_store.h"
#include "engine/sampling.h"
#include "tests/support/hash_model.h"
#include "tests/support/queue_context.h"
#include "tests/support/sanitizer.h"

namespace hayfork::engine {
namespace {

using test::HashModel;
using Layer = HashModel::Layer;

std::vector<int32_t> random_ids(Rng& rng, size_t n, int32_t vocab) {
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  return ids;
}

// Requests whose contexts often share beginnings, with duplicates among them.
std::vector<Request> random_requests(Rng& rng, size_t n, int32_t vocab, size_t longest = 150) {
  std::vector<std::vector<int32_t>> stems{{}};
  for (int i = 0; i < 4; ++i) {
    std::vector<int32_t> stem = stems[rng.below(stems.size())];
    const std::vector<int32_t> more = random_ids(rng, 1 + rng.below(longest / 2), vocab);
    stem.insert(stem.end(), more.begin(), more.end());
    stems.push_back(stem);
  }
  const auto context = [&](size_t least) {
    std::vector<int32_t> ids = stems[rng.below(stems.size())];
    if (rng.below(3) == 0) ids.resize(rng.below(ids.size() + 1));
    const std::vector<int32_t> more = random_ids(rng, rng.below(3) == 0 ? rng.below(longest / 3) : rng.below(3), vocab);
    ids.insert(ids.end(), more.begin(), more.end());
    while (ids.size() < least) ids.push_back(0);
    return ids;
  };
  std::vector<Request> requests;
  while (requests.size() < n) {
    switch (rng.below(8)) {
      case 0:
        if (!requests.empty()) requests.push_back(requests[rng.below(requests.size())]);
        break;
      case 1:
      case 2:
      case 3: {
        ScoreRequest r;
        r.context = context(rng.below(10) == 0 ? 0 : 1);
        r.context_nll = rng.below(4) == 0;
        for (uint64_t c = rng.below(5); c > 0; --c) {
          r.continuations.push_back(random_ids(rng, (r.context.empty() ? 2 : 1) + rng.below(5), vocab));
        }
        requests.push_back(r);
        break;
      }
      case 4:
      case 5: {
        NllRequest r;
        r.tokens = context(1);
        if (rng.below(2) == 0) {
          r.positions.emplace();
          for (size_t p = 1; p < r.tokens.size(); ++p) {
            if (rng.below(6) == 0) r.positions->push_back(static_cast<int32_t>(p));
          }
        }
        requests.push_back(r);
        break;
      }
      default: {
        GenerateRequest r;
        r.prompt = context(1);
        r.max_new_tokens = static_cast<int32_t>(rng.below(8));
        r.ignore_eos = rng.below(2) == 0;
        if (rng.below(3) == 0) r.sampling = {.temperature = 1, .top_p = 0.9f, .top_k = 5, .seed = rng.below(3)};
        requests.push_back(r);
      }
    }
  }
  return requests;
}

// ---- answers by brute force

float logprob_after(const HashModel& model, std::vector<int32_t> tokens, int32_t target, int32_t planned,
                    bool* greedy = nullptr) {
  const std::vector<float> logits = model.expected(tokens, 0, planned);
  if (greedy != nullptr) *greedy = HashModel::argmax(logits) == target;
  return HashModel::logprob(logits, target);
}

decltype(Answer::result) expected_score(const HashModel& model, const ScoreRequest& r) {
  size_t longest = 0;
  for (const auto& c : r.continuations) longest = std::max(longest, c.size());
  const auto planned = static_cast<int32_t>(r.context.size() + longest);
  ScoreAnswer answer;
  for (const auto& c : r.continuations) {
    ContinuationScore score;
    score.is_greedy = true;
    std::vector<int32_t> tokens = r.context;
    for (const int32_t id : c) {
      if (!tokens.empty()) {
        bool greedy = false;
        score.token_logprobs.push_back(logprob_after(model, tokens, id, planned, &greedy));
        score.logprob += score.token_logprobs.back();
        score.is_greedy = score.is_greedy && greedy;
      }
      tokens.push_back(id);
    }
    answer.continuations.push_back(score);
  }
  if (r.context_nll && r.context.size() > 1) {
    for (size_t i = 1; i < r.context.size(); ++i) {
      answer.context_nll -= static_cast<double>(
          logprob_after(model, {r.context.begin(), r.context.begin() + static_cast<long>(i)}, r.context[i], planned));
    }
    answer.context_nll_tokens = static_cast<int32_t>(r.context.size()) - 1;
  }
  return answer;
}

decltype(Answer::result) expected_nll(const HashModel& model, const NllRequest& r) {
  NllAnswer answer;
  const auto planned = static_cast<int32_t>(r.tokens.size());
  for (int32_t p = 1; p < planned; ++p) {
    if (r.positions && std::find(r.positions->begin(), r.positions->end(), p) == r.positions->end()) continue;
    answer.nll.push_back(
        -logprob_after(model, {r.tokens.begin(), r.tokens.begin() + p}, r.tokens[static_cast<size_t>(p)], planned));
  }
  return answer;
}

decltype(Answer::result) expected_generation(const HashModel& model, const GenerateRequest& r) {
  GenerateAnswer answer;
  const auto planned = static_cast<int32_t>(r.prompt.size()) + r.max_new_tokens;
  std::vector<int32_t> tokens = r.prompt;
  for (int32_t i = 0; i < r.max_new_tokens; ++i) {
    const std::vector<float> logits = model.expected(tokens, i, planned);
    Choice choice;
    if (r.sampling.temperature > 0) {
      choice = sample(logits, r.sampling, static_cast<int64_t>(tokens.size()));
    } else {
      choice = {HashModel::argmax(logits), HashModel::logprob(logits, HashModel::argmax(logits))};
    }
    tokens.push_back(choice.id);
    answer.ids.push_back(choice.id);
    answer.logprobs.push_back(choice.logprob);
    const auto& eos = model.info().eos_ids;
    if (!r.ignore_eos && std::find(eos.begin(), eos.end(), choice.id) != eos.end()) {
      answer.finish = Finish::eos;
      break;
    }
  }
  return answer;
}

decltype(Answer::result) expected(const HashModel& model, const Request& request) {
  if (const auto* r = std::get_if<ScoreRequest>(&request)) return expected_score(model, *r);
  if (const auto* r = std::get_if<NllRequest>(&request)) return expected_nll(model, *r);
  return expected_generation(model, std::get<GenerateRequest>(request));
}

std::string describe(const decltype(Answer::result)& result) {
  std::string text;
  const auto put = [&](auto value) { text += std::to_string(value) + " "; };
  const auto bits = [&](const std::vector<float>& values) {
    for (const float x : values) put(std::bit_cast<uint32_t>(x));
  };
  if (const auto* f = std::get_if<Failure>(&result)) return "failure " + f->message;
  if (const auto* s = std::get_if<ScoreAnswer>(&result)) {
    for (const ContinuationScore& c : s->continuations) {
      put(std::bit_cast<uint64_t>(c.logprob));
      bits(c.token_logprobs);
      put(c.is_greedy ? 1 : 0);
    }
    put(std::bit_cast<uint64_t>(s->context_nll));
    put(s->context_nll_tokens);
    return "score " + text;
  }
  if (const auto* n = std::get_if<NllAnswer>(&result)) {
    bits(n->nll);
    return "nll " + text;
  }
  const auto& g = std::get<GenerateAnswer>(result);
  for (const int32_t id : g.ids) put(id);
  bits(g.logprobs);
  return "generate " + text + std::to_string(static_cast<int>(g.finish));
}

// ---- the scheduler's

struct Ran {
  std::vector<std::string> answers;  // "" where none came
  std::vector<Effort> efforts;
  EngineStats stats;
};

// Passes waited for one by one, or queued two at a time.
std::unique_ptr<Context> make_context(bool queued) {
  if (queued) return std::make_unique<test::QueueContext>();
  return make_cpu_context(DType::f32);
}

Ran run(HashModel& model, const std::vector<Request>& requests, const SchedulerOptions& options = {},
        bool queued = false) {
  const auto context = make_context(queued);
  Scheduler scheduler(model, *context, nullptr, options);
  Ran ran;
  ran.answers.resize(requests.size());
  ran.efforts.resize(requests.size());
  scheduler.answer(
      requests,
      [&](const Answer& answer) {
        EXPECT_EQ(ran.answers.at(answer.index), "") << "answered twice";
        ran.answers[answer.index] = describe(answer.result);
        ran.efforts[answer.index] = answer.effort;
      },
      StopFlag{});
  ran.stats = scheduler.stats();
  if (const Cache* cache = scheduler.cache()) {
    EXPECT_EQ(cache->live_sequences(), 0);
    EXPECT_EQ(cache->held_blocks(), 0);
  }
  return ran;
}

std::vector<std::string> all_expected(const HashModel& model, const std::vector<Request>& requests) {
  std::vector<std::string> result;
  for (const Request& request : requests) result.push_back(describe(expected(model, request)));
  return result;
}

std::vector<HashModel::Options> models() {
  return {
      {.layers = {Layer::full, Layer::full}, .eos = {3}},
      {.layers = {Layer::window, Layer::full, Layer::window}, .window = 9, .eos = {3}},
      {.layers = {Layer::window, Layer::window}, .window = 70, .eos = {3}},
      {.layers = {Layer::recurrent, Layer::full, Layer::recurrent}, .eos = {3}},
      {.layers = {Layer::recurrent}, .eos = {3}},
      {.layers = {Layer::window, Layer::window, Layer::full}, .window = 5, .two_streams = true, .eos = {3}},
      {.layers = {Layer::full, Layer::full}, .rope_limit = 60, .eos = {3}},
      {.layers = {Layer::window, Layer::window, Layer::window}, .window = 5, .two_streams = true, .eos = {3}},
  };
}

TEST(Scheduler, AnswersAsBruteForceWhateverTheSwitches) {
  for (const HashModel::Options& model_options : models()) {
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
                const Ran ran = run(model, requests, options, queued);
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
  for (const HashModel::Options& model_options : models()) {
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
      const Ran ran = run(model, requests, options, seed % 2 == 1);
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
  const Ran ran = run(model, requests, options);
  EXPECT_TRUE(ran.answers[0].starts_with("failure the request needs more keys and values")) << ran.answers[0];
  EXPECT_EQ(ran.answers[1], describe(expected(model, requests[1])));
}

// orthros.md section 2: rows by regime.
TEST(Scheduler, ComputesTheRowsOfEachRegimeAndNoMore) {
  HashModel model({.layers = {Layer::window, Layer::full}, .window = 4, .two_streams = true});
  Rng rng(1);
  const std::vector<int32_t> context = random_ids(rng, 20, 13);
  const auto rows = [&](const Request& request) {
    model.n_base_rows = model.n_output_rows = 0;
    run(model, {request});
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
        const Ran ran = run(model, requests, options);
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
    EXPECT_EQ(run(model, requests, off).answers, want);
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
      EXPECT_EQ(run(model, requests, options).answers, want) << n_blocks;
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
    EXPECT_EQ(run(model, requests, options).answers, want) << n_sequences;
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
    EXPECT_EQ(run(model, requests, options).answers, want) << n_blocks;
  }
  SchedulerOptions options;
  options.memory.bytes = 9 * block + 100 * (2 * 68 + 66);
  options.memory.chunk = 64;
  options.memory.batch_size = 1;
  options.memory.parked_bytes = 2 * block;
  EXPECT_NE(run(model, requests, options).answers[0].find("the longest that fits"), std::string::npos);
}

TEST(Scheduler, SaysThatAStateAloneIsTooLarge) {
  HashModel model({.layers = {Layer::recurrent}});
  SchedulerOptions options;
  options.memory.bytes = 1;
  const std::vector<Request> requests{GenerateRequest{.prompt = {1, 2, 3}, .max_new_tokens = 1}};
  EXPECT_NE(run(model, requests, options).answers[0].find("recurrent state of one sequence takes"), std::string::npos);
}

TEST(Scheduler, ComputesAFullPrefixHitWithOneOutputRow) {
  HashModel model({.layers = {Layer::window}, .window = 4, .two_streams = true});
  Rng rng(2);
  const std::vector<int32_t> tokens = random_ids(rng, 50, 13);
  const std::vector<int32_t> half(tokens.begin(), tokens.begin() + 25);
  const std::vector<Request> requests{NllRequest{tokens, {{49}}}, GenerateRequest{.prompt = half, .max_new_tokens = 1}};
  SchedulerOptions options;
  options.order = Order::given;
  const Ran ran = run(model, requests, options);
  EXPECT_EQ(model.n_base_rows, 49);
  EXPECT_EQ(model.n_output_rows, 2);
  EXPECT_EQ(ran.efforts[0].rows_base, 49);
  EXPECT_EQ(ran.efforts[1].rows_base, 0);
  EXPECT_EQ(ran.efforts[1].rows_reused, 25);
  EXPECT_EQ(ran.stats.rows_reused, 25);
}

TEST(Scheduler, PlansTheRowsItComputes) {
  for (const HashModel::Options& model_options : models()) {
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
  const Ran ran = run(model, requests);
  EXPECT_EQ(model.n_base_rows, 3 + 5 + 5);
  EXPECT_EQ(ran.answers, all_expected(model, requests));
  EXPECT_EQ(ran.efforts[3].rows_reused, 3);
}

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
  const Ran ran = run(model, requests);
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
  EXPECT_EQ(run(model, {large}, beyond).answers[0], describe(expected(model, large)));
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
            const Ran ran = run(model, requests, options, queued);
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
    const Ran ran = run(model, requests, {}, queued);
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
  for (const HashModel::Options& model_options : models()) {
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
      EXPECT_EQ(run(model, requests, {}, queued).answers, want);
      EXPECT_GT(failures, 0);
    }
    model.before_forward = [n = 0](const Pass&) mutable {
      if (++n % 50 == 0) throw Error(ErrorCode::resource, ErrorSubject::memory, "injected");
    };
    SchedulerOptions small;
    small.memory.chunk = 20;
    for (const bool queued : {false, true}) {
      const Ran ran = run(model, requests, small, queued);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(ran.answers[i] == want[i] || ran.answers[i].starts_with("failure memory ran out")) << i;
      }
    }
  }
}

TEST(Scheduler, OtherErrorsEndTheRun) {
  HashModel model({});
  model.before_forward = [](const Pass&) { throw Error(ErrorCode::device, ErrorSubject::general, "lost"); };
  EXPECT_THROW(run(model, {GenerateRequest{.prompt = {1}, .max_new_tokens = 2}}), Error);
}

TEST(Scheduler, AnErrorOfTheSinkPassesThroughAndLeavesNothingHeld) {
  HashModel model({});
  Rng rng(9);
  const std::vector<Request> requests = random_requests(rng, 40, 4);
  for (int allowed = 0; allowed < 20; ++allowed) {
    const auto context = make_context(allowed % 2 == 1);
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
  for (const HashModel::Options& model_options : models()) {
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
        const auto context = make_context(at % 2 == 1);
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
