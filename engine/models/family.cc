#include "engine/models/family.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"

namespace hayfork::engine {
namespace {

ConfigKeys rope_keys() {
  return {.used = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor", "low_freq_factor",
                   "high_freq_factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale",
                   "mscale_all_dim", "attention_factor", "truncate", "short_factor", "long_factor"},
          .inert = {"mrope_section", "mrope_interleaved", "max_position_embeddings"},  // three equal positions in text
          .must_be_default = {}};
}

RopeSpec::Kind rope_kind(const Config& dict) {
  using Kind = RopeSpec::Kind;
  const std::string key = dict.has("rope_type") || !dict.has("type") ? "rope_type" : "type";
  const std::string name = dict.text(key, "default");
  if (name == "default" || name == "mrope") return Kind::standard;
  if (name == "linear") return Kind::linear;
  if (name == "dynamic") return Kind::dynamic;
  if (name == "llama3") return Kind::llama3;
  if (name == "yarn") return Kind::yarn;
  if (name == "longrope" || name == "su") return Kind::longrope;
  if (name == "proportional") return Kind::proportional;
  throw Error(
      ErrorCode::unsupported, ErrorSubject::model,
      fmt::format("rope scaling \"{}\" is not supported", name.substr(0, 80)),
      {.where = dict.where(), .why = "known are default, linear, dynamic, llama3, yarn, longrope, proportional"});
}

void read_yarn(const Config& dict, RopeSpec& spec, bool truncate_counts) {
  const auto ratio = static_cast<double>(spec.max_positions) / static_cast<double>(spec.original_positions);
  spec.factor = dict.number("factor", 1e-6, 1e9, ratio);
  spec.beta_fast = dict.number("beta_fast", 1e-6, 1e9, 32);
  spec.beta_slow = dict.number("beta_slow", 1e-6, 1e9, 1);
  if (truncate_counts) spec.truncate = dict.boolean("truncate", true);
  const double mscale = dict.number("mscale", 0, 1e6, 0), all_dim = dict.number("mscale_all_dim", 0, 1e6, 0);
  double attention = yarn_scale(spec.factor, 1);
  if (mscale != 0 && all_dim != 0) attention = yarn_scale(spec.factor, mscale) / yarn_scale(spec.factor, all_dim);
  spec.attention_factor = static_cast<float>(dict.number("attention_factor", 0, 1e6, attention));
}

void read_longrope(const Config& dict, RopeSpec& spec) {
  spec.short_factors = dict.numbers("short_factor", 1e-6, 1e9);
  spec.long_factors = dict.numbers("long_factor", 1e-6, 1e9);
  const auto want = static_cast<size_t>(spec.rotary_dim / 2);
  for (const auto& [key, list] :
       {std::pair{"short_factor", &spec.short_factors}, std::pair{"long_factor", &spec.long_factors}}) {
    if (list->size() != want) dict.fail(key, fmt::format("want {} numbers, found {}", want, list->size()));
  }
  const auto n0 = static_cast<double>(spec.original_positions);
  const double factor = dict.number("factor", 1e-6, 1e9, static_cast<double>(spec.max_positions) / n0);
  const double attention = factor <= 1 || n0 <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(n0));
  spec.attention_factor = static_cast<float>(dict.number("attention_factor", 0, 1e6, attention));
}

void read_scaling(const Config& dict, RopeSpec& spec, bool truncate_counts) {
  using Kind = RopeSpec::Kind;
  spec.kind = rope_kind(dict);
  spec.original_positions = dict.integer("original_max_position_embeddings", 1, kMaxPositions, spec.max_positions);
  if (spec.kind == Kind::linear || spec.kind == Kind::dynamic || spec.kind == Kind::llama3)
    spec.factor = dict.number("factor", 1e-6, 1e9);
  if (spec.kind == Kind::proportional) {
    spec.factor = dict.number("factor", 1e-6, 1e9, 1.0);
    spec.partial_factor = dict.number("partial_rotary_factor", 0, 1, 1.0);
  }
  if (spec.kind == Kind::llama3) {
    spec.low_freq_factor = dict.number("low_freq_factor", 1e-9, 1e9);
    spec.high_freq_factor = dict.number("high_freq_factor", 1e-9, 1e9);
    if (spec.high_freq_factor <= spec.low_freq_factor)
      dict.fail("high_freq_factor", "it must be above low_freq_factor");
  }
  if (spec.kind == Kind::yarn) read_yarn(dict, spec, truncate_counts);
  if (spec.kind == Kind::longrope) read_longrope(dict, spec);
}

