#include "engine/mixers/moe.h"

#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/kernels/mixing.h"
#include "engine/loader.h"
#include "engine/mixers/experts.h"

namespace hayfork::engine {
namespace {

class Moe : public Block {
 public:
  Moe(Loader& loader, const MoeSpec& spec, int64_t hidden) : spec_(spec), hidden_(hidden) {
    router_ = loader.linear(
        {{spec.router + ".weight", spec.n_experts, spec.router_bias ? spec.router + ".bias" : "", {}}}, hidden);
    if (!spec.expert_scale.empty()) expert_scale_ = loader.vector(spec.expert_scale, {spec.n_experts});
    experts_ = load_experts(loader, spec, hidden);
    if (spec.shared) shared_ = make_mlp(loader, *spec.shared, hidden);
    if (!spec.shared_gate.empty()) shared_gate_ = loader.linear({{spec.shared_gate + ".weight", 1, "", {}}}, hidden);
  }

  void forward(LayerPass& pass, Matrix y, Matrix x) const override { forward_routed(pass, y, x, x); }

  // The router sees other rows than the experts.
  void forward_routed(LayerPass& pass, Matrix y, Matrix x, Matrix router_input) const {
    Context& ctx = pass.context;
    const int64_t start = pass.scratch.mark();
    Matrix logits = pass.scratch.matrix(x.rows, spec_.n_experts, DType::f32);  // unrounded: fewer experts are swapped
    linear_rows(pass, logits, router_input, *router_);
    const int32_t k = spec_.router_params.top_k;
    const Routing routing{static_cast<int32_t*>(pass.scratch.matrix(x.rows, k, DType::i32).data),
                          static_cast<float*>(pass.scratch.matrix(x.rows, k, DType::f32).data), k};
    route(ctx, routing, logits, spec_.router_params, expert_scale_);
    const int64_t after_routing = pass.scratch.mark();
    Matrix memory = pass.scratch.matrix(1, experts_->scratch_bytes(x.rows, k), DType::u8);
    run_experts(ctx, y, x, routing, *experts_, spec_.act, pass.groups, memory.data);
    pass.scratch.rewind(after_routing);
    if (shared_) add_shared(pass, y, x);
    pass.scratch.rewind(start);
  }

  std::optional<ExpertLoad> expert_load(Context& context) const override {
    return ExpertLoad{.layer = 0,
                      .per_token = spec_.router_params.top_k,
                      .params = 3 * hidden_ * spec_.width,
                      .bytes = experts_->bytes / spec_.n_experts,
                      .rows = experts_->load(context)};
  }

  int64_t scratch_bytes(int64_t n_rows, DType activation) const override {
    const int64_t experts = Scratch::bytes(1, experts_->scratch_bytes(n_rows, spec_.router_params.top_k), DType::u8);
    const int64_t shared = shared_
                               ? Scratch::bytes(n_rows, hidden_, activation) + Scratch::bytes(n_rows, 1, activation) +
                                     shared_->scratch_bytes(n_rows, activation)
                               : 0;
    return Scratch::bytes(n_rows, spec_.n_experts, DType::f32) +
           2 * Scratch::bytes(n_rows, spec_.router_params.top_k, DType::f32) + std::max(experts, shared);
  }

 private:
  void add_shared(LayerPass& pass, Matrix y, Matrix x) const {
    Context& ctx = pass.context;
    Matrix out = pass.scratch.matrix(x.rows, hidden_, ctx.activation());
    shared_->forward(pass, out, x);
    if (shared_gate_) {
      Matrix gate = pass.scratch.matrix(x.rows, 1, ctx.activation());
      linear_rows(pass, gate, x, *shared_gate_);
      sigmoid_mul(ctx, out, gate, out);
    }
    add(ctx, y, out, 1);
  }

  MoeSpec spec_;
  int64_t hidden_;
  std::unique_ptr<LinearWeight> router_, shared_gate_;
  Vector expert_scale_;
  std::unique_ptr<Experts> experts_;
  std::unique_ptr<Block> shared_;
};

class MoeBesideMlp : public Block {
 public:
  MoeBesideMlp(Loader& loader, const MoeBesideMlpSpec& spec, int64_t hidden)
      : hidden_(hidden), mlp_(make_mlp(loader, spec.mlp, hidden)), moe_(loader, spec.moe, hidden) {
    after_mlp_ = make_norm(loader, spec.after_mlp, hidden);
    before_experts_ = make_norm(loader, spec.before_experts, hidden);
    after_experts_ = make_norm(loader, spec.after_experts, hidden);
    // u = rms(h) · scale · hidden^-½: the two factors are one weight.
    std::vector<float> scale = loader.host(spec.moe.router_scale, {hidden});
    for (float& s : scale) s *= static_cast<float>(1.0 / std::sqrt(static_cast<double>(hidden)));
    router_norm_ = {.weight = loader.vector(scale), .kind = NormKind::one_cast, .eps = spec.eps, .group = hidden};
  }

  void forward(LayerPass& pass, Matrix y, Matrix x) const override {
    Context& ctx = pass.context;
    const int64_t start = pass.scratch.mark();
    mlp_->forward(pass, y, x);
    pass.scratch.rewind(start);
    after_mlp_(ctx, y, y);
    Matrix router_input = pass.scratch.matrix(x.rows, hidden_, ctx.activation());
    Matrix expert_input = pass.scratch.matrix(x.rows, hidden_, ctx.activation());
    Matrix sum = pass.scratch.matrix(x.rows, hidden_, ctx.activation());
    router_norm_(ctx, router_input, pass.residual);
    before_experts_(ctx, expert_input, pass.residual);
    moe_.forward_routed(pass, sum, expert_input, router_input);
    after_experts_(ctx, sum, sum);
    add(ctx, y, sum, 1);
  }

  std::optional<ExpertLoad> expert_load(Context& context) const override { return moe_.expert_load(context); }

  int64_t scratch_bytes(int64_t n_rows, DType activation) const override {
    return std::max(mlp_->scratch_bytes(n_rows, activation),
                    3 * Scratch::bytes(n_rows, hidden_, activation) + moe_.scratch_bytes(n_rows, activation));
  }

 private:
  int64_t hidden_;
  std::unique_ptr<Block> mlp_;
  Moe moe_;
  Norm after_mlp_, before_experts_, after_experts_, router_norm_;
};

}  // namespace

std::unique_ptr<Block> make_moe(Loader& loader, const MoeSpec& spec, int64_t hidden) {
  return std::make_unique<Moe>(loader, spec, hidden);
}

std::unique_ptr<Block> make_moe_beside_mlp(Loader& loader, const MoeBesideMlpSpec& spec, int64_t hidden) {
  return std::make_unique<MoeBesideMlp>(loader, spec, hidden);
}

}  // namespace hayfork::engine
