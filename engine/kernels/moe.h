// Mixture of experts: choosing experts for every row, and running the chosen ones. The
// host never learns how many rows an expert got: on CUDA rows are sorted by expert, multiplied and summed up on the
// device alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
// The experts of each row, [rows, top_k]: by falling logit, the lower index among equals; NaN counts as −∞.
struct Routing {
  int32_t* expert = nullptr;
  float* weight = nullptr;
  int32_t top_k = 0;
  // Rows [begin, …).
  Routing from(int64_t begin) const { return {expert + begin * top_k, weight + begin * top_k, top_k}; }
};
// `scale` [E] multiplies the weight of an expert; may be absent. Requires: logits f32, out has room for rows · top_k.
void route(Context& context, Routing out, Matrix logits, const RouterParams& params, Vector scale);

struct ExpertShape {
  int64_t n_experts = 0, hidden = 0, width = 0;
  bool mxfp4 = false;  // filled with set_mxfp4()
  bool bias = false;
};
// Rows of MXFP4 (OCP Microscaling 1.0), [n, k/32, 16] and [n, k/32]: value 2j of a block is the
// low nibble of its byte j. No exponent is 255.
struct Mxfp4Rows {
  const uint8_t* blocks = nullptr;
  const uint8_t* exponents = nullptr;
};
// The experts of one layer, prepared for one device: gate and up rows [2·width, hidden] (gate first), down [hidden,
// width]. Filled once at load, each expert in ascending order. MXFP4 stays MXFP4 on CUDA under bf16 and
// is expanded otherwise; the values are exact either way.
class Experts {
 public:
  enum class Part : uint8_t { gate_up, down };
  virtual ~Experts() = default;
  // Copies. `bias` in host memory, one number a row; empty without biases.
  virtual void set(Context& context, Part part, int64_t e, std::span<const LinearPart> rows,
                   std::span<const float> bias) = 0;
  // Throws: unsupported when an expert's exponents lie too far apart for bf16.
  virtual void set_mxfp4(Context& context, Part part, int64_t e, Mxfp4Rows rows, std::span<const float> bias) = 0;
  // Memory that run_experts needs for `n_rows` rows.
  virtual int64_t scratch_bytes(int64_t n_rows, int32_t top_k) const = 0;
  // Rows each expert has been given since it was made.
  virtual std::vector<int64_t> load(Context& context) const = 0;

  ExpertShape shape;
  int64_t bytes = 0;  // resident
};
// Throws: resource; unsupported (more experts than the device's kernels sort).
std::unique_ptr<Experts> make_experts(Context& context, const ExpertShape& shape);

struct ExpertActivation {
  Activation act = Activation::silu;
  float limit = 0;  // > 0: gpt-oss' clamped form, (clamp(up) + 1) · gate σ(alpha · gate), gate ≤ limit
  float alpha = 1.702F;
};
// y = Σ weight · expert(x) over each row's experts, in ascending order of the expert's index. `groups` of the rows as
// in the pass: prefill and decode rows are multiplied apart. On CUDA the activation works on float32 sums
// and is rounded once, each expert's output is rounded once, and their sum is formed in float32 and rounded once.
void run_experts(Context& context, Matrix y, Matrix x, const Routing& routing, const Experts& experts,
                 const ExpertActivation& act, const RowGroups& groups, void* scratch);

}  // namespace hayfork::engine
