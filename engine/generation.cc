#include "engine/generation.h"

#include <algorithm>

#include "base/error.h"

namespace hayfork::engine {

Generation::Generation(const GenerateRequest& request, const Tokenizer* tokenizer, std::span<const int32_t> eos_ids)
    : request_(request), eos_ids_(eos_ids), stops_(request.stops) {
  if (tokenizer != nullptr) stream_ = tokenizer->stream();
}

bool Generation::push(Choice choice) {
  HAY_CHECK(!done_);
  answer_.ids.push_back(choice.id);
  answer_.logprobs.push_back(choice.logprob);
  if (!request_.ignore_eos && std::find(eos_ids_.begin(), eos_ids_.end(), choice.id) != eos_ids_.end()) {
    end(Finish::eos);  // its own text, if the vocabulary gives it any, is not part of the answer
    return true;
  }
  if (stream_) {
    if (const auto piece = stream_->push(choice.id)) answer_.text += stops_.feed(*piece);
  }
  if (stops_.hit()) {
    end(Finish::stop);
  } else if (n_ids() >= request_.max_new_tokens) {
    end(Finish::length);
  }
  return done_;
}

void Generation::end(Finish finish) {
  done_ = true;
  answer_.finish = finish;
  if (stream_ && !stops_.hit()) answer_.text += stops_.feed(stream_->finish());
  answer_.text += stops_.finish();
  if (stops_.hit()) {  // perhaps only by what the stream had held back
    answer_.finish = Finish::stop;
    answer_.stop = stops_.hit_text();
  }
}

GenerateAnswer Generation::take() {
  HAY_CHECK(done_);
  return std::move(answer_);
}

}  // namespace hayfork::engine
