#include "engine/mixers/softmax.h"

#include <algorithm>

#include "base/error.h"
#include "engine/kernels/mixing.h"
#include "engine/loader.h"

namespace hayfork::engine {
namespace {

struct Affine {
  Vector scale, offset;
};

class Softmax : public Mixer {
 public:
  Softmax(Loader& loader, const SoftmaxSpec& spec, int64_t hidden);

  void forward(LayerPass& pass, Matrix y, Matrix x) const override;
  bool gives_wanted_rows() const override { return true; }
  int64_t scratch_bytes(int64_t n_rows, DType activation) const override {
    // At most a third of the rows is ever gathered as wanted ones: q, gate and o of these fit where o of all rows
    // would.
    return Scratch::bytes(n_rows, qkv_width(), activation) + Scratch::bytes(n_rows + 2, q_width(), activation) + 3 * 64;
  }
  StateSpec state() const override;
  LayerInfo info() const override;

 private:
  bool own_kv() const { return spec_.kv_layer < 0; }
  int64_t q_width() const { return int64_t{spec_.n_heads} * spec_.head_dim; }
  int64_t kv_width() const { return int64_t{spec_.n_kv_heads} * spec_.head_dim; }
  bool own_v() const { return own_kv() && !spec_.v.empty(); }
  // Columns of the fused projection: q, k, v (k again where v = k), gate.
  int64_t qkv_width() const { return q_width() + (own_kv() ? 2 * kv_width() : 0) + (spec_.gated ? q_width() : 0); }
  int32_t widest_window() const;
  void query_affine(LayerPass& pass, Matrix q) const;
  void rotate(LayerPass& pass, Matrix x, int32_t heads_per_kv_head) const;
  void write_kv(LayerPass& pass, Matrix k, Matrix v) const;
  bool finishes_at_once() const;
  void finish(LayerPass& pass, Matrix q, Matrix k, Matrix v) const;
  void finish_in_steps(LayerPass& pass, Matrix q, Matrix k, Matrix v) const;
  void attend(LayerPass& pass, Matrix y, Matrix q, Matrix gate) const;

