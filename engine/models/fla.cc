// Models in the layout of flash-linear-attention: gla, retnet, gated_deltanet and its plain
// transformer, each with optional softmax layers (the `attn` key).
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

constexpr NormKind kNorm = NormKind::one_cast;

struct FlaShape {
  int64_t hidden = 0, vocab = 0, ffn = 0, max_positions = 0;
  int32_t layers = 0, heads = 0;
  float eps = 1e-6F;
  Activation act = Activation::silu;
  bool tied = false;
};

FlaShape read_fla(const FamilyInput& input, int64_t default_heads, int64_t hidden_ratio) {
  const Config& c = input.config;
  FlaShape s;
  s.hidden = c.integer("hidden_size", 1, kMaxWidth);
  s.vocab = c.integer("vocab_size", 1, kMaxVocab, 32000);
  s.layers = static_cast<int32_t>(c.integer("num_hidden_layers", 1, kMaxLayers));
  s.heads = static_cast<int32_t>(c.integer("num_heads", 1, kMaxHeads, default_heads));
  s.eps = static_cast<float>(c.number("norm_eps", 0, 1, 1e-6));
  s.act = read_activation(c, "hidden_act", "swish");
  s.tied = c.boolean("tie_word_embeddings", false);
  s.max_positions = c.integer("max_position_embeddings", 1, kMaxPositions, kUnlimitedPositions);
  const int64_t ratio = c.integer("hidden_ratio", 1, 64, hidden_ratio);
  const int64_t rule = (s.hidden * ratio * 2 / 3 + 255) / 256 * 256;  // FLA's GatedMLP
  s.ffn = c.integer("intermediate_size", 1, kMaxWidth, rule);
  return s;
}

ConfigKeys fla_keys() {
  ConfigKeys keys = with(common_keys(), {"norm_eps", "num_heads", "hidden_ratio", "attn"},
                         {"fuse_norm", "fuse_swiglu", "fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp",
                          "attn_mode", "elementwise_affine", "conv_bias", "use_cache", "feature_map_kwargs"},
                         {{"attnres_block_size", "null"}, {"elementwise_affine", "true"}, {"conv_bias", "false"}});
  // Not this layout's: a file that has them is something else.
  for (const char* foreign : {"num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_scaling",
                              "rope_parameters", "head_dim", "rope_theta"}) {
    std::erase(keys.used, std::string_view(foreign));
  }
  std::erase(keys.inert, std::string_view("elementwise_affine"));
  std::erase(keys.inert, std::string_view("conv_bias"));
  return keys;
}

ModelSpec fla_frame(const FlaShape& s, std::string_view family) {
  ModelSpec model{.family = std::string(family),
                  .hidden = s.hidden,
                  .vocab = s.vocab,
                  .max_length = s.max_positions,
                  .embed = "model.embeddings.weight",
                  .head = s.tied ? "" : "lm_head.weight",
                  .final_norm = {"model.norm.weight", kNorm, s.eps}};
  if (s.tied) model.ignored_prefixes = {"lm_head.weight"};
  return model;
}

LayerSpec fla_layer(const FlaShape& s, const std::string& name) {
  LayerSpec layer;
  layer.mixer_norm = {name + "attn_norm.weight", kNorm, s.eps};
  layer.ffn_norm = {name + "mlp_norm.weight", kNorm, s.eps};
  layer.ffn = MlpSpec{.width = s.ffn,
                      .act = s.act,
                      .gate = name + "mlp.gate_proj",
                      .up = name + "mlp.up_proj",
                      .down = name + "mlp.down_proj"};
  return layer;
}

struct FlaAttention {
  int32_t heads = 0, kv_heads = 0, window = 0, rope = -1;
  bool qkv_bias = false, qk_norm = false;
};

