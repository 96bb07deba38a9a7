// One answer being generated: its ids, its text as it grows, and when it ends. Knows no model: the scheduler brings
// each chosen token and feeds back last_id() until push() says that the answer is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/lm.h"
#include "engine/sampling.h"
#include "engine/text/stop_matcher.h"
#include "engine/text/tokenizer.h"

namespace hayfork::engine {

class Generation {
 public:
  // `tokenizer` may be null: the text stays empty. All three must outlive the object.
  Generation(const GenerateRequest& request, const Tokenizer* tokenizer, std::span<const int32_t> eos_ids);

  // Adds a token; true when it was the last. Requires: not done.
  bool push(Choice choice);
  bool done() const { return done_; }
  int32_t last_id() const { return answer_.ids.back(); }
  int32_t n_ids() const { return static_cast<int32_t>(answer_.ids.size()); }
  const GenerateRequest& request() const { return request_; }
  // Requires: done(). Call once.
  GenerateAnswer take();

 private:
  void end(Finish finish);

  const GenerateRequest& request_;
  std::span<const int32_t> eos_ids_;
  StopMatcher stops_;
  std::unique_ptr<DecodeStream> stream_;
  GenerateAnswer answer_;
  bool done_ = false;
};

}  // namespace hayfork::engine
