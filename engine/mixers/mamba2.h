// Mamba-2 (Dao & Gu 2024, arXiv 2405.21060): state-space duality with one decay per head and token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/mixers/mixer.h"

namespace hayfork::engine {

struct Mamba2Spec {
  int32_t n_heads = 0, head_dim = 0, state_size = 0, n_groups = 1;
  int32_t taps = 0;  // 0: no convolution
  bool conv_bias = false, bias = false;
  bool norm_before_gate = false;
  bool skip_per_channel = false;  // D has one value a channel
  float dt_low = 0, dt_high = 0;
  float eps = 1e-5F;
  std::string
      tensors;  // "<…>.mixer.": + in_proj.weight, conv1d.weight, dt_bias, A_log, D, norm.weight, out_proj.weight
};

// Throws: as Loader.
std::unique_ptr<Mixer> make_mamba2(Loader& loader, const Mamba2Spec& spec, int64_t hidden);

}  // namespace hayfork::engine
