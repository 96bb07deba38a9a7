// The family files' entry points; registry.cc lists them.
#pragma once

#include "engine/models/family.h"

namespace hayfork::engine {

ConfigKeys llama_keys();
ModelSpec build_llama(const FamilyInput& input);
ConfigKeys mistral_keys();
ModelSpec build_mistral(const FamilyInput& input);
ConfigKeys qwen2_keys();
ModelSpec build_qwen2(const FamilyInput& input);
ConfigKeys qwen3_keys();
ModelSpec build_qwen3(const FamilyInput& input);
ConfigKeys smollm3_keys();
ModelSpec build_smollm3(const FamilyInput& input);
ConfigKeys gemma2_keys();
ModelSpec build_gemma2(const FamilyInput& input);
ConfigKeys gemma3_keys();
ModelSpec build_gemma3(const FamilyInput& input);

ConfigKeys qwen3_5_keys();
ModelSpec build_qwen3_5(const FamilyInput& input);
ConfigKeys qwen3_5_moe_keys();
ModelSpec build_qwen3_5_moe(const FamilyInput& input);
ConfigKeys qwen3_next_keys();
ModelSpec build_qwen3_next(const FamilyInput& input);
ConfigKeys qwen3_moe_keys();
ModelSpec build_qwen3_moe(const FamilyInput& input);
ConfigKeys gemma4_keys();
ModelSpec build_gemma4(const FamilyInput& input);
ConfigKeys gpt_oss_keys();
ModelSpec build_gpt_oss(const FamilyInput& input);
ConfigKeys minicpm_keys();
ModelSpec build_minicpm(const FamilyInput& input);
ConfigKeys minimax_keys();
ModelSpec build_minimax(const FamilyInput& input);
ConfigKeys mamba2_keys();
ModelSpec build_mamba2(const FamilyInput& input);
ConfigKeys fla_transformer_keys();
ModelSpec build_fla_transformer(const FamilyInput& input);
ConfigKeys fla_gdn_keys();
ModelSpec build_fla_gdn(const FamilyInput& input);
ConfigKeys fla_gla_keys();
ModelSpec build_fla_gla(const FamilyInput& input);
ConfigKeys fla_retnet_keys();
ModelSpec build_fla_retnet(const FamilyInput& input);
ConfigKeys hayfork_hybrid_keys();
ModelSpec build_hayfork_hybrid(const FamilyInput& input);

// The sizes of Mamba-2 mixers, read from the object that holds them. Throws: corrupt.
struct Mamba2Defaults {
  int64_t expand = 2, n_groups = 1;
  std::string_view limit_key;  // bounds of the step size
};
Mamba2Spec read_mamba2(const Config& config, int64_t hidden, const Mamba2Defaults& defaults);

// Orthros over a backbone (docs/orthros.md): changes the backbone's layers. Throws: corrupt, unsupported.
ConfigKeys orthros_keys();  // of the "orthros" block
std::string orthros_backbone(const Config& block);
void apply_orthros(ModelSpec& model, const Config& block);

}  // namespace hayfork::engine
