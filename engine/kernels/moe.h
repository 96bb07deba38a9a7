// Mixture of experts: choosing experts for every row, and running the chosen ones (model_families.md 5, 11, 12).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/context.h"
#include "engine/kernels/ops.h"
#include "engine/rows.h"
#include "engine/tensor.h"

namespace hayfork::engine {

struct RouterParams {
  int32_t top_k = 0;
  bool softmax_over_chosen = false;  // softmax of the chosen logits alone; else of all, chosen afterwards
  bool renormalise = false;          // chosen probabilities divided by their sum
};
// The experts of each row, [rows, top_k]: by falling logit, the lower index among equals.
struct Routing {
  int32_t* expert = nullptr;
  float* weight = nullptr;
  int32_t top_k = 0;
};
// `scale` [E] multiplies the weight of an expert; may be absent. Requires: out has room for rows · top_k.
void route(Context& context, Routing out, Matrix logits, const RouterParams& params, Vector scale);

// The experts' weights: gate and up fused, [2·width, hidden], then down [hidden, width].
struct ExpertWeights {
  int64_t hidden = 0, width = 0;
  std::vector<std::unique_ptr<LinearWeight>> gate_up, down;
};
struct ExpertActivation {
  Activation act = Activation::silu;
  float limit = 0;  // > 0: gpt-oss' clamped form, (clamp(up) + 1) · gate σ(alpha · gate), gate ≤ limit
  float alpha = 1.702F;
};
// Memory for the rows of one expert.
struct ExpertScratch {
  Matrix x, gate_up, y;  // [rows, hidden], [rows, 2·width], [rows, hidden]
};
// y = Σ weight · expert(x) over each row's experts, in ascending order of the expert's index. `kinds` of the rows as in
// the pass: each expert's linears run once a kind (rulings A2).
void run_experts(Context& context, Matrix y, Matrix x, const Routing& routing, const ExpertWeights& weights,
                 const ExpertActivation& act, const RowGroups& groups, const ExpertScratch& scratch);

}  // namespace hayfork::engine