SoftmaxSpec fla_attention(const FlaShape& s, const FlaAttention& a, const std::string& name) {
  const auto hd = static_cast<int32_t>(s.hidden / a.heads);
  SoftmaxSpec spec{.n_heads = a.heads,
                   .n_kv_heads = a.kv_heads,
                   .head_dim = hd,
                   .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hd))),
                   .window = a.window,
                   .rope = a.rope,
                   .q = name + "q_proj",
                   .k = name + "k_proj",
                   .v = name + "v_proj",
                   .o = name + "o_proj",
                   .qkv_bias = a.qkv_bias};
  if (a.qk_norm) {  // the module's own default epsilon
    spec.q_norm = NormSpec{name + "q_norm.weight", kNorm, 1e-5F};
    spec.k_norm = NormSpec{name + "k_norm.weight", kNorm, 1e-5F};
  }
  return spec;
}

FlaAttention read_attention(const Config& c, const FlaShape& s, std::optional<int64_t> default_heads,
                            ModelSpec& model) {
  FlaAttention a;
  a.heads = static_cast<int32_t>(c.integer("num_heads", 1, kMaxHeads, default_heads));
  a.kv_heads = static_cast<int32_t>(c.integer("num_kv_heads", 1, kMaxHeads, a.heads));
  if (s.hidden % a.heads != 0 || a.heads % a.kv_heads != 0)
    c.fail("num_heads",
           fmt::format("hidden_size {}, {} heads and {} K/V heads do not divide", s.hidden, a.heads, a.kv_heads));
  a.window = read_window(c, "window_size");
  a.qkv_bias = c.boolean("qkv_bias", false);
  const auto hd = static_cast<int32_t>(s.hidden / a.heads);
  if (hd % 2 != 0) c.fail("num_heads", fmt::format("heads of {} channels cannot rotate", hd));
  model.ropes.push_back({.head_dim = hd,
                         .rotary_dim = hd,
                         .base = c.number("rope_theta", 1e-3, 1e18, 1e4),
                         .max_positions = s.max_positions,
                         .original_positions = s.max_positions});
  a.rope = static_cast<int32_t>(model.ropes.size()) - 1;
  return a;
}

// The softmax layers that the `attn` key asks for, by layer index.
std::vector<std::optional<FlaAttention>> hybrid_layers(const FamilyInput& input, const FlaShape& s, ModelSpec& model) {
  std::vector<std::optional<FlaAttention>> layers(static_cast<size_t>(s.layers));
  for (Config c : input.config.objects("attn")) {
    c.check_keys({.used = {"layers", "num_heads", "num_kv_heads", "qkv_bias", "window_size", "rope_theta"},
                  .inert = {},
                  .must_be_default = {{"qk_norm", "false"}}},
                 {.strict = true});
    if (!c.has("layers")) c.fail("layers", "it is missing");
    const FlaAttention attention = read_attention(c, s, {}, model);
    for (const int64_t i : c.integers("layers", 0, s.layers - 1)) {
      auto& slot = layers[static_cast<size_t>(i)];
      if (slot) c.fail("layers", fmt::format("layer {} is named twice", i));
      slot = attention;
    }
  }
  return layers;
}

// All layers of a model: softmax where `attn` says so, `make_mixer` elsewhere.
template <typename MakeMixer>
ModelSpec fla_model(const FamilyInput& input, const FlaShape& s, std::string_view family, const MakeMixer& make_mixer) {
  ModelSpec model = fla_frame(s, family);
  const auto softmax = hybrid_layers(input, s, model);
  for (int32_t i = 0; i < s.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    LayerSpec layer = fla_layer(s, name);
    if (softmax[static_cast<size_t>(i)]) {
      layer.mixer = fla_attention(s, *softmax[static_cast<size_t>(i)], name + "attn.");
    } else {
      layer.mixer = make_mixer(name + "attn.", model);
    }
    model.layers.push_back(layer);
  }
  return model;
}

// int(a · b), exact to what Python's float product gives.
int64_t scaled(int64_t size, double factor) {
  return static_cast<int64_t>(static_cast<double>(size) * factor);
}

void require_divides(const Config& c, std::string_view key, int64_t size, int64_t by) {
  if (by < 1 || size < by || size % by != 0)
    c.fail(key, fmt::format("{} channels do not divide among {} heads", size, by));
}

}  // namespace

