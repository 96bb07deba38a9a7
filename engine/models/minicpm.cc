// MiniCPM 1, 2 and 4, dense (arXiv 2404.06395): llama with three scales. Its released configs leave out keys whose
// defaults are the class's. There is no reference class in transformers 5: the class is the one beside its checkpoints.
#include <cmath>

#include "engine/models/families.h"

namespace hayfork::engine {

ConfigKeys minicpm_keys() {
  return with(common_keys(), {"scale_emb", "scale_depth", "dim_model_base"}, {},
              {{"attention_bias", "false"}, {"mlp_bias", "false"}, {"sparse_config", "null"}});
}

ModelSpec build_minicpm(const FamilyInput& input) {
  const Config& c = input.config;
  const Shape shape = read_shape(input, {.tied = true});
  const double root = std::sqrt(static_cast<double>(shape.layers));
  const auto hidden = static_cast<double>(shape.hidden);
  ModelSpec model = llama_frame(input, shape, "minicpm", NormKind::llama);
  model.embed_multiplier = static_cast<float>(c.number("scale_emb", 1e-6, 1e6, 1));
  model.hidden_scale = static_cast<float>(c.number("dim_model_base", 1e-6, 1e9, hidden) / hidden);
  model.ropes = {read_rope(c, "full_attention", shape.head_dim, shape.max_positions, {})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    LayerSpec layer = llama_layer(shape, name, NormKind::llama);
    layer.mixer = llama_attention(shape, name);
    layer.ffn = llama_mlp(shape, name);
    layer.residual_scale = static_cast<float>(c.number("scale_depth", 1e-6, 1e6, root) / root);
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
