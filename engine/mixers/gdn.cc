#include "engine/mixers/gdn.h"

#include <cmath>

#include "base/error.h"
#include "engine/kernels/conv.h"
#include "engine/kernels/mixing.h"

namespace hayfork::engine {
namespace {

constexpr float kNormEps = 1e-6F;  // fixed in every implementation, not rms_norm_eps

class Gdn : public Mixer {
 public:
  Gdn(Loader& loader, const GdnSpec& spec, int64_t hidden);

  void forward(LayerPass& pass, Matrix y, Matrix x) const override;
  int64_t scratch_bytes(int64_t n_rows, DType activation) const override {
    return Scratch::bytes(n_rows, width(), activation) + Scratch::bytes(n_rows, o_width(), activation) +
           Scratch::bytes(1, chunk_scratch_bytes(chunk_bytes_, n_rows), DType::u8);
  }
  StateSpec state() const override { return {.state_bytes = conv_bytes_ + delta_bytes_}; }
  LayerInfo info() const override;

 private:
  int64_t q_width() const { return int64_t{spec_.heads.n_q} * spec_.heads.dk; }
  int64_t k_width() const { return int64_t{spec_.heads.n_k} * spec_.heads.dk; }
  int64_t v_width() const { return int64_t{spec_.heads.n_v} * spec_.heads.dv; }
  int64_t o_width() const { return int64_t{spec_.heads.n_out()} * spec_.heads.dv; }
  int64_t qkv_width() const { return q_width() + k_width() + v_width(); }
  int64_t gate_width() const { return spec_.gate.empty() ? 0 : o_width(); }
  int64_t width() const { return qkv_width() + gate_width() + 2 * spec_.heads.n_v; }
  void activate(LayerPass& pass, Matrix qkv, StateView state) const;

  GdnSpec spec_;
  std::unique_ptr<LinearWeight> in_, out_;
  Vector conv_, a_log_, dt_bias_, affine_scale_, affine_offset_;
  Norm out_norm_;
  int64_t conv_bytes_ = 0, delta_bytes_ = 0, chunk_bytes_ = 0;
};

Gdn::Gdn(Loader& loader, const GdnSpec& spec, int64_t hidden) : spec_(spec) {
  std::vector<Loader::Part> parts;
  for (const auto* list : {&spec.q, &spec.k, &spec.v, &spec.gate, &spec.a, &spec.b}) {
    parts.insert(parts.end(), list->begin(), list->end());
  }
  in_ = loader.linear(parts, hidden);
  HAY_CHECK(in_->n == width());
  out_ = loader.linear({{spec.o + ".weight", hidden, "", {}}}, o_width());
  if (!spec.conv.empty()) {
    const auto channels = static_cast<size_t>(qkv_width()), taps = static_cast<size_t>(spec.taps);
    std::vector<float> transposed(channels * taps);
    size_t first = 0;
    for (const auto& [tensor, n] : spec.conv) {
      const std::vector<float> w = loader.host(tensor, {n, 1, spec.taps});
      for (size_t c = 0; c < static_cast<size_t>(n); ++c) {
        for (size_t m = 0; m < taps; ++m) transposed[m * channels + first + c] = w[c * taps + m];
      }
      first += static_cast<size_t>(n);
    }
    HAY_CHECK(first == channels);
    conv_ = loader.vector(transposed);
    conv_bytes_ = state_bytes(conv_state_floats(qkv_width(), spec.taps));
  }
  a_log_ = loader.vector(spec.a_log, {spec.heads.n_v});
  dt_bias_ = loader.vector(spec.dt_bias, {spec.heads.n_v});
  out_norm_ = make_norm(loader, spec.out_norm, spec.heads.dv);
  if (!spec.output_affine.empty()) {
    affine_scale_ = loader.vector(spec.output_affine + ".scale", {q_width()});
    affine_offset_ = loader.vector(spec.output_affine + ".offset", {q_width()});
  }
  delta_bytes_ = gated_delta_state_bytes(loader.context(), spec.heads);
  chunk_bytes_ = gated_delta_chunk_bytes(loader.context(), spec.heads);
}

LayerInfo Gdn::info() const {
  return {.kind = "gdn",
          .position = "nope",
          .n_heads = spec_.heads.n_out(),
          .n_kv_heads = spec_.heads.n_v,
          .head_dim = spec_.heads.dk};
}

// Base rows: convolution and SiLU over q, k, v. Output rows: their query alone, without the convolution, whose
// neighbours need not exist in that stream.
void Gdn::activate(LayerPass& pass, Matrix qkv, StateView state) const {
  if (conv_) causal_conv_silu(pass.context, pass.pass, qkv, conv_, {}, spec_.taps, state);
  for (const RowGroup& group : pass.groups) {
    const Matrix rows = qkv.row_range(group.begin, group.end);
    if (group.stream == Stream::base) {
      if (!conv_) silu(pass.context, rows, rows);
      continue;
    }
    const Matrix q = rows.columns(0, q_width());
    if (affine_scale_) affine(pass.context, q, affine_scale_, affine_offset_);
    if (spec_.output_query_silu) silu(pass.context, q, q);
  }
}

void Gdn::forward(LayerPass& pass, Matrix y, Matrix x) const {
  Context& ctx = pass.context;
  Matrix fused = pass.scratch.matrix(x.rows, width(), ctx.activation());
  linear_rows(pass, fused, x, *in_);
  const StateView state{static_cast<char*>(pass.cache.state(pass.layer, 0)), conv_bytes_ + delta_bytes_, 0};
  activate(pass, fused.columns(0, qkv_width()), state);

  Matrix q = fused.columns(0, q_width());
  Matrix k = fused.columns(q_width(), k_width());
  Matrix v = fused.columns(q_width() + k_width(), v_width());
  l2norm(ctx, q, kNormEps, static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec_.heads.dk))), spec_.heads.dk);
  l2norm(ctx, k, kNormEps, 1, spec_.heads.dk);
  const int64_t after_gate = qkv_width() + gate_width();
  Matrix a = fused.columns(after_gate, spec_.heads.n_v);
  Matrix b = fused.columns(after_gate + spec_.heads.n_v, spec_.heads.n_v);
  Matrix o = pass.scratch.matrix(x.rows, o_width(), ctx.activation());
  gated_delta(ctx, pass.pass, o, q, k, v, a, b, a_log_, dt_bias_, spec_.heads, state.at(conv_bytes_),
              pass.scratch.matrix(1, chunk_scratch_bytes(chunk_bytes_, x.rows), DType::u8));

  out_norm_(ctx, o, o);
  if (!spec_.gate.empty()) {
    Matrix gate = fused.columns(qkv_width(), o_width());
    if (spec_.gate_sigmoid) {
      sigmoid_mul(ctx, o, gate, o);
    } else {
      act_mul(ctx, o, gate, o, Activation::silu);
    }
  }
  linear_rows(pass, y, o, *out_);
}

}  // namespace

std::unique_ptr<Mixer> make_gdn(Loader& loader, const GdnSpec& spec, int64_t hidden) {
  return std::make_unique<Gdn>(loader, spec, hidden);
}

}  // namespace hayfork::engine
