// Gemma 4, text: sliding and global layers with their own head sizes, normed values, keys used
// as values, K/V shared between layers, per-layer inputs, experts beside the dense block, a scalar at each layer's end.
#include <cmath>

#include <fmt/format.h>

#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

constexpr NormKind kNorm = NormKind::one_cast;

struct LayerShape {
  int32_t head_dim = 0, kv_heads = 0;
  bool global = false;
  bool k_is_v = false;
};

struct Gemma4Shape {
  Shape base;
  std::vector<LayerShape> layers;
  int32_t n_shared = 0;  // last layers without K/V of their own
  int32_t window = 0;
};

// Head sizes of global layers: global_head_dim and num_global_key_value_heads, or an entry of per_layer_config.
LayerShape global_shape(const Config& c, const Shape& base, bool k_is_v, int32_t layer) {
  LayerShape s{static_cast<int32_t>(c.integer("global_head_dim", 1, kMaxHeadDim, 512)), base.kv_heads, true, k_is_v};
  if (k_is_v) s.kv_heads = static_cast<int32_t>(c.integer("num_global_key_value_heads", 1, kMaxHeads, base.kv_heads));
  if (c.has("per_layer_config")) {
    const Config all = c.object("per_layer_config");
    const std::string key = std::to_string(layer);
    if (!c.has("global_head_dim")) s.head_dim = base.head_dim;
    if (all.has(key)) {
      Config own = all.object(key);
      own.check_keys({.used = {"head_dim", "num_key_value_heads"}, .inert = {}, .must_be_default = {}},
                     {.strict = true});
      s.head_dim = static_cast<int32_t>(own.integer("head_dim", 1, kMaxHeadDim, s.head_dim));
      s.kv_heads = static_cast<int32_t>(own.integer("num_key_value_heads", 1, kMaxHeads, s.kv_heads));
    }
  }
  if (base.heads % s.kv_heads != 0)
    c.fail("num_global_key_value_heads", fmt::format("{} query heads do not divide among {}", base.heads, s.kv_heads));
  return s;
}

// All global layers rotate by one table, so they must agree. The head size of a model without global layers is `base`.
int32_t global_head_dim(const Config& c, const std::vector<LayerShape>& layers, int32_t base) {
  int32_t found = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].global) continue;
    if (found != 0 && layers[i].head_dim != found)
      c.fail("per_layer_config", fmt::format("full-attention layer {} has heads of {} channels, one before it of {}", i,
                                             layers[i].head_dim, found));
    found = layers[i].head_dim;
  }
  return found == 0 ? base : found;
}

Gemma4Shape read_gemma4(const FamilyInput& input) {
  const Config& c = input.config;
  Gemma4Shape s{.base = read_shape(input, {.tied = true, .act = "gelu_pytorch_tanh", .act_key = "hidden_activation"})};
  if (!c.has("head_dim")) s.base.head_dim = 256;
  const auto types = read_layer_types(c, s.base.layers, {"full_attention", "sliding_attention"});
  if (types.empty()) c.fail("layer_types", "it is missing");
  const bool k_is_v = c.boolean("attention_k_eq_v", false);
  for (int32_t i = 0; i < s.base.layers; ++i) {
    const bool global = types[static_cast<size_t>(i)] == "full_attention";
    s.layers.push_back(global ? global_shape(c, s.base, k_is_v, i)
                              : LayerShape{s.base.head_dim, s.base.kv_heads, false, false});
  }
  s.n_shared = static_cast<int32_t>(c.integer("num_kv_shared_layers", 0, s.base.layers, 0));
  s.window = static_cast<int32_t>(c.integer("sliding_window", 1, kMaxPositions, 512));
  return s;
}

// The last layer of the same kind that has K/V of its own.
int32_t shared_source(const Gemma4Shape& s, int32_t layer, const Config& c) {
  const int32_t own = s.base.layers - s.n_shared;
  for (int32_t i = own - 1; i >= 0; --i) {
    if (s.layers[static_cast<size_t>(i)].global == s.layers[static_cast<size_t>(layer)].global) return i;
  }
  c.fail("num_kv_shared_layers", fmt::format("layer {} has no layer of its kind to share K/V with", layer));
}

SoftmaxSpec gemma4_attention(const Gemma4Shape& s, int32_t i, const std::string& name, const Config& c) {
  const LayerShape& own = s.layers[static_cast<size_t>(i)];
  SoftmaxSpec a = llama_attention(s.base, name);
  a.head_dim = own.head_dim;
  a.n_kv_heads = own.kv_heads;
  a.scale = 1;  // the query norm's weight has absorbed it
  a.window = own.global ? 0 : s.window;
  a.rope = own.global ? 0 : 1;
  a.qkv_bias = a.o_bias = c.boolean("attention_bias", false);
  if (own.k_is_v) a.v.clear();
  a.q_norm = NormSpec{name + "self_attn.q_norm.weight", kNorm, s.base.eps};
  a.k_norm = NormSpec{name + "self_attn.k_norm.weight", kNorm, s.base.eps};
  a.v_norm = NormSpec{"", kNorm, s.base.eps};
  if (i >= s.base.layers - s.n_shared) {
    a.kv_layer = shared_source(s, i, c);
    const LayerShape& source = s.layers[static_cast<size_t>(a.kv_layer)];
    if (source.head_dim != own.head_dim || source.kv_heads != own.kv_heads)
      c.fail("per_layer_config", fmt::format("layer {} cannot read K/V of layer {}: other head sizes", i, a.kv_layer));
  }
  return a;
}