  SoftmaxSpec spec_;
  std::unique_ptr<LinearWeight> qkv_, o_;
  std::optional<Norm> q_norm_, k_norm_, v_norm_;
  Vector sinks_;
  Affine base_, output_;
};

Softmax::Softmax(Loader& loader, const SoftmaxSpec& spec, int64_t hidden) : spec_(spec) {
  const int32_t hd = spec.head_dim;
  require_attention(loader.context(), hd, static_cast<int32_t>(spec.kv_head_windows.size()));
  const auto part = [&](const std::string& name, int64_t n) {
    return Loader::Part{name + ".weight", n, spec.qkv_bias ? name + ".bias" : "", {}};
  };
  std::vector<Loader::Part> parts;
  if (spec.gated) {  // rows of q_proj: per head hd of the query, hd of the gate
    Loader::Part q = part(spec.q, 2 * q_width()), gate = q;
    for (int64_t h = 0; h < spec.n_heads; ++h) {
      q.rows.emplace_back(2 * h * hd, hd);
      gate.rows.emplace_back((2 * h + 1) * hd, hd);
    }
    parts = {q};
    if (own_kv()) parts.insert(parts.end(), {part(spec.k, kv_width()), part(own_v() ? spec.v : spec.k, kv_width())});
    parts.push_back(gate);
  } else {
    parts = {part(spec.q, q_width())};
    if (own_kv()) parts.insert(parts.end(), {part(spec.k, kv_width()), part(own_v() ? spec.v : spec.k, kv_width())});
  }
  qkv_ = loader.linear(parts, hidden);
  o_ = loader.linear({{spec.o + ".weight", hidden, spec.o_bias ? spec.o + ".bias" : "", {}}}, q_width());
  if (spec.q_norm) q_norm_ = make_norm(loader, *spec.q_norm, hd);
  if (spec.k_norm && own_kv()) k_norm_ = make_norm(loader, *spec.k_norm, hd);
  if (spec.v_norm && own_kv()) v_norm_ = make_norm(loader, *spec.v_norm, hd);
  if (!spec.sinks.empty()) sinks_ = loader.vector(spec.sinks, {spec.n_heads});
  if (spec.orthros && spec.orthros->affine != OrthrosSpec::Affine::none) {
    const auto read = [&](const std::string& stream) {
      const std::string name = spec.orthros->tensors + "." + stream;
      return Affine{loader.vector(name + ".scale", {q_width()}), loader.vector(name + ".offset", {q_width()})};
    };
    base_ = read("base");
    output_ = read("output");
  }
}

int32_t Softmax::widest_window() const {
  if (spec_.orthros) return 0;  // output rows read every key
  if (spec_.kv_head_windows.empty()) return spec_.window;
  const auto& w = spec_.kv_head_windows;
  return std::find(w.begin(), w.end(), 0) != w.end() ? 0 : *std::max_element(w.begin(), w.end());
}

StateSpec Softmax::state() const {
  if (!own_kv()) return {};
  StateSpec state{
      .n_kv_heads = spec_.n_kv_heads, .k_dim = spec_.head_dim, .v_dim = spec_.head_dim, .window = widest_window()};
  if (spec_.orthros) state.base_window = spec_.orthros->window;
  return state;
}

LayerInfo Softmax::info() const {
  LayerInfo info{.window = spec_.orthros ? spec_.orthros->window : spec_.window,
                 .n_heads = spec_.n_heads,
                 .n_kv_heads = own_kv() ? spec_.n_kv_heads : 0,
                 .head_dim = spec_.head_dim};
  info.kind = spec_.orthros                    ? "orthros"
              : !spec_.kv_head_windows.empty() ? "headwise"
              : spec_.window > 0               ? "swa"
                                               : "full";
  info.position = spec_.rope >= 0 ? "rope" : "nope";
  return info;
}

// q = α ⊙ q + β, each stream with its own (docs/orthros.md).
void Softmax::query_affine(LayerPass& pass, Matrix q) const {
  for (const RowGroup& group : pass.groups) {
    const Affine& a = group.stream == Stream::base ? base_ : output_;
    affine(pass.context, q.row_range(group.begin, group.end), a.scale, a.offset);
  }
}

void Softmax::rotate(LayerPass& pass, Matrix x, int32_t heads_per_kv_head) const {
  if (spec_.rope < 0) return;
  const RopeAngles angles = pass.angles[static_cast<size_t>(spec_.rope)];
  if (spec_.kv_head_rope.empty()) return rope(pass.context, x, 0, angles, spec_.head_dim);
  const int64_t width = int64_t{heads_per_kv_head} * spec_.head_dim;
  for (size_t h = 0; h < spec_.kv_head_rope.size(); ++h) {
    if (!spec_.kv_head_rope[h]) continue;
    rope(pass.context, x.columns(static_cast<int64_t>(h) * width, width), 0, angles, spec_.head_dim);
  }
}

void Softmax::write_kv(LayerPass& pass, Matrix k, Matrix v) const {
  const KvLayer layer = pass.cache.kv(pass.layer);
  for (const RowGroup& group : pass.groups) {
    if (group.stream != Stream::base) continue;
    kv_write(pass.context, pass.pass, group.begin, k.row_range(group.begin, group.end),
             v.row_range(group.begin, group.end), layer);
  }
}

// Whether finish_qkv() describes what this layer does between projection and attention.
bool Softmax::finishes_at_once() const {
  return own_kv() && !v_norm_ && spec_.kv_head_rope.empty() && (!q_norm_ || q_norm_->weight) &&
         (!k_norm_ || k_norm_->weight);
}

void Softmax::finish(LayerPass& pass, Matrix q, Matrix k, Matrix v) const {
  QkvFinish finish{.head_dim = spec_.head_dim,
                   .base = {base_.scale, base_.offset},
                   .output = {output_.scale, output_.offset},
                   .affine_first = spec_.orthros && spec_.orthros->affine == OrthrosSpec::Affine::pre_norm};
  if (q_norm_) {
    finish.q_norm = q_norm_->weight;
    finish.q_eps = q_norm_->eps;
    finish.q_kind = q_norm_->kind;
  }
  if (k_norm_) {
    finish.k_norm = k_norm_->weight;
    finish.k_eps = k_norm_->eps;
    finish.k_kind = k_norm_->kind;
  }
  if (spec_.rope >= 0) finish.angles = pass.angles[static_cast<size_t>(spec_.rope)];
  finish_qkv(pass.context, pass.pass, q, k, v, pass.cache.kv(pass.layer), finish);
}

void Softmax::finish_in_steps(LayerPass& pass, Matrix q, Matrix k, Matrix v) const {
  Context& ctx = pass.context;
  const bool pre = spec_.orthros && spec_.orthros->affine == OrthrosSpec::Affine::pre_norm;
  const bool post = spec_.orthros && spec_.orthros->affine == OrthrosSpec::Affine::post_norm;
  if (pre) query_affine(pass, q);
  if (q_norm_) (*q_norm_)(ctx, q, q);
  if (post) query_affine(pass, q);
  rotate(pass, q, spec_.n_heads / spec_.n_kv_heads);
  if (!own_kv()) return;
  if (k_norm_) (*k_norm_)(ctx, k, k);
  if (v_norm_) (*v_norm_)(ctx, v, v);
  rotate(pass, k, 1);
  write_kv(pass, k, v);
}

void Softmax::forward(LayerPass& pass, Matrix y, Matrix x) const {
  Context& ctx = pass.context;
  // One projection for all rows: K and V of output rows are made and not used, which costs less than a second GEMM and
  // keeps base rows' bits equal to the backbone's.
  Matrix fused = pass.scratch.matrix(x.rows, qkv_width(), ctx.activation());
  linear_rows(pass, fused, x, *qkv_);
  Matrix q = fused.columns(0, q_width()), k, v;
  if (own_kv()) {
    k = fused.columns(q_width(), kv_width());
    v = fused.columns(q_width() + kv_width(), kv_width());
  }
  if (finishes_at_once())
    finish(pass, q, k, v);
  else
    finish_in_steps(pass, q, k, v);
  Matrix gate = spec_.gated ? fused.columns(fused.cols - q_width(), q_width()) : Matrix{};
  if (pass.wanted == nullptr) return attend(pass, y, q, gate);
  if (pass.wanted->n_want == 0) return;  // K/V are written: nothing else is asked for
  const int64_t n_want = pass.wanted->n_want;
  Matrix wanted_q = pass.scratch.matrix(n_want, q_width(), ctx.activation());
  gather_wanted(ctx, wanted_q, q, pass.pass.rows);
  if (spec_.gated) {
    Matrix wanted_gate = pass.scratch.matrix(n_want, q_width(), ctx.activation());
    gather_wanted(ctx, wanted_gate, gate, pass.pass.rows);
    gate = wanted_gate;
  }
  ctx.begin_pass(*pass.wanted);
  LayerPass wanted{ctx, *pass.wanted, row_groups(pass.wanted->rows), pass.cache, pass.layer, {}, pass.scratch, {}};
  attend(wanted, y, wanted_q, gate);
}

// Attention over what the cache holds, gate, output projection. q (and gate) have the rows of pass.pass.
void Softmax::attend(LayerPass& pass, Matrix y, Matrix q, Matrix gate) const {
  AttentionParams params{.n_heads = spec_.n_heads,
                         .scale = spec_.scale,
                         .window_base = spec_.orthros ? spec_.orthros->window : spec_.window,
                         .window_output = spec_.window,
                         .softcap = spec_.softcap,
                         .sinks = sinks_,
                         .kv_head_windows = spec_.kv_head_windows};
  Matrix o = pass.scratch.matrix(q.rows, q_width(), pass.context.activation());
  attention(pass.context, pass.pass, o, q, pass.cache.kv(own_kv() ? pass.layer : spec_.kv_layer), params);
  if (spec_.gated) sigmoid_mul(pass.context, o, gate, o);
  linear_rows(pass, y, o, *o_);
}

}  // namespace

std::unique_ptr<Mixer> make_softmax(Loader& loader, const SoftmaxSpec& spec, int64_t hidden) {
  HAY_CHECK(spec.n_kv_heads >= 1 && spec.n_heads % spec.n_kv_heads == 0 && spec.head_dim >= 1);
  return std::make_unique<Softmax>(loader, spec, hidden);
}

}  // namespace hayfork::engine
