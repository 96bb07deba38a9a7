// What the Qwen mixtures share: sizes, names, and which layers have experts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/models/family.h"

namespace hayfork::engine {

struct MoeShape {
  int32_t n_experts = 0, top_k = 0;
  int64_t width = 0, shared_width = 0;  // shared 0: none
  bool renormalise = false;
};
// Throws: corrupt.
MoeShape read_moe_shape(const Config& config, bool renormalise, int64_t default_experts, int64_t default_top_k);
MoeSpec qwen_experts(const MoeShape& moe, const Shape& shape, const std::string& layer);
// Layer i has experts unless it is in mlp_only_layers or (i + 1) does not divide by decoder_sparse_step.
std::vector<bool> moe_layers(const Config& config, int32_t n_layers);

}  // namespace hayfork::engine
