// MiniMax-Text-01 (arXiv 2501.08313): Lightning attention beside full attention, residuals on the
// normed input, experts in every layer.
#include <cmath>

#include <fmt/format.h>

#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

LightningSpec minimax_lightning(const Shape& s, int32_t layer, const std::string& name) {
  const int64_t hd = s.head_dim;
  LightningSpec spec;
  spec.kind = "lightning";
  spec.heads = {.n = s.heads, .n_q = s.heads, .n_k = s.heads, .n_v = s.heads, .dk = s.head_dim, .dv = s.head_dim};
  const Loader::Part qkv{name + "qkv_proj.weight", 3 * s.heads * hd, "", {}};
  Loader::Part q = qkv, k = qkv, v = qkv;
  for (int64_t h = 0; h < s.heads; ++h) {
    q.rows.emplace_back(3 * h * hd, hd);
    k.rows.emplace_back((3 * h + 1) * hd, hd);
    v.rows.emplace_back((3 * h + 2) * hd, hd);
  }
  spec.q = {q};
  spec.k = {k};
  spec.v = {v};
  spec.gate = {{name + "output_gate.weight", s.heads * hd, "", {}}};
  spec.silu = true;
  spec.log_decay = log_decays("minimax", s.heads, layer, s.layers);
  spec.out_norm = NormSpec{name + "norm.weight", NormKind::llama, 1e-6F};  // fixed, not rms_norm_eps
  spec.norm_all_heads = true;
  spec.o = name + "out_proj";
  return spec;
}

ResidualMix read_mix(const Config& c, const std::string& kind) {
  return {static_cast<float>(c.number(kind + "_alpha_factor", -1e6, 1e6, 1)),
          static_cast<float>(c.number(kind + "_beta_factor", -1e6, 1e6, 1))};
}

}  // namespace

ConfigKeys minimax_keys() {
  return with(
      common_keys(),
      {"layer_types", "num_local_experts", "num_experts_per_tok", "full_attn_alpha_factor", "full_attn_beta_factor",
       "linear_attn_alpha_factor", "linear_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor"},
      {"block_size", "router_jitter_noise"}, {{"sliding_window", "null"}, {"attention_bias", "false"}});
}

ModelSpec build_minimax(const FamilyInput& input) {
  const Config& c = input.config;
  const Shape shape = read_shape(input, {.eps = 1e-5});
  const auto types = read_layer_types(c, shape.layers, {"full_attention", "linear_attention"});
  ModelSpec model = llama_frame(input, shape, "minimax", NormKind::llama);
  model.ropes = {read_rope(c, "full_attention", shape.head_dim, shape.max_positions, {.base = 1e6})};
  for (const char* table : {".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay"}) {
    model.ignored_suffixes.emplace_back(table);  // derived from the slopes
  }
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    const bool full = types.empty() ? i % 2 == 0 : types[static_cast<size_t>(i)] == "full_attention";
    LayerSpec layer = llama_layer(shape, name, NormKind::llama);
    if (full) {
      layer.mixer = llama_attention(shape, name);
    } else {
      layer.mixer = minimax_lightning(shape, i, name + "self_attn.");
    }
    layer.mixer_mix = read_mix(c, full ? "full_attn" : "linear_attn");
    layer.ffn_mix = read_mix(c, "mlp");
    MoeSpec moe;
    moe.n_experts = static_cast<int32_t>(c.integer("num_local_experts", 1, 1 << 16, 8));
    moe.width = shape.ffn;
    moe.router_params = {.top_k = static_cast<int32_t>(c.integer("num_experts_per_tok", 1, moe.n_experts, 2)),
                         .softmax_over_chosen = false,
                         .renormalise = true};
    moe.router = name + "block_sparse_moe.gate";
    moe.experts = name + "block_sparse_moe.experts";
    moe.gate = "w1";
    moe.up = "w3";
    moe.down = "w2";
    moe.act.act = shape.act;
    layer.ffn = moe;
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
