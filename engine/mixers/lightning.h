// Linear attention with a constant decay per head: Lightning (Qin et al. 2024, arXiv 2405.17381; MiniMax) and RetNet
// (Sun et al. 2023, arXiv 2307.08621).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/kernels/decay_attention.h"
#include "engine/loader.h"
#include "engine/mixers/mixer.h"

namespace hayfork::engine {

struct LightningSpec {
  std::string kind;                         // "lightning" or "retnet", for people
  DecayHeads heads;                         // n = n_q query heads, one state each
  std::vector<Loader::Part> q, k, v, gate;  // gate empty: none
  bool silu = false;                        // on q, k and v
  std::optional<NormSpec> q_norm, k_norm;   // per head
  int32_t rope = -1;
  float q_scale = 1;
  std::vector<float> log_decay;  // [n]
  std::optional<NormSpec> out_norm;
  bool norm_all_heads = false;  // over all channels instead of per head
  bool gate_silu = false;       // instead of the sigmoid
  std::string o;                // without ".weight"
};

// Throws: as Loader.
std::unique_ptr<Mixer> make_lightning(Loader& loader, const LightningSpec& spec, int64_t hidden);

// ln γ of every head for a generator, named after who defines it so ("fla", "minimax", "retnet"). Empty: unknown name.
std::vector<float> log_decays(const std::string& generator, int32_t n_heads, int32_t layer, int32_t n_layers);

}  // namespace hayfork::engine
