// Orthros over a backbone (schema: docs/orthros.md): the backbone's full-attention layers get a window
// for the base stream and full attention for the output stream, with a scale and offset on the queries of each.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

// A softmax layer whose every head sees all keys; others keep their windows in both streams.
bool is_eligible(const LayerSpec& layer) {
  const auto* attention = std::get_if<SoftmaxSpec>(&layer.mixer);
  return attention != nullptr && attention->window == 0 && attention->kv_head_windows.empty();
}

std::vector<int32_t> chosen_layers(const ModelSpec& model, const Config& block) {
  std::vector<int32_t> chosen;
  if (!block.has("layers")) {
    for (size_t i = 0; i < model.layers.size(); ++i) {
      if (is_eligible(model.layers[i])) chosen.push_back(static_cast<int32_t>(i));
    }
    return chosen;
  }
  std::vector<int64_t> asked = block.integers("layers", 0, static_cast<int64_t>(model.layers.size()) - 1);
  std::sort(asked.begin(), asked.end());
  for (const int64_t i : asked) {
    if (!chosen.empty() && i == chosen.back()) block.fail("layers", fmt::format("layer {} is named twice", i));
    if (!is_eligible(model.layers[static_cast<size_t>(i)]))
      block.fail("layers", fmt::format("layer {} is not a full-attention layer", i));
    chosen.push_back(static_cast<int32_t>(i));
  }
  return chosen;
}

OrthrosSpec::Affine read_affine(const Config& block) {
  const std::string stage = block.text("scale_offset_stage", "pre_norm");
  if (stage != "pre_norm" && stage != "post_norm") block.fail("scale_offset_stage", "want pre_norm or post_norm");
  if (!block.boolean("scale_offset")) return OrthrosSpec::Affine::none;
  return stage == "pre_norm" ? OrthrosSpec::Affine::pre_norm : OrthrosSpec::Affine::post_norm;
}

// Orthros-H: what the output stream's query of a Gated DeltaNet layer does (docs/orthros.md).
void apply_to_gdn(GdnSpec& gdn, const Config* switches) {
  if (switches == nullptr) return;
  if (switches->text("query_conv", "bypass") != "bypass") switches->fail("query_conv", "only bypass is known");
  const std::string act = switches->text("query_act", "silu"), read = switches->text("read", "after_write");
  if (act != "silu" && act != "none") switches->fail("query_act", "want silu or none");
  if (read != "after_write" && read != "before_write") switches->fail("read", "want after_write or before_write");
  gdn.output_query_silu = act == "silu";
  gdn.heads.read_before_write = read == "before_write";
  const std::string owner = gdn.o.substr(0, gdn.o.rfind('.'));
  if (switches->boolean("query_affine", false)) gdn.output_affine = owner + ".q_affine.output";
}

}  // namespace

ConfigKeys orthros_keys() {
  return {
      .used = {"version", "backbone_model_type", "window_size", "scale_offset", "scale_offset_stage", "layers", "gdn"},
      .inert = {},
      .must_be_default = {}};
}

std::string orthros_backbone(const Config& block) {
  if (block.integer("version", 0, 1000) != 1) block.fail("version", "only version 1 is known");
  return block.text("backbone_model_type");
}

void apply_orthros(ModelSpec& model, const Config& block) {
  const auto window = static_cast<int32_t>(block.integer("window_size", 1, kMaxPositions));
  const OrthrosSpec::Affine affine = read_affine(block);
  for (const int32_t i : chosen_layers(model, block)) {
    auto& attention = std::get<SoftmaxSpec>(model.layers[static_cast<size_t>(i)].mixer);
    // "…layers.3.self_attn.q_proj" → "…layers.3.self_attn.q_affine"
    const std::string owner = attention.q.substr(0, attention.q.rfind('.'));
    attention.orthros = OrthrosSpec{.window = window, .affine = affine, .tensors = owner + ".q_affine"};
  }
  std::optional<Config> switches;
  if (block.has("gdn")) {
    switches = block.object("gdn");
    switches->check_keys(
        {.used = {"query_conv", "query_act", "query_affine", "read"}, .inert = {}, .must_be_default = {}},
        {.strict = true});
  }
  for (LayerSpec& layer : model.layers) {
    if (auto* gdn = std::get_if<GdnSpec>(&layer.mixer)) {
      apply_to_gdn(*gdn, switches ? &*switches : nullptr);
    } else if (!std::holds_alternative<SoftmaxSpec>(layer.mixer)) {
      throw Error(
          ErrorCode::unsupported, ErrorSubject::model, "this backbone cannot carry Orthros",
          {.where = block.where(), .why = "an output stream is defined for softmax and Gated DeltaNet layers only"});
    }
  }
  model.family = "orthros";
  model.two_streams = true;
}

}  // namespace hayfork::engine
