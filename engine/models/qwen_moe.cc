// Qwen3-MoE: Qwen3 attention, experts instead of the feed-forward block in some or all layers.
#include "engine/models/qwen_moe.h"

#include <algorithm>

#include <fmt/format.h>

#include "engine/models/families.h"

namespace hayfork::engine {

MoeShape read_moe_shape(const Config& c, bool always_renormalise, int64_t default_experts, int64_t default_top_k) {
  MoeShape s;
  const std::string experts_key =
      c.has("num_experts") || !c.has("num_local_experts") ? "num_experts" : "num_local_experts";
  s.n_experts = static_cast<int32_t>(c.integer(experts_key, 1, 1 << 16, default_experts));
  s.top_k = static_cast<int32_t>(c.integer("num_experts_per_tok", 1, 1 << 16, default_top_k));
  if (s.top_k > s.n_experts)
    c.fail("num_experts_per_tok", fmt::format("{} experts a token, but there are {}", s.top_k, s.n_experts));
  s.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  s.renormalise = always_renormalise;
  return s;
}

MoeSpec qwen_experts(const MoeShape& moe, const Shape& shape, const std::string& layer) {
  MoeSpec spec;
  spec.n_experts = moe.n_experts;
  spec.width = moe.width;
  spec.router_params = {.top_k = moe.top_k, .softmax_over_chosen = false, .renormalise = moe.renormalise};
  spec.router = layer + "mlp.gate";
  spec.experts = layer + "mlp.experts";
  spec.act.act = shape.act;
  if (moe.shared_width > 0) {
    const std::string name = layer + "mlp.shared_expert.";
    spec.shared = MlpSpec{.width = moe.shared_width,
                          .act = shape.act,
                          .gate = name + "gate_proj",
                          .up = name + "up_proj",
                          .down = name + "down_proj"};
    spec.shared_gate = layer + "mlp.shared_expert_gate";
  }
  return spec;
}

std::vector<bool> moe_layers(const Config& c, int32_t n_layers) {
  const int64_t step = c.integer("decoder_sparse_step", 1, kMaxLayers, 1);
  const auto dense = c.integers("mlp_only_layers", 0, kMaxLayers);
  std::vector<bool> has_experts;
  for (int32_t i = 0; i < n_layers; ++i) {
    has_experts.push_back((i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end());
  }
  return has_experts;
}

ConfigKeys qwen3_moe_keys() {
  return with(
      common_keys(),
      {"attention_bias", "use_sliding_window", "sliding_window", "num_experts", "num_local_experts",
       "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"},
      {"max_window_layers"});
}

ModelSpec build_qwen3_moe(const FamilyInput& input) {
  const Config& config = input.config;
  const Shape shape = read_shape(input, {});
  const MoeShape moe = read_moe_shape(config, config.boolean("norm_topk_prob", false), 128, 8);
  const auto has_experts = moe_layers(config, shape.layers);
  const bool bias = config.boolean("attention_bias", false);
  const int32_t window = config.boolean("use_sliding_window", false) ? read_window(config) : 0;
  ModelSpec model = llama_frame(input, shape, "qwen3_moe", NormKind::llama);
  model.ropes = {read_rope(config, "full_attention", shape.head_dim, shape.max_positions, {})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    SoftmaxSpec attention = llama_attention(shape, name);
    attention.window = window;
    attention.qkv_bias = attention.o_bias = bias;
    attention.q_norm = NormSpec{name + "self_attn.q_norm.weight", NormKind::llama, shape.eps};
    attention.k_norm = NormSpec{name + "self_attn.k_norm.weight", NormKind::llama, shape.eps};
    LayerSpec layer = llama_layer(shape, name, NormKind::llama);
    layer.mixer = attention;
    if (has_experts[static_cast<size_t>(i)]) {
      layer.ffn = qwen_experts(moe, shape, name);
    } else {
      layer.ffn = llama_mlp(shape, name);
    }
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
