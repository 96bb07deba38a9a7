// Answers being put together: results of single rows go in, in any order of requests, and each answer goes out once, as
// soon as its last result is there or the request has failed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/agenda.h"
#include "engine/generation.h"
#include "engine/lm.h"

namespace hayfork::engine {

class Answers {
 public:
  // `emit` gets each finished answer. The agenda must outlive the object.
  Answers(const Agenda& agenda, std::function<void(Answer)> emit);

  // Requests that need no row at all.
  void emit_trivial();
  // Result `i` of a part: log-probability of its target, and whether the target was the arg max.
  void log_probability(const Part& part, int32_t i, float logprob, bool greedy);
  void logits(const Part& part, int32_t i, const float* values);
  // The answer of a whole generation, to everyone who asked for it.
  void generated(int32_t generation, GenerateAnswer answer);
  void fail(int32_t job, const Failure& failure);
  void fail_generation(int32_t generation, const Failure& failure);

  bool done(int32_t job) const { return states_[static_cast<size_t>(job)].done; }
  bool started(int32_t job) const { return states_[static_cast<size_t>(job)].started; }
  void set_started(int32_t job) { states_[static_cast<size_t>(job)].started = true; }
  Effort& effort(int32_t job) { return states_[static_cast<size_t>(job)].effort; }
  // Base rows of its own tokens that were computed for this request: the others it got from earlier ones.
  void add_prefill_rows(int32_t job, int64_t n) { states_[static_cast<size_t>(job)].prefill_rows += n; }

 private:
  struct State {
    bool done = false, started = false;
    int64_t remaining = 0, prefill_rows = 0;
    std::unique_ptr<ScoreAnswer> score;
    std::unique_ptr<NllAnswer> nll;
    Effort effort;
  };
  State& state(const Part& part) { return states_[static_cast<size_t>(part.job)]; }
  void prepare(State& state, const Job& job);
  void count_down(int32_t job);
  void emit(int32_t job, decltype(Answer::result) result);

  const Agenda& agenda_;
  std::function<void(Answer)> emit_;
  std::vector<State> states_;
};

}  // namespace hayfork::engine