FeedForwardSpec gemma4_ffn(const Gemma4Shape& s, int32_t i, const std::string& name, const Config& c) {
  MlpSpec mlp = llama_mlp(s.base, name);
  if (c.boolean("use_double_wide_mlp", false) && i >= s.base.layers - s.n_shared) mlp.width *= 2;
  if (!c.boolean("enable_moe_block", false)) return mlp;
  MoeBesideMlpSpec both{.mlp = mlp, .eps = s.base.eps};
  both.moe.n_experts = static_cast<int32_t>(c.integer("num_experts", 1, 1 << 16));
  both.moe.width = c.integer("moe_intermediate_size", 1, kMaxWidth);
  both.moe.router_params = {.top_k = static_cast<int32_t>(c.integer("top_k_experts", 1, both.moe.n_experts)),
                            .softmax_over_chosen = false,
                            .renormalise = true};
  both.moe.router = name + "router.proj";
  both.moe.router_scale = name + "router.scale";
  both.moe.expert_scale = name + "router.per_expert_scale";
  both.moe.experts = name + "experts";
  both.moe.act.act = s.base.act;
  both.after_mlp = {name + "post_feedforward_layernorm_1.weight", kNorm, s.base.eps};
  both.before_experts = {name + "pre_feedforward_layernorm_2.weight", kNorm, s.base.eps};
  both.after_experts = {name + "post_feedforward_layernorm_2.weight", kNorm, s.base.eps};
  return both;
}

LayerSpec gemma4_layer(const Gemma4Shape& s, int32_t i, const std::string& name, const Config& c, bool layer_inputs) {
  const auto norm = [&](const char* which) { return NormSpec{name + which + ".weight", kNorm, s.base.eps}; };
  LayerSpec layer;
  layer.mixer = gemma4_attention(s, i, name, c);
  layer.mixer_norm = norm("input_layernorm");
  layer.after_mixer_norm = norm("post_attention_layernorm");
  layer.ffn = gemma4_ffn(s, i, name, c);
  layer.ffn_norm = norm("pre_feedforward_layernorm");
  layer.after_ffn_norm = norm("post_feedforward_layernorm");
  if (layer_inputs) {
    layer.layer_input = LayerInputSpec{.gate = name + "per_layer_input_gate",
                                       .projection = name + "per_layer_projection",
                                       .norm = norm("post_per_layer_input_norm")};
  }
  layer.scalar = name + "layer_scalar";
  return layer;
}

}  // namespace

ConfigKeys gemma4_keys() {
  return with(
      common_keys(),
      {"hidden_activation", "layer_types", "sliding_window", "global_head_dim", "num_global_key_value_heads",
       "per_layer_config", "attention_k_eq_v", "num_kv_shared_layers", "use_double_wide_mlp", "enable_moe_block",
       "num_experts", "top_k_experts", "moe_intermediate_size", "hidden_size_per_layer_input",
       "vocab_size_per_layer_input", "final_logit_softcapping", "attention_bias"},
      {}, {{"use_bidirectional_attention", "\"vision\""}});
}

ModelSpec build_gemma4(const FamilyInput& input) {
  const Config& c = input.config;
  const Gemma4Shape s = read_gemma4(input);
  ModelSpec model = llama_frame(input, s.base, "gemma4_text", kNorm);
  model.embed_multiplier = static_cast<float>(std::sqrt(static_cast<double>(s.base.hidden)));
  model.logit_softcap = static_cast<float>(c.number("final_logit_softcapping", 0, 1e9, 0));
  const int32_t wide = global_head_dim(c, s.layers, s.base.head_dim);
  model.ropes = {read_rope(c, "full_attention", wide, s.base.max_positions, {.base = 1e6}),
                 read_rope(c, "sliding_attention", s.base.head_dim, s.base.max_positions, {.base = 1e4})};
  const int64_t width = c.integer("hidden_size_per_layer_input", 0, kMaxWidth, 256);
  if (width > 0) {
    model.layer_inputs = ModelInputSpec{.width = width,
                                        .vocab = c.integer("vocab_size_per_layer_input", 1, kMaxVocab, s.base.vocab),
                                        .table = input.prefix + "embed_tokens_per_layer.weight",
                                        .projection = input.prefix + "per_layer_model_projection",
                                        .norm = {input.prefix + "per_layer_projection_norm.weight", kNorm, s.base.eps}};
    if (model.layer_inputs->vocab < s.base.vocab) c.fail("vocab_size_per_layer_input", "it is below vocab_size");
  }
  for (int32_t i = 0; i < s.base.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    model.layers.push_back(gemma4_layer(s, i, name, c, width > 0));
    if (i < s.base.layers - s.n_shared) continue;
    for (const char* dead : {"k_proj", "v_proj", "k_norm"})
      model.ignored_prefixes.push_back(name + "self_attn." + dead);
  }
  for (const char* leftover : {".input_max", ".input_min", ".output_max", ".output_min"}) {
    model.ignored_suffixes.emplace_back(leftover);  // of quantisation-aware training
  }
  return model;
}

}  // namespace hayfork::engine
