// A language model whose log-probabilities can be worked out by hand: token t costs (t mod 7 + 1) ÷ 8 whatever stands
// before it. It answers score requests, and generation with a fixed text.
#pragma once

#include <string>

#include "engine/lm.h"
#include "engine/text/tokenizer.h"

namespace hayfork::test {

inline double token_cost(int32_t token) {
  return (token % 7 + 1) / 8.0;
}

class ScoreLm : public engine::Lm {
 public:
  explicit ScoreLm(const engine::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  const engine::ModelInfo& info() const override { return info_; }
  const engine::Tokenizer* tokenizer() const override { return &tokenizer_; }
  void answer(std::span<const engine::Request> requests, const engine::AnswerSink& sink, const StopFlag& stop) override;
  engine::WorkPlan plan(std::span<const engine::Request> requests) const override;

  bool backwards = false;  // answers the last request first
  std::string writes = " an answer\nand more";
  int64_t n_requests = 0, n_context_tokens = 0;

 private:
  const engine::Tokenizer& tokenizer_;
  engine::ModelInfo info_;
};

}  // namespace hayfork::test
