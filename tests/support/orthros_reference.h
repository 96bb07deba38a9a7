// Orthros over llama or Qwen3 in float64, written from orthros.md section 1 as ordinary attention over T base rows and
// T output rows under one mask (the mask oracle of section 10, test 1). Shares no code with the engine.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/tiny_orthros.h"

namespace hayfork::test {

// Logits of the output stream at every position, [T · V].
std::vector<float> mask_oracle(const TinyCheckpoint& checkpoint, const OrthrosShape& shape,
                               const std::vector<int32_t>& ids);

}  // namespace hayfork::test
