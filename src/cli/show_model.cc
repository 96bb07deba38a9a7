#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"
#include "cli/engine_flags.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "engine/text/tokenizer.h"

namespace hayfork::cli {
namespace {

using runs::Align;
using runs::Cell;
using runs::CellType;

struct ModelOptions {
  EngineFlags engine;
  OutputOptions output;
  bool digest = false;
};

bool alike(const engine::LayerInfo& a, const engine::LayerInfo& b) {
  return a.kind == b.kind && a.window == b.window && a.position == b.position && a.n_heads == b.n_heads &&
         a.n_kv_heads == b.n_kv_heads && a.head_dim == b.head_dim;
}

std::string millions(int64_t n) {
  if (n >= 1'000'000'000) return fmt::format("{:.2f} B", static_cast<double>(n) / 1e9);
  return fmt::format("{:.1f} M", static_cast<double>(n) / 1e6);
}

// Bytes a sequence of `length` tokens keeps: layers whose window is shorter keep that.
double state_bytes(const engine::ModelInfo& info, int64_t length) {
  double bytes = 0;
  for (const engine::LayerInfo& layer : info.layers) {
    const bool own_window = layer.window > 0 && layer.kind == "swa";
    const int64_t kept = own_window ? std::min<int64_t>(length, layer.window) : length;
    bytes += static_cast<double>(layer.state_bytes_per_token) * static_cast<double>(kept) +
             static_cast<double>(layer.state_bytes_fixed);
  }
  return bytes;
}

runs::Table layer_table(const engine::ModelInfo& info, bool people) {
  runs::Table table{{{.name = "layers"},
                     {.name = "kind"},
                     {.name = "window", .align = Align::right, .type = CellType::integer},
                     {.name = "position"},
                     {.name = "heads", .align = Align::right, .type = CellType::integer},
                     {.name = "kv_heads", .align = Align::right, .type = CellType::integer},
                     {.name = "head_dim", .align = Align::right, .type = CellType::integer},
                     {.name = "bytes_per_token", .align = Align::right, .type = CellType::integer},
                     {.name = "bytes_fixed", .align = Align::right, .type = CellType::integer}},
                    {}};
  for (size_t i = 0; i < info.layers.size();) {
    size_t end = i + 1;
    while (people && end < info.layers.size() && alike(info.layers[i], info.layers[end])) ++end;
    const engine::LayerInfo& layer = info.layers[i];
    const auto shown = [](int64_t n) { return n == 0 ? Cell() : Cell(n); };
    table.rows.push_back({end - i == 1 ? fmt::format("{}", i) : fmt::format("{}-{}", i, end - 1), layer.kind,
                          shown(layer.window), layer.position, shown(layer.n_heads), shown(layer.n_kv_heads),
                          shown(layer.head_dim), layer.state_bytes_per_token, layer.state_bytes_fixed});
    i = end;
  }
  if (people) drop_empty_columns(table, {"window", "bytes_fixed"});
  return table;
}

runs::Section facts(const engine::ModelInfo& info, const engine::Tokenizer* tokenizer) {
  runs::Section section{.name = "model", .record = true};
  section.table.rows.emplace_back();
  const auto add = [&](const std::string& name, Cell value, CellType type = CellType::text) {
    section.table.columns.push_back({.name = name, .type = type});
    section.table.rows.front().push_back(std::move(value));
  };
  add("name", info.name);
  add("family", info.family);
  add("arch", info.arch);
  add("arch_label", info.arch_label);
  add("n_layers", static_cast<int64_t>(info.layers.size()), CellType::integer);
  add("hidden", int64_t{info.hidden_size}, CellType::integer);
  add("vocab", int64_t{info.vocab_size}, CellType::integer);
  add("params", info.n_params, CellType::integer);
  add("params_no_embedding", info.n_params_no_embedding, CellType::integer);
  add("max_length", int64_t{info.max_length}, CellType::integer);
  const auto reach = [](int64_t tokens) { return tokens == 0 ? Cell() : Cell(tokens); };
  add("kv_reach_tokens", reach(info.kv_reach_tokens), CellType::integer);
  add("hidden_reach_tokens", reach(info.hidden_reach_tokens), CellType::integer);
  add("tokenizer", tokenizer == nullptr ? Cell() : Cell(tokenizer->kind()));
  add("dtype", info.dtype);
  add("kv_dtype", info.kv_dtype);
  add("device", info.device);
  add("numerics", info.numerics_id);
  if (!info.weights_sha256.empty()) add("weights_sha256", info.weights_sha256);
  add("config_sha256", info.config_sha256);
  add("tokenizer_sha256", info.tokenizer_sha256);
  if (!info.template_sha256.empty()) add("template_sha256", info.template_sha256);
  add("path", info.path);
  return section;
}

// "24 layers of 32 experts, 4 a token   3.61 B of 20.91 B parameters a token   10.15 GB in experts"
std::string experts_note(const engine::Engine& engine) {
  const std::vector<engine::ExpertLoad> layers = engine.expert_load();
  if (layers.empty()) return "";
  int64_t idle = 0, bytes = 0;
  for (const engine::ExpertLoad& layer : layers) {
    const auto n = static_cast<int64_t>(layer.rows.size());
    idle += (n - layer.per_token) * layer.params;
    bytes += n * layer.bytes;
  }
  const int64_t all = engine.info().n_params;
  return fmt::format("{} {} of {} experts, {} a token   {} of {} parameters a token   {} in experts", layers.size(),
                     layers.size() == 1 ? "layer" : "layers", layers.front().rows.size(), layers.front().per_token,
                     millions(all - idle), millions(all), format_bytes(static_cast<double>(bytes)));
}

int run(const ModelOptions& options, Console& console) {
  engine::EngineOptions how = engine_options(options.engine, console);
  how.weights_digest = options.digest;
  const auto engine = open_engine(options.engine, std::move(how));
  const engine::ModelInfo& info = engine->info();
  const bool people = options.output.format == "table";
  runs::Section layers{.name = "layers", .table = layer_table(info, people)};
  double per_token = 0;
  for (const engine::LayerInfo& layer : info.layers) per_token += static_cast<double>(layer.state_bytes_per_token);
  if (const std::string experts = experts_note(*engine); !experts.empty()) layers.notes.push_back(experts);
  const int64_t example = std::min<int64_t>(32768, info.max_length > 0 ? info.max_length : 32768);
  layers.notes.push_back(fmt::format("state/token {} {}   {} tokens {}", format_bytes(per_token), info.kv_dtype,
                                     format_count(example), format_bytes(state_bytes(info, example))));
  if (info.kv_reach_tokens > 0) {
    layers.notes.push_back(
        fmt::format("reach {}: keys and values of a position depend on {} tokens, its last hidden "
                    "state on {}, itself included",
                    info.arch == "orthros" ? "of the base stream" : "through all layers", info.kv_reach_tokens,
                    info.hidden_reach_tokens));
  }
  runs::Document document{"show-model", {facts(info, engine->tokenizer()), std::move(layers)}};
  if (people) {
    document.sections.front().title =
        fmt::format("{} layers  d={}  vocab {}  {} ({} w/o emb)", info.layers.size(), info.hidden_size, info.vocab_size,
                    millions(info.n_params), millions(info.n_params_no_embedding));
  }
  print(console, document, options.output);
  return 0;
}

}  // namespace

Action declare_show_model(Flags& flags) {
  auto options = std::make_shared<ModelOptions>();
  FlagInfo& model = flags.argument("MODEL", options->engine.model, "Checkpoint folder or random:SHAPE.");
  model.kind = "dir";
  flags.toggle("digest", options->digest, "Compute the digest of the weights too.").configurable = false;
  declare_engine(flags, options->engine, false);
  declare_output(flags, options->output);
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
