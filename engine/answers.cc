#include "engine/answers.h"

#include "base/error.h"

namespace hayfork::engine {

Answers::Answers(const Agenda& agenda, std::function<void(Answer)> emit)
    : agenda_(agenda), emit_(std::move(emit)), states_(agenda.jobs().size()) {
  for (size_t i = 0; i < states_.size(); ++i) states_[i].remaining = agenda.jobs()[i].n_results;
}

void Answers::emit_trivial() {
  for (size_t i = 0; i < states_.size(); ++i) {
    const Job& job = agenda_.jobs()[i];
    if (job.n_results > 0 || job.generation >= 0) continue;
    prepare(states_[i], job);
    if (std::holds_alternative<const GenerateRequest*>(job.work)) {
      emit(static_cast<int32_t>(i), GenerateAnswer{});
    } else {
      states_[i].remaining = 1;
      count_down(static_cast<int32_t>(i));
    }
  }
}

// Room for the results, made when the first one comes: most requests of a long list have not begun.
void Answers::prepare(State& s, const Job& job) {
  s.started = true;
  if (s.score || s.nll) return;
  if (const auto* const* request = std::get_if<const ScoreRequest*>(&job.work)) {
    s.score = std::make_unique<ScoreAnswer>();
    s.score->continuations.resize((*request)->continuations.size());
    for (int32_t p = job.first_part; p < job.first_part + job.n_parts; ++p) {
      const Part& part = agenda_.parts()[static_cast<size_t>(p)];
      if (part.kind == PartKind::context) s.score->context_nll_tokens = part.n;
      if (part.kind != PartKind::continuation) continue;
      ContinuationScore& score = s.score->continuations[static_cast<size_t>(part.index)];
      score.token_logprobs.resize(static_cast<size_t>(part.n));
      score.is_greedy = true;
    }
  } else if (std::holds_alternative<const NllRequest*>(job.work)) {
    s.nll = std::make_unique<NllAnswer>();
    s.nll->nll.resize(static_cast<size_t>(job.n_results));
  }
}

void Answers::log_probability(const Part& part, int32_t i, float logprob, bool greedy) {
  State& s = state(part);
  if (s.done) return;
  prepare(s, agenda_.jobs()[static_cast<size_t>(part.job)]);
  switch (part.kind) {
    case PartKind::continuation: {
      ContinuationScore& score = s.score->continuations[static_cast<size_t>(part.index)];
      score.token_logprobs[static_cast<size_t>(i)] = logprob;
      score.is_greedy = score.is_greedy && greedy;
      break;
    }
    case PartKind::context:
      // Rows of one path finish in ascending order, whatever the batch: the sum has one order.
      s.score->context_nll -= static_cast<double>(logprob);
      break;
    case PartKind::nll:
      s.nll->nll[static_cast<size_t>(i)] = -logprob;
      break;
    case PartKind::next_token:
    case PartKind::logits:
      HAY_CHECK(false);
  }
  count_down(part.job);
}

void Answers::logits(const Part& part, int32_t i, const float* values) {
  if (state(part).done) return;
  state(part).started = true;
  std::get<const LogitsRequest*>(agenda_.jobs()[static_cast<size_t>(part.job)].work)->sink(part.row(i), values);
  count_down(part.job);
}

void Answers::count_down(int32_t id) {
  State& s = states_[static_cast<size_t>(id)];
  if (--s.remaining > 0) return;
  if (s.score) {
    for (ContinuationScore& score : s.score->continuations) {
      for (const float logprob : score.token_logprobs) score.logprob += static_cast<double>(logprob);
    }
    emit(id, std::move(*s.score));
  } else if (s.nll) {
    emit(id, std::move(*s.nll));
  } else {
    emit(id, NllAnswer{});  // a logits request: its sink has had everything
  }
}

void Answers::generated(int32_t generation, GenerateAnswer answer) {
  const std::vector<int32_t>& jobs = agenda_.generations()[static_cast<size_t>(generation)].jobs;
  for (size_t i = 1; i < jobs.size(); ++i) emit(jobs[i], answer);
  emit(jobs.front(), std::move(answer));
}

void Answers::fail(int32_t job, const Failure& failure) {
  const int32_t generation = agenda_.jobs()[static_cast<size_t>(job)].generation;
  if (generation >= 0) {
    fail_generation(generation, failure);
  } else {
    emit(job, failure);
  }
}

void Answers::fail_generation(int32_t generation, const Failure& failure) {
  for (const int32_t job : agenda_.generations()[static_cast<size_t>(generation)].jobs) emit(job, failure);
}

void Answers::emit(int32_t id, decltype(Answer::result) result) {
  State& s = states_[static_cast<size_t>(id)];
  if (s.done) return;
  s.done = true;
  s.score.reset();
  s.nll.reset();
  const Job& job = agenda_.jobs()[static_cast<size_t>(id)];
  Effort effort = s.effort;
  if (!std::holds_alternative<Failure>(result)) effort.rows_reused = job.n_tokens - s.prefill_rows;
  emit_({.index = job.index, .result = std::move(result), .effort = effort});
}

}  // namespace hayfork::engine
