// Llama 1 to 3.3 and everything that keeps its class; Touvron et al. 2023 (arXiv 2302.13971), Grattafiori et al. 2024.
#include "engine/models/families.h"

namespace hayfork::engine {

ConfigKeys llama_keys() {
  return with(common_keys(), {"attention_bias", "mlp_bias"});
}

ModelSpec build_llama(const FamilyInput& input) {
  const Shape shape = read_shape(input, {});
  const bool attention_bias = input.config.boolean("attention_bias", false);
  const bool mlp_bias = input.config.boolean("mlp_bias", false);
  ModelSpec model = llama_frame(input, shape, "llama", NormKind::llama);
  model.ropes = {read_rope(input.config, "full_attention", shape.head_dim, shape.max_positions, {})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    SoftmaxSpec attention = llama_attention(shape, name);
    attention.qkv_bias = attention.o_bias = attention_bias;
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
