#include "engine/mixers/mamba2.h"

#include "engine/kernels/conv.h"
#include "engine/kernels/decay_attention.h"
#include "engine/loader.h"

namespace hayfork::engine {
namespace {

class Mamba2 : public Mixer {
 public:
  Mamba2(Loader& loader, const Mamba2Spec& spec, int64_t hidden);

  void forward(LayerPass& pass, Matrix y, Matrix x) const override;
  int64_t scratch_bytes(int64_t n_rows, DType activation) const override {
    return Scratch::bytes(n_rows, in_->n, activation) + Scratch::bytes(n_rows, inter(), activation) +
           2 * Scratch::bytes(n_rows, spec_.n_heads, DType::f32) +
           Scratch::bytes(1, chunk_scratch_bytes(chunk_bytes_, n_rows), DType::u8);
  }
  StateSpec state() const override { return {.state_bytes = conv_bytes_ + scan_bytes_}; }
  LayerInfo info() const override {
    return {.kind = "mamba2",
            .position = "nope",
            .n_heads = spec_.n_heads,
            .n_kv_heads = spec_.n_groups,
            .head_dim = spec_.head_dim};
  }

 private:
  int64_t inter() const { return int64_t{spec_.n_heads} * spec_.head_dim; }
  int64_t bc() const { return int64_t{spec_.n_groups} * spec_.state_size; }
  int64_t xbc() const { return inter() + 2 * bc(); }
  void gated_norm(LayerPass& pass, Matrix y, Matrix z) const;

  Mamba2Spec spec_;
  DecayHeads heads_;
  std::unique_ptr<LinearWeight> in_, out_;
  Vector conv_, conv_bias_, dt_bias_, a_log_, skip_, norm_;
  int64_t conv_bytes_ = 0, scan_bytes_ = 0, chunk_bytes_ = 0;
};

Mamba2::Mamba2(Loader& loader, const Mamba2Spec& spec, int64_t hidden)
    : spec_(spec),
      // q = C, k = B (shared by the heads of a group), v = dt · x.
      heads_{.n = spec.n_heads,
             .n_q = spec.n_groups,
             .n_k = spec.n_groups,
             .n_v = spec.n_heads,
             .dk = spec.state_size,
             .dv = spec.head_dim} {
  const std::string& t = spec.tensors;
  in_ = loader.linear({{t + "in_proj.weight", inter() + xbc() + spec.n_heads, spec.bias ? t + "in_proj.bias" : "", {}}},
                      hidden);
  out_ = loader.linear({{t + "out_proj.weight", hidden, spec.bias ? t + "out_proj.bias" : "", {}}}, inter());
  if (spec.taps > 0) {
    const auto channels = static_cast<size_t>(xbc()), taps = static_cast<size_t>(spec.taps);
    const std::vector<float> w = loader.host(t + "conv1d.weight", {xbc(), 1, spec.taps});
    std::vector<float> transposed(w.size());
    for (size_t c = 0; c < channels; ++c) {
      for (size_t m = 0; m < taps; ++m) transposed[m * channels + c] = w[c * taps + m];
    }
    conv_ = loader.vector(transposed);
    if (spec.conv_bias) conv_bias_ = loader.vector(t + "conv1d.bias", {xbc()});
    conv_bytes_ = state_bytes(conv_state_floats(xbc(), spec.taps));
  }
  dt_bias_ = loader.vector(t + "dt_bias", {spec.n_heads});
  a_log_ = loader.vector(t + "A_log", {spec.n_heads});
  skip_ = loader.vector(t + "D", {spec.skip_per_channel ? inter() : spec.n_heads});
  norm_ = loader.vector(t + "norm.weight", {inter()});
  scan_bytes_ = decay_attention_state_bytes(loader.context(), heads_, false);
  chunk_bytes_ = decay_attention_chunk_bytes(loader.context(), heads_, false);
}

// RMS norm over each group's channels; the gate before it (default) or after it.
void Mamba2::gated_norm(LayerPass& pass, Matrix y, Matrix z) const {
  if (!spec_.norm_before_gate) act_mul(pass.context, y, z, y, Activation::silu);
  const int64_t group = inter() / spec_.n_groups;
  for (int64_t g = 0; g < spec_.n_groups; ++g) {
    Matrix part = y.columns(g * group, group);
    rmsnorm(pass.context, part, part, {norm_.data + g * group, group}, spec_.eps, NormKind::one_cast, group);
  }
  if (spec_.norm_before_gate) act_mul(pass.context, y, z, y, Activation::silu);
}

void Mamba2::forward(LayerPass& pass, Matrix y, Matrix x) const {
  Context& ctx = pass.context;
  Matrix fused = pass.scratch.matrix(x.rows, in_->n, ctx.activation());  // z | x, B, C | dt
  linear_rows(pass, fused, x, *in_);
  const StateView state{static_cast<char*>(pass.cache.state(pass.layer, 0)), conv_bytes_ + scan_bytes_, 0};
  Matrix mixed = fused.columns(inter(), xbc());
  if (spec_.taps > 0) {
    causal_conv_silu(ctx, pass.pass, mixed, conv_, conv_bias_, spec_.taps, state);
  } else {
    silu(ctx, mixed, mixed);
  }
  Matrix dt = fused.columns(inter() + xbc(), spec_.n_heads);
  Matrix steps = pass.scratch.matrix(x.rows, spec_.n_heads, DType::f32);
  Matrix log_decay = pass.scratch.matrix(x.rows, spec_.n_heads, DType::f32);
  mamba2_steps(ctx, steps, log_decay, dt, dt_bias_, a_log_, spec_.dt_low, spec_.dt_high);
  Matrix o = pass.scratch.matrix(x.rows, inter(), ctx.activation());
  decay_attention(ctx, pass.pass, o, mixed.columns(inter() + bc(), bc()), mixed.columns(inter(), bc()),
                  mixed.columns(0, inter()), {.per_head = {}, .per_token = log_decay, .per_channel = {}}, steps, skip_,
                  heads_, state.at(conv_bytes_),
                  pass.scratch.matrix(1, chunk_scratch_bytes(chunk_bytes_, x.rows), DType::u8));
  gated_norm(pass, o, fused.columns(0, inter()));
  linear_rows(pass, y, o, *out_);
}

}  // namespace

std::unique_ptr<Mixer> make_mamba2(Loader& loader, const Mamba2Spec& spec, int64_t hidden) {
  return std::make_unique<Mamba2>(loader, spec, hidden);
}

}  // namespace hayfork::engine
