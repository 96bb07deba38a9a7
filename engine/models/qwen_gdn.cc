// Qwen3-Next and Qwen3.5 (text): three Gated DeltaNet layers to one gated attention layer with partial rotary; norms
// are zero-centred.
#include <algorithm>

#include <fmt/format.h>

#include "engine/models/families.h"
#include "engine/models/qwen_moe.h"

namespace hayfork::engine {
namespace {

struct GdnShape {
  int32_t n_k = 0, n_v = 0, dk = 0, dv = 0, taps = 0;
};

GdnShape read_gdn_shape(const Config& c) {
  const auto size = [&](std::string_view key, int64_t high, int64_t fallback) {
    return static_cast<int32_t>(c.integer(key, 1, high, fallback));
  };
  const GdnShape s{size("linear_num_key_heads", kMaxHeads, 16), size("linear_num_value_heads", kMaxHeads, 32),
                   size("linear_key_head_dim", kMaxHeadDim, 128), size("linear_value_head_dim", kMaxHeadDim, 128),
                   static_cast<int32_t>(c.integer("linear_conv_kernel_dim", 2, 64, 4))};
  if (s.n_v % s.n_k != 0)
    c.fail("linear_num_value_heads", fmt::format("{} value heads do not divide among {} key heads", s.n_v, s.n_k));
  if (int64_t{s.n_k} * s.dk > kMaxWidth || int64_t{s.n_v} * s.dv > kMaxWidth)
    c.fail("linear_key_head_dim", "heads times head size are absurd");
  return s;
}

GdnSpec gdn_frame(const Shape& shape, const GdnShape& g, const std::string& name) {
  const int64_t q = int64_t{g.n_k} * g.dk, v = int64_t{g.n_v} * g.dv;
  GdnSpec spec;
  spec.heads = {.n_q = g.n_k, .n_k = g.n_k, .n_v = g.n_v, .dk = g.dk, .dv = g.dv};
  spec.conv = {{name + "conv1d.weight", 2 * q + v}};
  spec.taps = g.taps;
  spec.a_log = name + "A_log";
  spec.dt_bias = name + "dt_bias";
  spec.out_norm = {name + "norm.weight", NormKind::llama, shape.eps};
  spec.o = name + "out_proj";
  return spec;
}

// Separate, contiguous projections q|k|v, z, b, a.
GdnSpec qwen3_5_gdn(const Shape& shape, const GdnShape& g, const std::string& name) {
  const int64_t q = int64_t{g.n_k} * g.dk, v = int64_t{g.n_v} * g.dv;
  GdnSpec spec = gdn_frame(shape, g, name);
  const std::string qkv = name + "in_proj_qkv.weight";
  spec.q = {{qkv, 2 * q + v, "", {{0, q}}}};
  spec.k = {{qkv, 2 * q + v, "", {{q, q}}}};
  spec.v = {{qkv, 2 * q + v, "", {{2 * q, v}}}};
  spec.gate = {{name + "in_proj_z.weight", v, "", {}}};
  spec.a = {{name + "in_proj_a.weight", g.n_v, "", {}}};
  spec.b = {{name + "in_proj_b.weight", g.n_v, "", {}}};
  return spec;
}

SoftmaxSpec gated_attention(const Shape& shape, const std::string& name, bool bias) {
  SoftmaxSpec attention = llama_attention(shape, name);
  attention.gated = true;
  attention.qkv_bias = attention.o_bias = bias;
  attention.q_norm = NormSpec{name + "self_attn.q_norm.weight", NormKind::zero_centred, shape.eps};
  attention.k_norm = NormSpec{name + "self_attn.k_norm.weight", NormKind::zero_centred, shape.eps};
  return attention;
}

std::vector<bool> full_layers(const Config& config, int32_t n_layers) {
  const auto types = read_layer_types(config, n_layers, {"full_attention", "linear_attention"});
  const int64_t interval = config.integer("full_attention_interval", 1, kMaxLayers, 4);
  std::vector<bool> full;
  for (int32_t i = 0; i < n_layers; ++i) {
    full.push_back(types.empty() ? (i + 1) % interval == 0 : types[static_cast<size_t>(i)] == "full_attention");
  }
  return full;
}

RopeSpec quarter_rope(const Config& config, const Shape& shape) {
  const double fraction = config.number("partial_rotary_factor", 0, 1, 0.25);
  return read_rope(config, "full_attention", shape.head_dim, shape.max_positions, {.partial_factor = fraction});
}

ConfigKeys gdn_keys() {
  return with(
      common_keys(),
      {"attention_bias", "layer_types", "full_attention_interval", "partial_rotary_factor", "linear_conv_kernel_dim",
       "linear_key_head_dim", "linear_value_head_dim", "linear_num_key_heads", "linear_num_value_heads"},
      {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"}, {{"attn_output_gate", "true"}});
}

ConfigKeys with_moe(const ConfigKeys& keys) {
  return with(keys, {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size",
                     "shared_expert_intermediate_size"});
}

// Grouped projections: in_proj_qkvz has, per key head, [q | k | v | z], in_proj_ba [b | a]; value heads of a key head
// are together.
GdnSpec qwen3_next_gdn(const Shape& shape, const GdnShape& g, const std::string& name) {
  const int64_t q = int64_t{g.n_k} * g.dk, v = int64_t{g.n_v} * g.dv, per_key = g.n_v / g.n_k;
  const int64_t group = 2 * g.dk + 2 * per_key * g.dv;
  GdnSpec spec = gdn_frame(shape, g, name);
  const Loader::Part qkvz{name + "in_proj_qkvz.weight", 2 * q + 2 * v, "", {}};
  const Loader::Part ba{name + "in_proj_ba.weight", 2 * g.n_v, "", {}};
  Loader::Part q_rows = qkvz, k_rows = qkvz, v_rows = qkvz, z_rows = qkvz, b_rows = ba, a_rows = ba;
  for (int64_t h = 0; h < g.n_k; ++h) {
    q_rows.rows.emplace_back(h * group, g.dk);
    k_rows.rows.emplace_back(h * group + g.dk, g.dk);
    v_rows.rows.emplace_back(h * group + 2 * g.dk, per_key * g.dv);
    z_rows.rows.emplace_back(h * group + 2 * g.dk + per_key * g.dv, per_key * g.dv);
    b_rows.rows.emplace_back(2 * h * per_key, per_key);
    a_rows.rows.emplace_back((2 * h + 1) * per_key, per_key);
  }
  spec.q = {q_rows};
  spec.k = {k_rows};
  spec.v = {v_rows};
  spec.gate = {z_rows};
  spec.a = {a_rows};
  spec.b = {b_rows};
  return spec;
}

using MakeGdn = GdnSpec (*)(const Shape&, const GdnShape&, const std::string&);

// `moe`: null for dense models; `has_experts` then is not read.
ModelSpec build_gdn_model(const FamilyInput& input, std::string_view family, MakeGdn make_gdn_spec, const MoeShape* moe,
                          const std::vector<bool>& has_experts, const Shape& shape) {
  const GdnShape gdn = read_gdn_shape(input.config);
  const auto full = full_layers(input.config, shape.layers);
  const bool bias = input.config.boolean("attention_bias", false);
  ModelSpec model = llama_frame(input, shape, family, NormKind::zero_centred);
  model.ropes = {quarter_rope(input.config, shape)};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string name = layer_prefix(input, i);
    LayerSpec layer = llama_layer(shape, name, NormKind::zero_centred);
    if (full[at]) {
      layer.mixer = gated_attention(shape, name, bias);
    } else {
      layer.mixer = make_gdn_spec(shape, gdn, name + "linear_attn.");
    }
    if (moe != nullptr && has_experts[at]) {
      layer.ffn = qwen_experts(*moe, shape, name);
    } else {
      layer.ffn = llama_mlp(shape, name);
    }
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace

ConfigKeys qwen3_5_keys() {
  return gdn_keys();
}
ConfigKeys qwen3_5_moe_keys() {
  return with_moe(gdn_keys());
}
ConfigKeys qwen3_next_keys() {
  return with(with_moe(gdn_keys()), {"norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"});
}

ModelSpec build_qwen3_5(const FamilyInput& input) {
  return build_gdn_model(input, "qwen3_5_text", qwen3_5_gdn, nullptr, {}, read_shape(input, {}));
}

ModelSpec build_qwen3_5_moe(const FamilyInput& input) {
  const Shape shape = read_shape(input, {.needs_ffn = false});
  MoeShape moe = read_moe_shape(input.config, true, 256, 8);
  moe.shared_width = input.config.integer("shared_expert_intermediate_size", 1, kMaxWidth, 512);
  const std::vector<bool> all(static_cast<size_t>(shape.layers), true);
  return build_gdn_model(input, "qwen3_5_moe_text", qwen3_5_gdn, &moe, all, shape);
}

ModelSpec build_qwen3_next(const FamilyInput& input) {
  const Config& config = input.config;
  const auto has_experts = moe_layers(config, static_cast<int32_t>(config.integer("num_hidden_layers", 1, kMaxLayers)));
  const bool all = std::find(has_experts.begin(), has_experts.end(), false) == has_experts.end();
  const Shape shape = read_shape(input, {.needs_ffn = !all});
  MoeShape moe = read_moe_shape(config, config.boolean("norm_topk_prob", true), 512, 10);
  moe.shared_width = config.integer("shared_expert_intermediate_size", 1, kMaxWidth, 512);
  return build_gdn_model(input, "qwen3_next", qwen3_next_gdn, &moe, has_experts, shape);
}

}  // namespace hayfork::engine
