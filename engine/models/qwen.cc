// Qwen2 (biases on q, k, v) and Qwen3 (RMS norm on every query and key head): Qwen Team 2024 (arXiv 2407.10671), 2025
// (arXiv 2505.09388). Sliding windows count only with use_sliding_window.
#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

std::vector<int32_t> qwen_windows(const Config& config, int32_t n_layers) {
  std::vector<int32_t> windows(static_cast<size_t>(n_layers), 0);
  const bool use = config.boolean("use_sliding_window", false);
  const int32_t window = use ? read_window(config) : 0;
  const auto types = read_layer_types(config, n_layers, {"full_attention", "sliding_attention"});
  const int64_t first = config.integer("max_window_layers", 0, kMaxLayers, 28);
  for (int32_t i = 0; i < n_layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const bool slides = types.empty() ? i >= first : types[at] == "sliding_attention";
    if (slides && window > 0) windows[at] = window;
    if (!types.empty() && slides && window == 0)
      config.fail("sliding_window", "layer_types names sliding layers, but there is no window in use");
  }
  return windows;
}

ModelSpec build_qwen(const FamilyInput& input, std::string_view family, bool is_qwen3) {
  const Shape shape = read_shape(input, {});
  const bool all_biases = is_qwen3 && input.config.boolean("attention_bias", false);
  const auto windows = qwen_windows(input.config, shape.layers);
  ModelSpec model = llama_frame(input, shape, family, NormKind::llama);
  model.ropes = {read_rope(input.config, "full_attention", shape.head_dim, shape.max_positions, {})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    SoftmaxSpec attention = llama_attention(shape, name);
    attention.window = windows[static_cast<size_t>(i)];
    attention.qkv_bias = !is_qwen3 || all_biases;
    attention.o_bias = all_biases;
    if (is_qwen3) {
      attention.q_norm = NormSpec{name + "self_attn.q_norm.weight", NormKind::llama, shape.eps};
      attention.k_norm = NormSpec{name + "self_attn.k_norm.weight", NormKind::llama, shape.eps};
    }
    LayerSpec layer = llama_layer(shape, name, NormKind::llama);
    layer.mixer = attention;
    layer.ffn = llama_mlp(shape, name);
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace

ConfigKeys qwen2_keys() {
  return with(common_keys(), {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"},
              {"use_mrope"});
}
ConfigKeys qwen3_keys() {
  return with(qwen2_keys(), {"attention_bias"});
}

ModelSpec build_qwen2(const FamilyInput& input) {
  return build_qwen(input, "qwen2", false);
}
ModelSpec build_qwen3(const FamilyInput& input) {
  return build_qwen(input, "qwen3", true);
}

}  // namespace hayfork::engine
