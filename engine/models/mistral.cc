// Mistral: llama without biases, optionally with a sliding window on every layer. Jiang et al. 2023 (arXiv 2310.06825).
#include "engine/models/families.h"

namespace hayfork::engine {

ConfigKeys mistral_keys() {
  return with(common_keys(), {"sliding_window"});
}

ModelSpec build_mistral(const FamilyInput& input) {
  const Shape shape = read_shape(input, {});
  const int32_t window = read_window(input.config);
  ModelSpec model = llama_frame(input, shape, "mistral", NormKind::llama);
  model.ropes = {read_rope(input.config, "sliding_attention", shape.head_dim, shape.max_positions, {})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    SoftmaxSpec attention = llama_attention(shape, name);
    attention.window = window;
    LayerSpec layer = llama_layer(shape, name, NormKind::llama);
    layer.mixer = attention;
    layer.ffn = llama_mlp(shape, name);
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
