// The experts of a model's layers and how much they have been used: what `probe --stats` and `show model` tell, and
// what the floor of a mixture is computed from.
#pragma once

#include <cstdint>
#include <vector>

namespace hayfork::engine {

struct ExpertLoad {
  int32_t layer = 0;
  int32_t per_token = 0;          // experts that a row is given to
  int64_t params = 0, bytes = 0;  // of one expert; bytes as they are resident
  std::vector<int64_t> rows;      // that each expert has computed since the model was loaded
};

}  // namespace hayfork::engine
