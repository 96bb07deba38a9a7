// SmolLM3: llama in which some layers have no rotary embedding (Bakouch et al. 2025, after Yang et al., arXiv
// 2501.18795).
#include <fmt/format.h>

#include "engine/models/families.h"

namespace hayfork::engine {

ConfigKeys smollm3_keys() {
  return with(common_keys(),
              {"attention_bias", "mlp_bias", "no_rope_layers", "no_rope_layer_interval", "layer_types",
               "use_sliding_window", "sliding_window"},
              {"max_window_layers"});
}

ModelSpec build_smollm3(const FamilyInput& input) {
  const Config& config = input.config;
  const Shape shape = read_shape(input, {.tied = true});
  const bool attention_bias = config.boolean("attention_bias", false), mlp_bias = config.boolean("mlp_bias", false);
  const int64_t interval = config.integer("no_rope_layer_interval", 1, kMaxLayers, 4);
  const auto rope_flags = config.integers("no_rope_layers", 0, 1);  // 1: rotary (the name says the opposite)
  if (!rope_flags.empty() && rope_flags.size() != static_cast<size_t>(shape.layers))
    config.fail("no_rope_layers", fmt::format("want {} entries, found {}", shape.layers, rope_flags.size()));
  const auto types = read_layer_types(config, shape.layers, {"full_attention", "sliding_attention"});
  const int32_t window = config.boolean("use_sliding_window", false) ? read_window(config) : 0;
  ModelSpec model = llama_frame(input, shape, "smollm3", NormKind::llama);
  model.ropes = {read_rope(config, "full_attention", shape.head_dim, shape.max_positions, {.base = 2e6})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    const std::string name = layer_prefix(input, i);
    const bool rotary = rope_flags.empty() ? (i + 1) % interval != 0 : rope_flags[at] == 1;
    SoftmaxSpec attention = llama_attention(shape, name);
    attention.qkv_bias = attention.o_bias = attention_bias;
    attention.rope = rotary ? 0 : -1;
    if (types.empty() ? !rotary : types[at] == "sliding_attention") attention.window = window;
    MlpSpec mlp = llama_mlp(shape, name);
    mlp.bias = mlp_bias;
    LayerSpec layer = llama_layer(shape, name, NormKind::llama);
    layer.mixer = attention;
    layer.ffn = mlp;
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
