// Language models for tests of tasks. They read the prompt's text, and answer a question by finding the sentence that
// the prompt's last words begin: "… What is X? The number for K is" → what followed "The number for K is" earlier.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "engine/lm.h"
#include "engine/text/tokenizer.h"

namespace hayfork::test {

class FakeLm : public engine::Lm {
 public:
  explicit FakeLm(const engine::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  const engine::ModelInfo& info() const override { return info_; }
  const engine::Tokenizer* tokenizer() const override { return &tokenizer_; }
  // Answers from the last request to the first, so that nothing depends on the order.
  void answer(std::span<const engine::Request> requests, const engine::AnswerSink& sink, const StopFlag& stop) override;
  engine::WorkPlan plan(std::span<const engine::Request> requests) const override;

  std::set<size_t> failing;  // requests answered with a Failure, by their number over all calls
  size_t n_answered = 0;
  size_t stop_after = SIZE_MAX;  // answers given before this fake pretends that `stop` was raised

 protected:
  virtual std::string respond(const std::vector<int32_t>& prompt) const = 0;
  const engine::Tokenizer& tokenizer_;

 private:
  engine::ModelInfo info_;
};

// Knows what stands in the last `window` tokens.
class WindowLm : public FakeLm {
 public:
  WindowLm(const engine::Tokenizer& tokenizer, size_t window) : FakeLm(tokenizer), window_(window) {}

 protected:
  std::string respond(const std::vector<int32_t>& prompt) const override;

 private:
  size_t window_;
};

// Always knows.
class KnowingLm : public WindowLm {
 public:
  explicit KnowingLm(const engine::Tokenizer& tokenizer) : WindowLm(tokenizer, SIZE_MAX) {}
};

// Never does: says the same wrong thing.
class IgnorantLm : public FakeLm {
 public:
  using FakeLm::FakeLm;

 protected:
  std::string respond(const std::vector<int32_t>& prompt) const override;
};

}  // namespace hayfork::test
