#include "engine/mixers/lightning.h"

#include <cmath>

#include "base/error.h"
#include "engine/kernels/conv.h"
#include "engine/kernels/mixing.h"

namespace hayfork::engine {
namespace {

class Lightning : public Mixer {
 public:
  Lightning(Loader& loader, const LightningSpec& spec, int64_t hidden);

  void forward(LayerPass& pass, Matrix y, Matrix x) const override;
  int64_t scratch_bytes(int64_t n_rows, DType activation) const override {
    return Scratch::bytes(n_rows, in_->n, activation) + Scratch::bytes(n_rows, o_width(), activation) +
           Scratch::bytes(1, chunk_scratch_bytes(chunk_bytes_, n_rows), DType::u8);
  }
  StateSpec state() const override { return {.state_bytes = state_bytes_}; }
  LayerInfo info() const override {
    return {.kind = spec_.kind,
            .position = spec_.rope >= 0 ? "rope" : "nope",
            .n_heads = spec_.heads.n,
            .n_kv_heads = spec_.heads.n_k,
            .head_dim = spec_.heads.dk};
  }

 private:
  int64_t q_width() const { return int64_t{spec_.heads.n_q} * spec_.heads.dk; }
  int64_t k_width() const { return int64_t{spec_.heads.n_k} * spec_.heads.dk; }
  int64_t v_width() const { return int64_t{spec_.heads.n_v} * spec_.heads.dv; }
  int64_t o_width() const { return int64_t{spec_.heads.n} * spec_.heads.dv; }

  LightningSpec spec_;
  std::unique_ptr<LinearWeight> in_, out_;
  std::optional<Norm> q_norm_, k_norm_, out_norm_;
  Vector log_decay_;
  int64_t state_bytes_ = 0, chunk_bytes_ = 0;
};

Lightning::Lightning(Loader& loader, const LightningSpec& spec, int64_t hidden) : spec_(spec) {
  std::vector<Loader::Part> parts;
  for (const auto* list : {&spec.q, &spec.k, &spec.v, &spec.gate})
    parts.insert(parts.end(), list->begin(), list->end());
  in_ = loader.linear(parts, hidden);
  HAY_CHECK(in_->n == q_width() + k_width() + v_width() + (spec.gate.empty() ? 0 : o_width()));
  out_ = loader.linear({{spec.o + ".weight", hidden, "", {}}}, o_width());
  if (spec.q_norm) q_norm_ = make_norm(loader, *spec.q_norm, spec.heads.dk);
  if (spec.k_norm) k_norm_ = make_norm(loader, *spec.k_norm, spec.heads.dk);
  if (spec.out_norm) out_norm_ = make_norm(loader, *spec.out_norm, spec.norm_all_heads ? o_width() : spec.heads.dv);
  HAY_CHECK(spec.log_decay.size() == static_cast<size_t>(spec.heads.n));
  log_decay_ = loader.vector(spec.log_decay);
  state_bytes_ = decay_attention_state_bytes(loader.context(), spec.heads, false);
  chunk_bytes_ = decay_attention_chunk_bytes(loader.context(), spec.heads, false);
}

void Lightning::forward(LayerPass& pass, Matrix y, Matrix x) const {
  Context& ctx = pass.context;
  Matrix fused = pass.scratch.matrix(x.rows, in_->n, ctx.activation());
  linear_rows(pass, fused, x, *in_);
  Matrix q = fused.columns(0, q_width());
  Matrix k = fused.columns(q_width(), k_width());
  Matrix v = fused.columns(q_width() + k_width(), v_width());
  if (spec_.silu) {
    Matrix qkv = fused.columns(0, q_width() + k_width() + v_width());
    silu(ctx, qkv, qkv);
  }
  if (q_norm_) (*q_norm_)(ctx, q, q);
  if (k_norm_) (*k_norm_)(ctx, k, k);
  if (spec_.rope >= 0) {
    const RopeAngles angles = pass.angles[static_cast<size_t>(spec_.rope)];
    rope(ctx, q, 0, angles, spec_.heads.dk);
    rope(ctx, k, 0, angles, spec_.heads.dk);
  }
  if (spec_.q_scale != 1) combine(ctx, q, q, spec_.q_scale, q, 0);
  Matrix o = pass.scratch.matrix(x.rows, o_width(), ctx.activation());
  const StateView state{static_cast<char*>(pass.cache.state(pass.layer, 0)), state_bytes_, 0};
  decay_attention(ctx, pass.pass, o, q, k, v, {.per_head = log_decay_, .per_token = {}, .per_channel = {}}, {}, {},
                  spec_.heads, state, pass.scratch.matrix(1, chunk_scratch_bytes(chunk_bytes_, x.rows), DType::u8));
  if (out_norm_) (*out_norm_)(ctx, o, o);
  if (!spec_.gate.empty()) {
    Matrix gate = fused.columns(q_width() + k_width() + v_width(), o_width());
    if (spec_.gate_silu) {
      act_mul(ctx, o, gate, o, Activation::silu);
    } else {
      sigmoid_mul(ctx, o, gate, o);
    }
  }
  linear_rows(pass, y, o, *out_);
}

}  // namespace

std::unique_ptr<Mixer> make_lightning(Loader& loader, const LightningSpec& spec, int64_t hidden) {
  return std::make_unique<Lightning>(loader, spec, hidden);
}

std::vector<float> log_decays(const std::string& generator, int32_t n_heads, int32_t layer, int32_t n_layers) {
  std::vector<float> logs;
  for (int32_t h = 0; h < n_heads; ++h) {
    double value = 0;
    if (generator == "fla") {
      value = -(8.0 / n_heads) * (1.0 - static_cast<double>(layer) / n_layers) * h;
    } else if (generator == "minimax") {
      value = -std::pow(2.0, -8.0 / n_heads * (h + 1)) * (1.0 - layer / (n_layers - 1 + 1e-5) + 1e-5);
    } else if (generator == "retnet") {
      value = std::log1p(-std::pow(2.0, -5.0 - h));
    } else {
      return {};
    }
    logs.push_back(static_cast<float>(value));
  }
  return logs;
}

}  // namespace hayfork::engine
