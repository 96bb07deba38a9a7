#include "tests/support/score_lm.h"

namespace hayfork::test {

void ScoreLm::answer(std::span<const engine::Request> requests, const engine::AnswerSink& sink, const StopFlag&) {
  for (size_t k = 0; k < requests.size(); ++k) {
    engine::Answer answer;
    answer.index = backwards ? requests.size() - 1 - k : k;
    const engine::Request& request = requests[answer.index];
    ++n_requests;
    if (const auto* generate = std::get_if<engine::GenerateRequest>(&request)) {
      engine::GenerateAnswer out;
      out.text = writes;
      for (const std::string& stop : generate->stops) out.text = out.text.substr(0, out.text.find(stop));
      answer.result = std::move(out);
      sink(std::move(answer));
      continue;
    }
    const auto& score = std::get<engine::ScoreRequest>(request);
    engine::ScoreAnswer out;
    n_context_tokens += static_cast<int64_t>(score.context.size());
    for (const auto& continuation : score.continuations) {
      engine::ContinuationScore one;
      for (const int32_t token : continuation) {
        one.token_logprobs.push_back(static_cast<float>(-token_cost(token)));
        one.logprob += one.token_logprobs.back();
      }
      one.is_greedy = continuation.size() == 1;
      out.continuations.push_back(std::move(one));
    }
    if (score.context_nll) {
      for (size_t i = 1; i < score.context.size(); ++i) out.context_nll += token_cost(score.context[i]);
      out.context_nll_tokens = static_cast<int32_t>(score.context.size()) - 1;
    }
    answer.result = std::move(out);
    sink(std::move(answer));
  }
}

engine::WorkPlan ScoreLm::plan(std::span<const engine::Request> requests) const {
  return {.n_requests = static_cast<int64_t>(requests.size())};
}

}  // namespace hayfork::test
