// gpt-oss: sinks in every softmax, a window of 128 on every other layer, YaRN, experts with a
// clamped gate, stored in MXFP4 or plain.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

MoeSpec::Layout read_layout(const Config& c) {
  if (!c.has("quantization_config")) return MoeSpec::Layout::gpt_oss;
  const Config quantization = c.object("quantization_config");
  const std::string method = quantization.text("quant_method");
  if (method == "mxfp4") return MoeSpec::Layout::mxfp4;
  throw Error(ErrorCode::unsupported, ErrorSubject::model,
              fmt::format("quantization \"{}\" is not supported", method.substr(0, 80)),
              {.where = quantization.where(), .why = "gpt-oss experts may be plain or mxfp4"});
}

MoeSpec gpt_oss_experts(const Config& c, const Shape& shape, MoeSpec::Layout layout, const std::string& layer) {
  MoeSpec spec;
  spec.n_experts = static_cast<int32_t>(c.integer("num_local_experts", 1, 1 << 16, 128));
  spec.width = shape.ffn;
  spec.router_params = {.top_k = static_cast<int32_t>(c.integer("num_experts_per_tok", 1, spec.n_experts, 4)),
                        .softmax_over_chosen = true,
                        .renormalise = false};
  spec.router = layer + "mlp.router";
  spec.router_bias = true;
  spec.experts = layer + "mlp.experts";
  spec.layout = layout;
  spec.act.limit = static_cast<float>(c.number("swiglu_limit", 1e-6, 1e9, 7.0));
  spec.act.alpha = static_cast<float>(c.number("swiglu_alpha", 1e-6, 1e9, 1.702));
  return spec;
}

}  // namespace

ConfigKeys gpt_oss_keys() {
  return with(common_keys(),
              {"attention_bias", "num_local_experts", "num_experts_per_tok", "swiglu_limit", "swiglu_alpha",
               "sliding_window", "layer_types", "quantization_config"},
              {"experts_per_token", "initial_context_length"});
}

ModelSpec build_gpt_oss(const FamilyInput& input) {
  const Config& c = input.config;
  const Shape shape = read_shape(input, {.eps = 1e-5});
  const auto types = read_layer_types(c, shape.layers, {"full_attention", "sliding_attention"});
  const auto window = static_cast<int32_t>(c.integer("sliding_window", 1, kMaxPositions, 128));
  const bool bias = c.boolean("attention_bias", true);
  const MoeSpec::Layout layout = read_layout(c);
  ModelSpec model = llama_frame(input, shape, "gpt_oss", NormKind::one_cast);
  model.ropes = {read_rope(c, "full_attention", shape.head_dim, shape.max_positions, {.base = 150000})};
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    const bool slides = types.empty() ? i % 2 == 0 : types[static_cast<size_t>(i)] == "sliding_attention";
    SoftmaxSpec attention = llama_attention(shape, name);
    attention.qkv_bias = attention.o_bias = bias;
    attention.window = slides ? window : 0;
    attention.sinks = name + "self_attn.sinks";
    LayerSpec layer = llama_layer(shape, name, NormKind::one_cast);
    layer.mixer = attention;
    layer.ffn = gpt_oss_experts(c, shape, layout, name);
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
