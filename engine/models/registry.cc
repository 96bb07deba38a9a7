// The table of families, and the way from config.json to a ModelSpec: multimodal wrappers are opened, Orthros is put
// over its backbone.
#include "engine/models/registry.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

using HasTensor = std::function<bool(const std::string&)>;

constexpr std::array kFamilies = {
    Family{"llama", llama_keys, build_llama},
    Family{"mistral", mistral_keys, build_mistral},
    Family{"qwen2", qwen2_keys, build_qwen2},
    Family{"qwen3", qwen3_keys, build_qwen3},
    Family{"qwen3_5_text", qwen3_5_keys, build_qwen3_5},
    Family{"smollm3", smollm3_keys, build_smollm3},
    Family{"gemma2", gemma2_keys, build_gemma2},
    Family{"gemma3_text", gemma3_keys, build_gemma3},
    Family{"gemma4_text", gemma4_keys, build_gemma4},
    Family{"qwen3_moe", qwen3_moe_keys, build_qwen3_moe},
    Family{"qwen3_next", qwen3_next_keys, build_qwen3_next},
    Family{"qwen3_5_moe_text", qwen3_5_moe_keys, build_qwen3_5_moe},
    Family{"gpt_oss", gpt_oss_keys, build_gpt_oss},
    Family{"minicpm", minicpm_keys, build_minicpm},
    Family{"minimax", minimax_keys, build_minimax},
    Family{"mamba2", mamba2_keys, build_mamba2},
    Family{"transformer", fla_transformer_keys, build_fla_transformer},
    Family{"gated_deltanet", fla_gdn_keys, build_fla_gdn},
    Family{"gla", fla_gla_keys, build_fla_gla},
    Family{"retnet", fla_retnet_keys, build_fla_retnet},
    Family{"hayfork_hybrid", hayfork_hybrid_keys, build_hayfork_hybrid, true},
};

// Multimodal classes whose language model is one of ours.
struct Wrapper {
  std::string_view model_type, text_type;
};
constexpr std::array kWrappers = {
    Wrapper{"gemma3", "gemma3_text"},
    Wrapper{"gemma4", "gemma4_text"},
    Wrapper{"qwen3_5", "qwen3_5_text"},
    Wrapper{"qwen3_5_moe", "qwen3_5_moe_text"},
};

ConfigKeys wrapper_keys() {
  return {.used = {"model_type", "text_config", "tie_word_embeddings", "eos_token_id"},
          .inert = {"architectures",
                    "vision_config",
                    "audio_config",
                    "dtype",
                    "torch_dtype",
                    "transformers_version",
                    "image_token_id",
                    "video_token_id",
                    "audio_token_id",
                    "image_token_index",
                    "vision_start_token_id",
                    "vision_end_token_id",
                    "boi_token_index",
                    "eoi_token_index",
                    "boi_token_id",
                    "eoi_token_id",
                    "boa_token_id",
                    "eoa_token_id",
                    "eoa_token_index",
                    "mm_tokens_per_image",
                    "bos_token_id",
                    "pad_token_id",
                    "initializer_range",
                    "use_cache",
                    "vision_soft_tokens_per_image",
                    "_name_or_path",
                    "auto_map",
                    "hidden_size",
                    "vocab_size"},
          .must_be_default = {{"quantization_config", "null"}}};
}

// Where the language model's tensors are, and the name of its output matrix.
void find_prefix(const HasTensor& has_tensor, bool wrapped, std::string& prefix, std::string& head) {
  prefix = "model.";
  head = "lm_head.weight";
  if (!wrapped) return;
  for (const char* candidate : {"model.language_model.", "language_model.model."}) {
    if (has_tensor(std::string(candidate) + "embed_tokens.weight")) prefix = candidate;
  }
  if (has_tensor("language_model.lm_head.weight")) head = "language_model.lm_head.weight";
}

[[noreturn]] void throw_unknown(const std::string& type, const std::string& where) {
  throw Error(ErrorCode::unsupported, ErrorSubject::model,
              fmt::format("model type \"{}\" is not supported", type.substr(0, 80)),
              {.where = where,
               .why = fmt::format("known are {}, and orthros over them", fmt::join(family_names(), ", ")),
               .next = "see docs/architectures.md"});
}

}  // namespace

const Family* find_family(std::string_view model_type) {
  const auto it = std::find_if(kFamilies.begin(), kFamilies.end(),
                               [&](const Family& family) { return family.model_type == model_type; });
  return it == kFamilies.end() ? nullptr : &*it;
}

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  for (const Wrapper& wrapper : kWrappers) names.push_back(wrapper.model_type);
  return names;
}

ResolvedModel resolve_model(Config config, const HasTensor& has_tensor, const ModelOptions& options) {
  ResolvedModel resolved;
  const Config::Policy policy{.ignored = options.ignored_config_keys, .events = &options.events};
  std::string type = config.text("model_type");
  const auto eos = [&](const Config& from) {
    for (const int64_t id : from.integer_or_list("eos_token_id", 0, kMaxVocab))
      resolved.eos_ids.push_back(static_cast<int32_t>(id));
  };
  bool tied_outside = false, wrapped = false;
  const auto wrapper =
      std::find_if(kWrappers.begin(), kWrappers.end(), [&](const Wrapper& w) { return w.model_type == type; });
  if (wrapper != kWrappers.end()) {
    config.check_keys(wrapper_keys(), policy);
    eos(config);
    tied_outside = config.boolean("tie_word_embeddings", false);
    wrapped = true;
    config = config.object("text_config");
    type = config.text("model_type", std::string(wrapper->text_type));
  }
  std::optional<Config> orthros;
  if (type == "orthros") {
    orthros = config.object("orthros");
    orthros->check_keys(orthros_keys(), {.strict = true});
    type = orthros_backbone(*orthros);
  }
  const Family* family = find_family(type);
  if (family == nullptr) throw_unknown(type, config.where());
  ConfigKeys keys = family->keys();
  if (orthros) keys = with(keys, {"orthros"});
  config.check_keys(keys,
                    {.strict = family->strict, .ignored = options.ignored_config_keys, .events = &options.events});
  eos(config);

  std::string prefix, head;
  find_prefix(has_tensor, wrapped, prefix, head);
  resolved.spec = family->build({config, prefix, head, tied_outside, has_tensor});
  if (orthros) apply_orthros(resolved.spec, *orthros);
  for (const char* part : {"model.visual.", "visual.", "vision_tower.", "model.vision_tower.", "multi_modal_projector.",
                           "model.multi_modal_projector.", "audio_tower.", "model.audio_tower.", "model.embed_vision.",
                           "model.embed_audio.", "mtp."}) {
    if (wrapped || std::string_view(part) == "mtp.") resolved.spec.ignored_prefixes.emplace_back(part);
  }
  resolved.config_sha256 = config.digest(resolved.spec.family);
  return resolved;
}

}  // namespace hayfork::engine
