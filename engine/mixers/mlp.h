// The gated feed-forward block: y = down(act(gate(x)) ⊙ up(x)). Shazeer 2020 (arXiv 2002.05202), section 2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/mixers/mixer.h"

namespace hayfork::engine {

struct MlpSpec {
  int64_t width = 0;
  Activation act = Activation::silu;
  std::string gate, up, down;  // tensor names without ".weight"
  bool bias = false;
};

// Throws: as Loader.
std::unique_ptr<Block> make_mlp(Loader& loader, const MlpSpec& spec, int64_t hidden);

}  // namespace hayfork::engine
