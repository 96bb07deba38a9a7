// Gated linear attention: a decay per key channel and token. Yang et al. 2023 (arXiv 2312.06635).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/decay_attention.h"
#include "engine/loader.h"
#include "engine/mixers/mixer.h"

namespace hayfork::engine {

struct GlaSpec {
  DecayHeads heads;
  std::vector<Loader::Part> q, k, v, gate;  // gate empty: none
  std::string decay_down, decay_up;         // low-rank decay projection; up has a bias
  int64_t decay_rank = 16;
  float gate_normalizer = 16;
  float floor = -std::numeric_limits<float>::infinity();  // of the log decay
  NormSpec out_norm;                                      // per head
  std::string o;
};

// Throws: as Loader.
std::unique_ptr<Mixer> make_gla(Loader& loader, const GlaSpec& spec, int64_t hidden);

}  // namespace hayfork::engine
