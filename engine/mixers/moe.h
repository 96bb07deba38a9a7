// Mixture-of-experts feed-forward blocks: router, experts in any of the stored layouts (one tensor an expert, fused,
// transposed and interleaved, MXFP4), a shared expert, and Gemma 4's dense block beside the experts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/kernels/moe.h"
#include "engine/mixers/mixer.h"
#include "engine/mixers/mlp.h"

namespace hayfork::engine {

struct MoeSpec {
  int32_t n_experts = 0;
  int64_t width = 0;
  RouterParams router_params;
  std::string router;  // tensor without ".weight"
  bool router_bias = false;
  std::string experts;                                                 // "<…>.experts"
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";  // of "<experts>.<e>.<gate>.weight"
  // How the experts are stored. named: a tensor each, or fused gate_up_proj [E, 2·width, hidden] when the file has
  // that. gpt_oss: gate_up_proj [E, hidden, 2·width], interleaved, with biases; mxfp4: the same in blocks of 32.
  enum class Layout : uint8_t { named, gpt_oss, mxfp4 } layout = Layout::named;
  ExpertActivation act;
  std::optional<MlpSpec> shared;  // added to the experts' sum
  std::string shared_gate;        // "<…>.shared_expert_gate": σ of it scales the shared expert; empty: no scale
  // Gemma 4: the router sees the residual stream, normalised without weight and scaled.
  std::string router_scale, expert_scale;  // tensors [hidden], [E]; empty: none
};

// Gemma 4: y = norm₁(mlp(x)) + norm₂(experts(norm(h))), h the residual stream.
struct MoeBesideMlpSpec {
  MlpSpec mlp;
  MoeSpec moe;
  NormSpec after_mlp, before_experts, after_experts;
  float eps = 1e-6F;  // of the router's norm
};

// Throws: as Loader.
std::unique_ptr<Block> make_moe(Loader& loader, const MoeSpec& spec, int64_t hidden);
std::unique_ptr<Block> make_moe_beside_mlp(Loader& loader, const MoeBesideMlpSpec& spec, int64_t hidden);

}  // namespace hayfork::engine
