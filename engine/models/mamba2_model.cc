// Mamba-2 models without attention, in the names of transformers and of flash-linear-attention.
#include <limits>

#include <fmt/format.h>

#include "engine/models/families.h"

namespace hayfork::engine {

Mamba2Spec read_mamba2(const Config& c, int64_t hidden, const Mamba2Defaults& defaults) {
  Mamba2Spec spec;
  const int64_t expand = c.integer("expand", 1, 64, defaults.expand);
  spec.head_dim = static_cast<int32_t>(c.integer("head_dim", 1, kMaxHeadDim, 64));
  spec.state_size = static_cast<int32_t>(c.integer("state_size", 1, kMaxHeadDim, 128));
  spec.n_groups = static_cast<int32_t>(c.integer("n_groups", 1, kMaxHeads, defaults.n_groups));
  spec.taps = static_cast<int32_t>(c.integer("conv_kernel", 0, 64, 4));
  if (spec.taps == 1) c.fail("conv_kernel", "a width of 1 is not supported");
  spec.conv_bias = spec.taps > 0 && c.boolean("use_conv_bias", true);
  spec.bias = c.boolean("use_bias", false);
  spec.norm_before_gate = c.boolean("norm_before_gate", false);
  const int64_t inter = expand * hidden;
  if (inter % spec.head_dim != 0)
    c.fail("head_dim", fmt::format("{} channels do not divide into heads of {}", inter, spec.head_dim));
  spec.n_heads = static_cast<int32_t>(inter / spec.head_dim);
  if (spec.n_heads % spec.n_groups != 0)
    c.fail("n_groups", fmt::format("{} heads do not divide among {} groups", spec.n_heads, spec.n_groups));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  spec.dt_low = 0;
  spec.dt_high = std::numeric_limits<float>::infinity();
  const auto limits = c.numbers(defaults.limit_key, 0, kInfinity);
  if (!limits.empty()) {
    if (limits.size() != 2 || limits[0] > limits[1] || limits[0] == kInfinity)
      c.fail(defaults.limit_key, "want two numbers, the lower first and finite");
    spec.dt_low = static_cast<float>(limits[0]);
    spec.dt_high = static_cast<float>(limits[1]);
  }
  return spec;
}

ConfigKeys mamba2_keys() {
  return {.used = {"model_type",
                   "vocab_size",
                   "hidden_size",
                   "num_hidden_layers",
                   "num_heads",
                   "head_dim",
                   "state_size",
                   "n_groups",
                   "conv_kernel",
                   "expand",
                   "use_bias",
                   "use_conv_bias",
                   "layer_norm_epsilon",
                   "norm_eps",
                   "time_step_limit",
                   "dt_limit",
                   "norm_before_gate",
                   "D_has_hdim",
                   "tie_word_embeddings",
                   "max_position_embeddings",
                   "eos_token_id",
                   "hidden_act"},
          .inert = with(common_keys(), {},
                        {"chunk_size",
                         "residual_in_fp32",
                         "rescale_prenorm_residual",
                         "time_step_floor",
                         "time_step_max",
                         "time_step_min",
                         "time_step_rank",
                         "time_step_init_scheme",
                         "rms_norm",
                         "conv_init",
                         "A_init_range",
                         "dt_min",
                         "dt_max",
                         "dt_init_floor",
                         "fuse_norm",
                         "fuse_cross_entropy",
                         "fuse_linear_cross_entropy",
                         "use_l2warp",
                         "norm_epsilon",
                         "intermediate_size"})
                       .inert,
          .must_be_default = {{"rmsnorm", "true"}, {"quantization_config", "null"}, {"attn", "null"}}};
}

ModelSpec build_mamba2(const FamilyInput& input) {
  const Config& c = input.config;
  const int64_t hidden = c.integer("hidden_size", 1, kMaxWidth);
  const auto n_layers = static_cast<int32_t>(c.integer("num_hidden_layers", 1, kMaxLayers));
  const bool fla = !c.has("layer_norm_epsilon") && !c.has("time_step_limit");
  if (read_activation(c, "hidden_act", "silu") != Activation::silu) c.fail("hidden_act", "want silu");
  Mamba2Spec mixer =
      read_mamba2(c, hidden, {.expand = 2, .n_groups = fla ? 1 : 8, .limit_key = fla ? "dt_limit" : "time_step_limit"});
  mixer.eps = static_cast<float>(c.number(fla ? "norm_eps" : "layer_norm_epsilon", 0, 1, 1e-5));
  if (!fla) mixer.norm_before_gate = false;  // transformers gates first, whatever its files say
  mixer.skip_per_channel = c.boolean("D_has_hdim", false);
  if (c.integer("num_heads", 1, kMaxHeads, mixer.n_heads) != mixer.n_heads)
    c.fail("num_heads", fmt::format("expand · hidden_size / head_dim gives {}", mixer.n_heads));
  const bool tied = c.boolean("tie_word_embeddings", false);
  ModelSpec model{.family = "mamba2",
                  .hidden = hidden,
                  .vocab = c.integer("vocab_size", 1, kMaxVocab),
                  .max_length = c.integer("max_position_embeddings", 1, kMaxPositions, kUnlimitedPositions),
                  .embed = "backbone.embeddings.weight",
                  .head = tied ? "" : "lm_head.weight",
                  .final_norm = {"backbone.norm_f.weight", NormKind::one_cast, mixer.eps}};
  if (tied) model.ignored_prefixes = {"lm_head.weight"};
  if (input.has_tensor("backbone.embedding.weight")) model.embed = "backbone.embedding.weight";  // older files
  for (int32_t i = 0; i < n_layers; ++i) {
    const std::string name = fmt::format("backbone.layers.{}.", i);
    mixer.tensors = name + "mixer.";
    LayerSpec layer;
    layer.mixer = mixer;
    layer.mixer_norm = {name + "norm.weight", NormKind::one_cast, mixer.eps};
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
