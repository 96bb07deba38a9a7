// From a parsed config.json to a ModelSpec.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/model.h"
#include "engine/models/spec.h"
#include "engine/weights.h"

namespace hayfork::engine {

struct ResolvedModel {
  ModelSpec spec;
  std::vector<int32_t> eos_ids;  // of config.json; generation_config.json may add to them
  std::string config_sha256;     // of canonical JSON, overrides in it
};

// `has_tensor` tells under which names the file keeps its language model. Throws: corrupt, unsupported.
ResolvedModel resolve_model(Config config, const std::function<bool(const std::string&)>& has_tensor,
                            const ModelOptions& options);

// The Model of a spec, its tensors loaded. `info` comes with name, path, ids and digests filled in; the rest is added.
// Throws: as Loader.
std::unique_ptr<Model> make_transformer(Context& context, Weights& weights, const ModelSpec& spec, ModelInfo info);

}  // namespace hayfork::engine
