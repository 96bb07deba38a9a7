#include "tests/support/fake_lm.h"

#include <algorithm>

namespace hayfork::test {

void FakeLm::answer(std::span<const engine::Request> requests, const engine::AnswerSink& sink, const StopFlag&) {
  for (size_t k = requests.size(); k-- > 0;) {
    if (n_answered == stop_after) return;
    engine::Answer answer;
    answer.index = k;
    answer.effort = {.rows_base = 3, .batch_size = 2};
    if (failing.contains(n_answered++)) {
      answer.result = engine::Failure{ErrorCode::resource, "out of memory, on purpose"};
    } else {
      const auto& request = std::get<engine::GenerateRequest>(requests[k]);
      engine::GenerateAnswer generated;
      generated.text = respond(request.prompt);
      generated.ids = tokenizer_.encode(generated.text);
      generated.finish = engine::Finish::stop;
      answer.result = std::move(generated);
    }
    sink(std::move(answer));
  }
}

engine::WorkPlan FakeLm::plan(std::span<const engine::Request> requests) const {
  return {.n_requests = static_cast<int64_t>(requests.size())};
}

std::string WindowLm::respond(const std::vector<int32_t>& prompt) const {
  const size_t seen = std::min(window_, prompt.size());
  const std::string text = tokenizer_.decode(std::span(prompt).last(seen));
  const size_t ask = text.rfind("? ");
  if (ask == std::string::npos) return " nothing";
  const std::string clause = text.substr(ask + 2);  // "The secret number of Lisbon is"
  const size_t at = text.find(clause + " ");
  if (at == std::string::npos || at >= ask) return " 0.";
  const size_t end = text.find('.', at + clause.size());
  return text.substr(at + clause.size(), end - at - clause.size()) + ".";
}

std::string IgnorantLm::respond(const std::vector<int32_t>&) const {
  return " 1234.";
}

}  // namespace hayfork::test
