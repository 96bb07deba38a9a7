// load_model: folder → config → spec → model.
#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "engine/model.h"
#include "engine/models/random.h"
#include "engine/models/registry.h"

namespace hayfork::engine {
namespace {

// generation_config.json may list more end-of-text ids than config.json; generation stops on any of them.
void add_generation_eos(const std::filesystem::path& folder, std::vector<int32_t>& ids) {
  if (!file_exists(folder / "generation_config.json", ErrorSubject::model)) return;
  const Config config = Config::load(folder, "generation_config.json");
  for (const int64_t id : config.integer_or_list("eos_token_id", 0, INT32_MAX)) ids.push_back(static_cast<int32_t>(id));
}

// hayfork.json may say where weights come from ("converted-untrained"), and how many tokens they were trained on.
void add_provenance(const std::filesystem::path& folder, ModelInfo& info) {
  if (!file_exists(folder / "hayfork.json", ErrorSubject::model)) return;
  const Config config = Config::load(folder, "hayfork.json");
  info.weights_provenance = config.text("weights_provenance", "");
  info.train_tokens = config.integer("train_tokens", 0, int64_t{1} << 60, 0);
}

std::unique_ptr<Model> make_random_model(Context& context, const std::string& name, const ModelOptions& options) {
  const RandomModel random = parse_random(name);
  ResolvedModel resolved = resolve_model(
      Config::parse(random.config, name), [](const std::string&) { return false; }, options);
  apply_modifiers(resolved.spec, random);
  Weights weights = Weights::random(random.seed);
  ModelInfo info{.name = name,
                 .path = name,
                 .weights_sha256 = sha256_hex(name),
                 .config_sha256 = sha256_hex(resolved.config_sha256 + name),
                 .weights_provenance = "random"};
  return make_transformer(context, weights, resolved.spec, std::move(info));
}

}  // namespace

std::unique_ptr<Model> load_model(Context& context, const std::filesystem::path& folder, const ModelOptions& options) {
  if (is_random_name(folder.string())) return make_random_model(context, folder.string(), options);
  if (!file_exists(folder / "config.json", ErrorSubject::model)) {
    throw Error(ErrorCode::not_found, ErrorSubject::model, fmt::format("no model in {}", folder.string()),
                {.where = (folder / "config.json").string(),
                 .why = file_exists(folder, ErrorSubject::model) ? "the folder has no config.json"
                                                                 : "the folder does not exist",
                 .next = "give a folder in the Hugging Face layout"});
  }
  Config config = Config::load(folder, "config.json");
  Weights weights(folder);
  ResolvedModel resolved = resolve_model(
      std::move(config), [&](const std::string& name) { return weights.has(name); }, options);
  add_generation_eos(folder, resolved.eos_ids);
  std::sort(resolved.eos_ids.begin(), resolved.eos_ids.end());
  resolved.eos_ids.erase(std::unique(resolved.eos_ids.begin(), resolved.eos_ids.end()), resolved.eos_ids.end());
  const auto normal = std::filesystem::absolute(folder).lexically_normal();
  ModelInfo info{.name = (normal.has_filename() ? normal : normal.parent_path()).filename().string(),
                 .path = normal.string(),
                 .eos_ids = resolved.eos_ids,
                 .config_sha256 = resolved.config_sha256};
  add_provenance(folder, info);
  return make_transformer(context, weights, resolved.spec, std::move(info));
}

}  // namespace hayfork::engine