int32_t rotary_dim(const Config& config, std::string_view key, int32_t head_dim, double fraction) {
  const auto r = static_cast<int32_t>(head_dim * fraction);
  if (r < 2 || r % 2 != 0)
    config.fail(key, fmt::format("{} of {} channels rotate; it must be an even number of at least 2", r, head_dim));
  return r;
}

}  // namespace

ConfigKeys common_keys() {
  return {.used = {"model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                   "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "hidden_act",
                   "max_position_embeddings", "tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters",
                   "eos_token_id"},
          .inert = {"architectures",
                    "bos_token_id",
                    "pad_token_id",
                    "dtype",
                    "torch_dtype",
                    "transformers_version",
                    "use_cache",
                    "initializer_range",
                    "attention_dropout",
                    "_name_or_path",
                    "_attn_implementation",
                    "_attn_implementation_autoset",
                    "auto_map",
                    "output_attentions",
                    "output_hidden_states",
                    "return_dict",
                    "torchscript",
                    "pretraining_tp",
                    "id2label",
                    "label2id",
                    "finetuning_task",
                    "problem_type",
                    "task_specific_params",
                    "tokenizer_class",
                    "unk_token_id",
                    "sep_token_id",
                    "hidden_dropout",
                    "hidden_dropout_prob",
                    "resid_pdrop",
                    "embd_pdrop",
                    "gradient_checkpointing",
                    "is_llama_config",
                    "rope_interleaved",
                    "transformers.js_config",
                    "unsloth_fixed",
                    "unsloth_version",
                    "cache_implementation",
                    "output_router_logits",
                    "router_aux_loss_coef",
                    "chunk_size_feed_forward",
                    "tf_legacy_loss",
                    "use_bfloat16",
                    "remove_invalid_values"},
          .must_be_default = {{"is_encoder_decoder", "false"},
                              {"add_cross_attention", "false"},
                              {"is_decoder", "false"},
                              {"tie_encoder_decoder", "false"},
                              {"quantization_config", "null"},
                              {"compression_config", "null"},
                              {"cross_attention_hidden_size", "null"},
                              {"pruned_heads", "{}"}}};
}

ConfigKeys with(ConfigKeys keys, const std::vector<std::string_view>& used, const std::vector<std::string_view>& inert,
                const std::vector<DefaultKey>& fixed) {
  const auto forget = [&](std::string_view key) {  // a family's own list wins over the common ones
    std::erase(keys.inert, key);
    std::erase_if(keys.must_be_default, [&](const DefaultKey& entry) { return entry.key == key; });
  };
  for (const auto key : used) forget(key);
  for (const auto& entry : fixed) forget(entry.key);
  keys.used.insert(keys.used.end(), used.begin(), used.end());
  keys.inert.insert(keys.inert.end(), inert.begin(), inert.end());
  keys.must_be_default.insert(keys.must_be_default.end(), fixed.begin(), fixed.end());
  return keys;
}

Activation read_activation(const Config& config, std::string_view key, std::string_view fallback) {
  const std::string name = config.text(key, std::string(fallback));
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  throw Error(
      ErrorCode::unsupported, ErrorSubject::model,
      fmt::format("activation \"{}\" is not supported", name.substr(0, 80)),
      {.where = config.where(), .why = fmt::format("key \"{}\": known are silu, swish, gelu_pytorch_tanh", key)});
}

Shape read_shape(const FamilyInput& input, const ShapeDefaults& defaults) {
  const Config& c = input.config;
  Shape s;
  s.hidden = c.integer("hidden_size", 1, kMaxWidth);
  s.vocab = c.integer("vocab_size", 1, kMaxVocab);
  if (defaults.needs_ffn) s.ffn = c.integer("intermediate_size", 1, kMaxWidth);
  s.layers = static_cast<int32_t>(c.integer("num_hidden_layers", 1, kMaxLayers));
  s.heads = static_cast<int32_t>(c.integer("num_attention_heads", 1, kMaxHeads));
  s.kv_heads = static_cast<int32_t>(c.integer("num_key_value_heads", 1, kMaxHeads, s.heads));
  if (s.heads % s.kv_heads != 0)
    c.fail("num_key_value_heads", fmt::format("{} query heads do not divide among {} K/V heads", s.heads, s.kv_heads));
  if (!c.has("head_dim") && s.hidden % s.heads != 0)
    c.fail("num_attention_heads",
           fmt::format("hidden_size {} does not divide by it, and there is no head_dim", s.hidden));
  s.head_dim = static_cast<int32_t>(c.integer("head_dim", 1, kMaxHeadDim, std::max<int64_t>(1, s.hidden / s.heads)));
  if (int64_t{s.heads} * s.head_dim > kMaxWidth)
    c.fail("head_dim", fmt::format("{} heads of {} channels are absurd", s.heads, s.head_dim));
  s.max_positions = c.integer("max_position_embeddings", 1, kMaxPositions, 2048);
  s.eps = static_cast<float>(c.number("rms_norm_eps", 0, 1, defaults.eps));
  s.act = read_activation(c, defaults.act_key, defaults.act);
  s.tied = c.boolean("tie_word_embeddings", input.tied_outside || defaults.tied);
  return s;
}