ConfigKeys fla_transformer_keys() {
  ConfigKeys keys = with(fla_keys(), {"num_kv_heads", "qkv_bias", "qk_norm", "window_size", "rope_theta"});
  std::erase(keys.used, std::string_view("attn"));
  return keys;
}

ModelSpec build_fla_transformer(const FamilyInput& input) {
  const FlaShape s = read_fla(input, 32, 4);
  ModelSpec model = fla_frame(s, "transformer");
  FlaAttention attention = read_attention(input.config, s, 32, model);
  attention.qk_norm = input.config.boolean("qk_norm", false);
  for (int32_t i = 0; i < s.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    LayerSpec layer = fla_layer(s, name);
    layer.mixer = fla_attention(s, attention, name + "attn.");
    model.layers.push_back(layer);
  }
  return model;
}

ConfigKeys fla_gdn_keys() {
  return with(fla_keys(), {"head_dim", "num_v_heads", "expand_v", "use_gate", "use_short_conv", "conv_size",
                           "allow_neg_eigval", "output_gate_activation"});
}

ModelSpec build_fla_gdn(const FamilyInput& input) {
  const Config& c = input.config;
  const FlaShape s = read_fla(input, 6, 4);
  GdnSpec spec;
  const auto n = s.heads, n_v = static_cast<int32_t>(c.integer("num_v_heads", 1, kMaxHeads, n));
  const auto dk = static_cast<int32_t>(c.integer("head_dim", 1, kMaxHeadDim, 256));
  const auto dv = static_cast<int32_t>(scaled(dk, c.number("expand_v", 1e-3, 64, 2)));
  if (n_v % n != 0 || dv < 1)
    c.fail("num_v_heads", fmt::format("{} value heads of {} channels for {} heads", n_v, dv, n));
  spec.heads = {
      .n_q = n, .n_k = n, .n_v = n_v, .dk = dk, .dv = dv, .negative_eigenvalues = c.boolean("allow_neg_eigval", false)};
  const bool gate = c.boolean("use_gate", true), conv = c.boolean("use_short_conv", true);
  const std::string gate_act = c.text("output_gate_activation", "swish");
  if (gate_act != "swish" && gate_act != "silu" && gate_act != "sigmoid")
    c.fail("output_gate_activation", "want swish or sigmoid");
  spec.gate_sigmoid = gate_act == "sigmoid";
  spec.taps = conv ? static_cast<int32_t>(c.integer("conv_size", 2, 64, 4)) : 0;
  const int64_t q = int64_t{n} * dk, v = int64_t{n_v} * dv;
  return fla_model(input, s, "gated_deltanet", [&](const std::string& name, ModelSpec&) {
    GdnSpec own = spec;
    own.q = {{name + "q_proj.weight", q, "", {}}};
    own.k = {{name + "k_proj.weight", q, "", {}}};
    own.v = {{name + "v_proj.weight", v, "", {}}};
    own.a = {{name + "a_proj.weight", n_v, "", {}}};
    own.b = {{name + "b_proj.weight", n_v, "", {}}};
    if (gate) own.gate = {{name + "g_proj.weight", v, "", {}}};
    if (conv) own.conv = {{name + "q_conv1d.weight", q}, {name + "k_conv1d.weight", q}, {name + "v_conv1d.weight", v}};
    own.a_log = name + "A_log";
    own.dt_bias = name + "dt_bias";
    own.out_norm = {name + "o_norm.weight", kNorm, s.eps};
    own.o = name + "o_proj";
    return own;
  });
}

ConfigKeys fla_gla_keys() {
  return with(fla_keys(), {"expand_k", "expand_v", "num_kv_heads", "use_output_gate", "clamp_min"},
              {"use_gk", "use_gv"}, {{"use_short_conv", "false"}, {"feature_map", "null"}, {"conv_size", "4"}});
}

