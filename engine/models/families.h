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

// Orthros over a backbone (orthros.md 8): changes the backbone's layers. Throws: corrupt, unsupported.
ConfigKeys orthros_keys();  // of the "orthros" block
std::string orthros_backbone(const Config& block);
void apply_orthros(ModelSpec& model, const Config& block);

}  // namespace hayfork::engine
