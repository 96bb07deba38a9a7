// Gemma 2 (arXiv 2408.00118) and Gemma 3, text (arXiv 2503.19786): zero-centred norms before and after each block, a
// GELU gate, embeddings times √hidden; Gemma 2 caps scores and logits, Gemma 3 norms q and k and has two rotary bases.
#include <cmath>

#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

const ShapeDefaults kGemmaShape{.tied = true, .act = "gelu_pytorch_tanh", .act_key = "hidden_activation"};

// hidden_activation wins; old files have hidden_act alone, which their class ignores.
ConfigKeys gemma_keys() {
  ConfigKeys keys = with(common_keys(),
                         {"hidden_activation", "query_pre_attn_scalar", "sliding_window", "layer_types",
                          "attn_logit_softcapping", "final_logit_softcapping", "attention_bias"},
                         {"cache_implementation"}, {{"use_bidirectional_attention", "false"}});
  return keys;
}

LayerSpec gemma_layer(const Shape& shape, const std::string& name) {
  const auto norm = [&](const char* which) {
    return NormSpec{name + which + ".weight", NormKind::zero_centred, shape.eps};
  };
  return {.mixer_norm = norm("input_layernorm"),
          .after_mixer_norm = norm("post_attention_layernorm"),
          .ffn_norm = norm("pre_feedforward_layernorm"),
          .after_ffn_norm = norm("post_feedforward_layernorm")};
}

// A cap that is null in the file is no cap; one that is absent is the class's.
float softcap(const Config& config, std::string_view key, double fallback) {
  return static_cast<float>(config.number(key, 0, 1e9, config.given(key) ? 0.0 : fallback));
}

float inverse_root(double x) {
  return static_cast<float>(1.0 / std::sqrt(x));
}

ModelSpec gemma_frame(const FamilyInput& input, const Shape& shape, std::string_view family, bool caps) {
  ModelSpec model = llama_frame(input, shape, family, NormKind::zero_centred);
  model.embed_multiplier = static_cast<float>(std::sqrt(static_cast<double>(shape.hidden)));
  model.logit_softcap = softcap(input.config, "final_logit_softcapping", caps ? 30 : 0);
  return model;
}

// Layer i slides: layer_types, or every layer but each `pattern`-th.
std::vector<bool> sliding(const Config& config, int32_t n_layers, int64_t pattern) {
  const auto types = read_layer_types(config, n_layers, {"full_attention", "sliding_attention"});
  std::vector<bool> slides;
  for (int32_t i = 0; i < n_layers; ++i) {
    slides.push_back(types.empty() ? (i + 1) % pattern != 0 : types[static_cast<size_t>(i)] == "sliding_attention");
  }
  return slides;
}

}  // namespace

ConfigKeys gemma2_keys() {
  return gemma_keys();
}
ConfigKeys gemma3_keys() {
  return with(gemma_keys(), {"rope_local_base_freq", "sliding_window_pattern"}, {"_sliding_window_pattern"});
}

ModelSpec build_gemma2(const FamilyInput& input) {
  const Config& config = input.config;
  const Shape shape = read_shape(input, kGemmaShape);
  const int32_t window = static_cast<int32_t>(config.integer("sliding_window", 1, kMaxPositions, 4096));
  const auto slides = sliding(config, shape.layers, 2);
  const bool bias = config.boolean("attention_bias", false);
  ModelSpec model = gemma_frame(input, shape, "gemma2", true);
  model.ropes = {read_rope(config, "full_attention", shape.head_dim, shape.max_positions, {})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    SoftmaxSpec attention = llama_attention(shape, name);
    attention.scale = inverse_root(config.number("query_pre_attn_scalar", 1e-6, 1e9, 256));
    attention.softcap = softcap(config, "attn_logit_softcapping", 50);
    attention.qkv_bias = attention.o_bias = bias;
    attention.window = slides[static_cast<size_t>(i)] ? window : 0;
    LayerSpec layer = gemma_layer(shape, name);
    layer.mixer = attention;
    layer.ffn = llama_mlp(shape, name);
    model.layers.push_back(layer);
  }
  return model;
}

ModelSpec build_gemma3(const FamilyInput& input) {
  const Config& config = input.config;
  const Shape shape = read_shape(input, kGemmaShape);
  const int32_t window = static_cast<int32_t>(config.integer("sliding_window", 1, kMaxPositions, 4096));
  const auto slides = sliding(config, shape.layers, config.integer("sliding_window_pattern", 1, kMaxLayers, 6));
  const bool bias = config.boolean("attention_bias", false);
  ModelSpec model = gemma_frame(input, shape, "gemma3_text", false);
  model.ropes = {read_rope(config, "full_attention", shape.head_dim, shape.max_positions, {.base = 1e6}),
                 read_rope(config, "sliding_attention", shape.head_dim, shape.max_positions,
                           {.base = 1e4, .base_key = "rope_local_base_freq", .scaling_key = ""})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    const bool local = slides[static_cast<size_t>(i)];
    SoftmaxSpec attention = llama_attention(shape, name);
    attention.scale = inverse_root(config.number("query_pre_attn_scalar", 1e-6, 1e9, 256));
    attention.softcap = softcap(config, "attn_logit_softcapping", 0);
    attention.qkv_bias = attention.o_bias = bias;
    attention.window = local ? window : 0;
    attention.rope = local ? 1 : 0;
    attention.q_norm = NormSpec{name + "self_attn.q_norm.weight", NormKind::zero_centred, shape.eps};
    attention.k_norm = NormSpec{name + "self_attn.k_norm.weight", NormKind::zero_centred, shape.eps};
    LayerSpec layer = gemma_layer(shape, name);
    layer.mixer = attention;
    layer.ffn = llama_mlp(shape, name);
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
