// Flags that open a model, and opening it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/flags.h"
#include "engine/engine.h"

namespace hayfork::cli {

struct EngineFlags {
  std::string model;
  std::string tokenizer;
  std::string device = "auto", dtype = "auto", kv_dtype = "auto", batch_size = "auto", order = "planned";
  int32_t threads = 0, chunk = 0;
  int64_t memory = 0;
  bool prefix_reuse = true, graphs = true;
  std::vector<std::string> ignored_config_keys;
};

// Declares --model and what decides how it is computed. `required`: --model must be given.
void declare_engine(Flags& flags, EngineFlags& engine, bool required = true);

// Throws: usage.
engine::EngineOptions engine_options(const EngineFlags& flags, Console& console);
// The folder behind --model: itself, the newest snapshot of a Hugging Face cache folder, or "random:…" unchanged.
// Throws: not_found (model).
std::filesystem::path model_folder(const std::string& model);
std::unique_ptr<engine::Engine> open_engine(const EngineFlags& flags, engine::EngineOptions options);
// "cpu 2 threads f32" for plan lines.
std::string device_line(const engine::ModelInfo& info, int32_t threads);

}  // namespace hayfork::cli
