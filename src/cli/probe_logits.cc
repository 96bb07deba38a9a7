#include <algorithm>

#include "base/error.h"
#include "base/units.h"

#include "cli/probe.h"
#include "cli/verbs.h"
#include "engine/safetensors.h"

namespace hayfork::cli {
namespace {

using engine::DType;
using engine::TensorOut;

struct TensorProbe {
  ProbeFlags probe;
  std::string ids_file, out, rows = "all", layer = "last";
};

void declare_files(Flags& flags, TensorProbe& options) {
  flags.group("Input");
  FlagInfo& ids = flags.text("ids-file", options.ids_file, "F.json", "{\"ids\":[[…],…]}; - for standard input.");
  ids.required = true;
  ids.kind = "file";
  FlagInfo& out = flags.text("out", options.out, "G.safetensors", "File to write.");
  out.required = true;
  out.kind = "file";
  out.configurable = false;
}

int run_logits(const TensorProbe& options, Console& console) {
  const auto engine = open_probe(options.probe, console);
  const auto sequences = read_ids_file(options.ids_file, engine->info());
  const auto vocab = static_cast<size_t>(engine->info().vocab_size);
  std::vector<std::vector<float>> values(sequences.size());
  std::vector<TensorOut> tensors;
  const bool all = options.rows == "all";
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t n_rows = all ? sequences[i].size() : 1;
    values[i].resize(n_rows * vocab);
    tensors.push_back({"logits." + std::to_string(i),
                       DType::f32,
                       {static_cast<int64_t>(n_rows), static_cast<int64_t>(vocab)},
                       values[i].data()});
  }
  engine->logits_of(sequences, all, [&](size_t i, int32_t position, const float* row) {
    const size_t at = all ? static_cast<size_t>(position) : 0;
    std::copy_n(row, vocab, values[i].begin() + static_cast<std::ptrdiff_t>(at * vocab));
  });
  engine::write_safetensors(options.out, tensors);
  write_stats(options.probe, *engine);
  return 0;
}

int32_t layer_number(const std::string& text, const engine::ModelInfo& info) {
  const auto n_layers = static_cast<int64_t>(info.layers.size());
  const int64_t layer = text == "last" ? n_layers - 1 : parse_count(text, "--layer");
  if (layer < 0 || layer >= n_layers) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "--layer: the model has no layer " + text,
                {.why = "it has layers 0 to " + std::to_string(n_layers - 1)});
  }
  return static_cast<int32_t>(layer);
}

int run_kv(const TensorProbe& options, Console& console) {
  const auto engine = open_probe(options.probe, console);
  const auto sequences = read_ids_file(options.ids_file, engine->info());
  const int32_t layer = layer_number(options.layer, engine->info());
  const engine::LayerInfo& about = engine->info().layers[static_cast<size_t>(layer)];
  if (about.n_kv_heads == 0) {
    throw Error(ErrorCode::usage, ErrorSubject::general,
                "--layer: layer " + std::to_string(layer) + " keeps no keys and values",
                {.why = "it is of kind " + about.kind});
  }
  std::vector<std::vector<float>> keys(sequences.size()), values(sequences.size());
  std::vector<TensorOut> tensors;
  for (size_t i = 0; i < sequences.size(); ++i) {
    engine->kv(sequences[i], layer, keys[i], values[i]);
    const auto rows = static_cast<int64_t>(sequences[i].size());
    const int64_t heads = about.n_kv_heads;
    const auto shape = [&](const std::vector<float>& data) {
      return std::vector<int64_t>{rows, heads, static_cast<int64_t>(data.size()) / (rows * heads)};
    };
    tensors.push_back({"k." + std::to_string(i), DType::f32, shape(keys[i]), keys[i].data()});
    tensors.push_back({"v." + std::to_string(i), DType::f32, shape(values[i]), values[i].data()});
  }
  engine::write_safetensors(options.out, tensors);
  write_stats(options.probe, *engine);
  return 0;
}

}  // namespace

Action declare_probe_logits(Flags& flags) {
  auto options = std::make_shared<TensorProbe>();
  declare_files(flags, *options);
  flags.choice("rows", options->rows, {"all", "last"}, "Logits of every position, or of the last.");
  declare_probe(flags, options->probe);
  return [options](Console& console) { return run_logits(*options, console); };
}

Action declare_probe_kv(Flags& flags) {
  auto options = std::make_shared<TensorProbe>();
  declare_files(flags, *options);
  flags.text("layer", options->layer, "N|last", "Which layer, counted from 0.");
  declare_probe(flags, options->probe);
  return [options](Console& console) { return run_kv(*options, console); };
}

}  // namespace hayfork::cli
