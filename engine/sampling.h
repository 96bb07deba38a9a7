// Choosing the next token from a row of logits. Greedy choices come from the head's arg max and need no logits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/lm.h"

namespace hayfork::engine {

struct Choice {
  int32_t id = 0;
  float logprob = 0;  // of the model's own distribution: temperature and limits change the draw, not this
};

// What is wrong with these settings; empty when nothing is.
std::string sampling_fault(const Sampling& sampling);

// Draws from softmax(logits / temperature), after keeping the top_k largest and then the fewest whose probabilities
// reach top_p; equal logits rank by id. The draw is a function of seed, position and logits alone.
// Requires: temperature > 0, finite logits, no sampling_fault.
Choice sample(std::span<const float> logits, const Sampling& sampling, int64_t position);

}  // namespace hayfork::engine
