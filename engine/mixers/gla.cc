#include "engine/mixers/gla.h"

#include <cmath>

#include "base/error.h"
#include "engine/kernels/mixing.h"

namespace hayfork::engine {
namespace {

class Gla : public Mixer {
 public:
  Gla(Loader& loader, const GlaSpec& spec, int64_t hidden) : spec_(spec) {
    std::vector<Loader::Part> parts;
    for (const auto* list : {&spec.q, &spec.k, &spec.v, &spec.gate}) {
      parts.insert(parts.end(), list->begin(), list->end());
    }
    parts.push_back({spec.decay_down + ".weight", spec.decay_rank, "", {}});
    in_ = loader.linear(parts, hidden);
    HAY_CHECK(in_->n == before_rank() + spec.decay_rank);
    decay_ = loader.linear({{spec.decay_up + ".weight", k_width(), spec.decay_up + ".bias", {}}}, spec.decay_rank);
    out_ = loader.linear({{spec.o + ".weight", hidden, "", {}}}, o_width());
    out_norm_ = make_norm(loader, spec.out_norm, spec.heads.dv);
    state_bytes_ = decay_attention_state_bytes(loader.context(), spec.heads, true);
    chunk_bytes_ = decay_attention_chunk_bytes(loader.context(), spec.heads, true);
  }

  void forward(LayerPass& pass, Matrix y, Matrix x) const override;
  int64_t scratch_bytes(int64_t n_rows, DType activation) const override {
    return Scratch::bytes(n_rows, in_->n, activation) + Scratch::bytes(n_rows, k_width(), activation) +
           Scratch::bytes(n_rows, k_width(), DType::f32) + Scratch::bytes(n_rows, o_width(), activation) +
           Scratch::bytes(1, chunk_scratch_bytes(chunk_bytes_, n_rows), DType::u8);
  }
  StateSpec state() const override { return {.state_bytes = state_bytes_}; }
  LayerInfo info() const override {
    return {.kind = "gla",
            .position = "nope",
            .n_heads = spec_.heads.n,
            .n_kv_heads = spec_.heads.n_k,
            .head_dim = spec_.heads.dk};
  }

 private:
  int64_t q_width() const { return int64_t{spec_.heads.n_q} * spec_.heads.dk; }
  int64_t k_width() const { return int64_t{spec_.heads.n_k} * spec_.heads.dk; }
  int64_t v_width() const { return int64_t{spec_.heads.n_v} * spec_.heads.dv; }
  int64_t o_width() const { return int64_t{spec_.heads.n} * spec_.heads.dv; }
  int64_t before_rank() const { return q_width() + k_width() + v_width() + (spec_.gate.empty() ? 0 : o_width()); }

  GlaSpec spec_;
  std::unique_ptr<LinearWeight> in_, decay_, out_;
  Norm out_norm_;
  int64_t state_bytes_ = 0, chunk_bytes_ = 0;
};

void Gla::forward(LayerPass& pass, Matrix y, Matrix x) const {
  Context& ctx = pass.context;
  Matrix fused = pass.scratch.matrix(x.rows, in_->n, ctx.activation());
  linear_rows(pass, fused, x, *in_);
  Matrix q = fused.columns(0, q_width());
  Matrix k = fused.columns(q_width(), k_width());
  Matrix v = fused.columns(q_width() + k_width(), v_width());
  combine(ctx, q, q, static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec_.heads.dk))), q, 0);
  Matrix gates = pass.scratch.matrix(x.rows, k_width(), ctx.activation());
  Matrix logs = pass.scratch.matrix(x.rows, k_width(), DType::f32);
  linear_rows(pass, gates, fused.columns(before_rank(), spec_.decay_rank), *decay_);
  log_sigmoid(ctx, logs, gates, 1.0F / spec_.gate_normalizer, spec_.floor);
  Matrix o = pass.scratch.matrix(x.rows, o_width(), ctx.activation());
  const StateView state{static_cast<char*>(pass.cache.state(pass.layer, 0)), state_bytes_, 0};
  decay_attention(ctx, pass.pass, o, q, k, v, {.per_head = {}, .per_token = {}, .per_channel = logs}, {}, {},
                  spec_.heads, state, pass.scratch.matrix(1, chunk_scratch_bytes(chunk_bytes_, x.rows), DType::u8));
  out_norm_(ctx, o, o);
  if (!spec_.gate.empty()) {
    act_mul(ctx, o, fused.columns(q_width() + k_width() + v_width(), o_width()), o, Activation::silu);
  }
  linear_rows(pass, y, o, *out_);
}

}  // namespace

std::unique_ptr<Mixer> make_gla(Loader& loader, const GlaSpec& spec, int64_t hidden) {
  return std::make_unique<Gla>(loader, spec, hidden);
}

}  // namespace hayfork::engine
