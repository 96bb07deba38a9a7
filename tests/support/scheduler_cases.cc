#include "tests/support/scheduler_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "engine/block_store.h"
#include "engine/sampling.h"
#include "tests/support/queue_context.h"

namespace hayfork::test {

using namespace engine;  // the tests' subject, all of it

namespace {

using Layer = HashModel::Layer;

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

}  // namespace

std::vector<int32_t> random_ids(Rng& rng, size_t n, int32_t vocab) {
  std::vector<int32_t> ids(n);
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  return ids;
}

std::vector<Request> random_requests(Rng& rng, size_t n, int32_t vocab, size_t longest) {
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

std::vector<HashModel::Options> hash_models() {
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

std::vector<std::string> all_expected(const HashModel& model, const std::vector<Request>& requests) {
  std::vector<std::string> result;
  for (const Request& request : requests) result.push_back(describe(expected(model, request)));
  return result;
}

std::unique_ptr<Context> scheduler_context(bool queued) {
  if (queued) return std::make_unique<QueueContext>();
  return engine::make_cpu_context(DType::f32);
}

Ran run_scheduler(HashModel& model, const std::vector<Request>& requests, const SchedulerOptions& options,
                  bool queued) {
  const auto context = scheduler_context(queued);
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

}  // namespace hayfork::test