ModelSpec build_fla_gla(const FamilyInput& input) {
  const Config& c = input.config;
  const FlaShape s = read_fla(input, 4, 4);
  const auto kv = static_cast<int32_t>(c.integer("num_kv_heads", 1, kMaxHeads, s.heads));
  require_divides(c, "num_kv_heads", s.heads, kv);
  const int64_t key = scaled(s.hidden, c.number("expand_k", 1e-3, 64, 0.5));
  const int64_t value = scaled(s.hidden, c.number("expand_v", 1e-3, 64, 1));
  require_divides(c, "expand_k", key, s.heads);
  require_divides(c, "expand_v", value, s.heads);
  const int64_t share = s.heads / kv;
  GlaSpec spec;
  spec.heads = {.n = s.heads,
                .n_q = s.heads,
                .n_k = kv,
                .n_v = kv,
                .dk = static_cast<int32_t>(key / s.heads),
                .dv = static_cast<int32_t>(value / s.heads)};
  if (c.has("clamp_min")) spec.floor = static_cast<float>(c.number("clamp_min", -1e9, 0));
  const bool gate = c.boolean("use_output_gate", true);
  return fla_model(input, s, "gla", [&](const std::string& name, ModelSpec&) {
    GlaSpec own = spec;
    own.q = {{name + "q_proj.weight", key, "", {}}};
    own.k = {{name + "k_proj.weight", key / share, "", {}}};
    own.v = {{name + "v_proj.weight", value / share, "", {}}};
    if (gate) own.gate = {{name + "g_proj.weight", value, "", {}}};
    own.decay_down = name + "gk_proj.0";
    own.decay_up = name + "gk_proj.1";
    own.out_norm = {name + (gate ? "g_norm_swish_gate.weight" : "g_norm.weight"), kNorm, s.eps};
    own.o = name + "o_proj";
    return own;
  });
}

ConfigKeys fla_retnet_keys() {
  return with(fla_keys(), {"expand_k", "expand_v", "num_kv_heads"}, {},
              {{"use_short_conv", "false"}, {"feature_map", "null"}, {"use_output_gate", "true"}, {"conv_size", "4"}});
}

ModelSpec build_fla_retnet(const FamilyInput& input) {
  const Config& c = input.config;
  const FlaShape s = read_fla(input, 8, 2);
  const auto kv = static_cast<int32_t>(c.integer("num_kv_heads", 1, kMaxHeads, s.heads));
  require_divides(c, "num_kv_heads", s.heads, kv);
  const int64_t key = scaled(s.hidden, c.number("expand_k", 1e-3, 64, 1));
  const int64_t value = scaled(s.hidden, c.number("expand_v", 1e-3, 64, 2));
  require_divides(c, "expand_k", key, s.heads);
  require_divides(c, "expand_v", value, s.heads);
  const int64_t share = s.heads / kv;
  const auto dk = static_cast<int32_t>(key / s.heads), dv = static_cast<int32_t>(value / s.heads);
  if (dk % 2 != 0) c.fail("expand_k", fmt::format("heads of {} channels cannot rotate", dk));
  const double base = 1e4;  // fixed in the layer
  return fla_model(input, s, "retnet", [&](const std::string& name, ModelSpec& model) {
    LightningSpec own;
    own.kind = "retnet";
    own.heads = {.n = s.heads, .n_q = s.heads, .n_k = kv, .n_v = kv, .dk = dk, .dv = dv};
    own.q = {{name + "q_proj.weight", key, "", {}}};
    own.k = {{name + "k_proj.weight", key / share, "", {}}};
    own.v = {{name + "v_proj.weight", value / share, "", {}}};
    own.gate = {{name + "g_proj.weight", value, "", {}}};
    own.gate_silu = true;
    model.ropes.push_back({.head_dim = dk,
                           .rotary_dim = dk,
                           .base = base,
                           .max_positions = s.max_positions,
                           .original_positions = s.max_positions});
    own.rope = static_cast<int32_t>(model.ropes.size()) - 1;
    own.q_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dk)));
    own.log_decay = log_decays("retnet", s.heads, 0, s.layers);
    own.out_norm = NormSpec{name + "g_norm_swish_gate.weight", kNorm, s.eps};
    own.o = name + "o_proj";
    return own;
  });
}

}  // namespace hayfork::engine