RopeSpec read_rope(const Config& config, std::string_view layer_type, int32_t head_dim, int64_t max_positions,
                   const RopeDefaults& defaults) {
  RopeSpec spec{.head_dim = head_dim, .max_positions = max_positions, .original_positions = max_positions};
  std::optional<Config> dict;
  bool nested = false;
  if (config.is_object("rope_parameters")) {
    dict = config.object("rope_parameters");
    if (dict->is_object("full_attention") || dict->is_object("sliding_attention")) {
      nested = true;
      if (!dict->has(layer_type)) dict->fail(layer_type, "this layer type has no rotary parameters");
      dict = dict->object(layer_type);
    }
  } else if (config.has("rope_parameters")) {
    config.fail("rope_parameters", "want an object");
  } else if (!defaults.scaling_key.empty() && config.has(defaults.scaling_key)) {
    dict = config.object(defaults.scaling_key);
  }
  double fraction = defaults.partial_factor;
  spec.base = defaults.base_key.empty() ? defaults.base : config.number(defaults.base_key, 1e-3, 1e18, defaults.base);
  if (dict) {
    dict->check_keys(rope_keys(), {.strict = true});
    spec.base = dict->number("rope_theta", 1e-3, 1e18, spec.base);
    fraction = dict->number("partial_rotary_factor", 0, 1, fraction);
    const bool whole_head = rope_kind(*dict) == RopeSpec::Kind::proportional;
    spec.rotary_dim = rotary_dim(*dict, "partial_rotary_factor", head_dim, whole_head ? 1.0 : fraction);
    // transformers reads `truncate` from the top of rope_parameters only.
    read_scaling(*dict, spec, !nested);
  } else {
    spec.rotary_dim = rotary_dim(config, "head_dim", head_dim, fraction);
  }
  return spec;
}

std::vector<std::string> read_layer_types(const Config& config, int32_t n_layers,
                                          const std::vector<std::string_view>& allowed) {
  std::vector<std::string> types = config.texts("layer_types");
  if (types.empty()) return types;
  if (types.size() != static_cast<size_t>(n_layers))
    config.fail("layer_types", fmt::format("want {} entries, found {}", n_layers, types.size()));
  for (const std::string& type : types) {
    if (std::find(allowed.begin(), allowed.end(), type) == allowed.end())
      config.fail("layer_types", fmt::format("unknown layer type \"{}\"", type.substr(0, 80)));
  }
  return types;
}

int32_t read_window(const Config& config, std::string_view key) {
  return static_cast<int32_t>(config.integer(key, 1, kMaxPositions, 0));
}

std::string layer_prefix(const FamilyInput& input, int32_t layer) {
  return fmt::format("{}layers.{}.", input.prefix, layer);
}

SoftmaxSpec llama_attention(const Shape& s, const std::string& layer) {
  return {.n_heads = s.heads,
          .n_kv_heads = s.kv_heads,
          .head_dim = s.head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim))),
          .rope = 0,
          .q = layer + "self_attn.q_proj",
          .k = layer + "self_attn.k_proj",
          .v = layer + "self_attn.v_proj",
          .o = layer + "self_attn.o_proj"};
}

MlpSpec llama_mlp(const Shape& s, const std::string& layer) {
  return {.width = s.ffn,
          .act = s.act,
          .gate = layer + "mlp.gate_proj",
          .up = layer + "mlp.up_proj",
          .down = layer + "mlp.down_proj"};
}

ModelSpec llama_frame(const FamilyInput& input, const Shape& s, std::string_view family, NormKind norm) {
  return {.family = std::string(family),
          .hidden = s.hidden,
          .vocab = s.vocab,
          .max_length = s.max_positions,
          .embed = input.prefix + "embed_tokens.weight",
          .head = s.tied ? "" : input.head,
          .final_norm = {input.prefix + "norm.weight", norm, s.eps},
          .ignored_prefixes = s.tied ? std::vector<std::string>{input.head} : std::vector<std::string>{},
          .ignored_suffixes = {".rotary_emb.inv_freq"}};
}

LayerSpec llama_layer(const Shape& s, const std::string& layer, NormKind norm) {
  return {.mixer_norm = {layer + "input_layernorm.weight", norm, s.eps},
          .ffn_norm = {layer + "post_attention_layernorm.weight", norm, s.eps}};
}

}  // namespace hayfork::engine
