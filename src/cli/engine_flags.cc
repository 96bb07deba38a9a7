#include "cli/engine_flags.h"

#include <unistd.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/parallel.h"
#include "base/units.h"
#include "cli/settings.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;

void read_order(const std::string& text, engine::EngineOptions& options) {
  using engine::Order;
  if (text == "planned")
    options.order = Order::planned;
  else if (text == "given")
    options.order = Order::given;
  else if (text == "reverse")
    options.order = Order::reverse;
  else if (text.starts_with("shuffle:")) {
    options.order = Order::shuffle;
    options.order_seed = static_cast<uint64_t>(parse_count(text.substr(8), "--order"));
  } else {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--order: unknown value \"{}\"", text),
                {.why = "want planned, given, reverse or shuffle:SEED"});
  }
}

// models--org--name of a Hugging Face cache: the snapshot refs/main names, else the only one.
fs::path cache_snapshot(const fs::path& folder) {
  std::error_code ignored;
  if (const fs::path ref = folder / "refs" / "main"; fs::is_regular_file(ref, ignored)) {
    std::string name = read_file(ref, ErrorSubject::model, 4096);
    while (!name.empty() && name.back() <= ' ') name.pop_back();
    if (fs::is_directory(folder / "snapshots" / name, ignored)) return folder / "snapshots" / name;
  }
  fs::path only;
  for (const auto& entry : fs::directory_iterator(folder / "snapshots", ignored)) {
    if (!only.empty()) {
      throw Error(ErrorCode::usage, ErrorSubject::general, "several snapshots: give one of them",
                  {.where = (folder / "snapshots").string()});
    }
    only = entry.path();
  }
  return only.empty() ? folder : only;
}

// A cache that cannot be written is done without.
bool usable(const fs::path& cache) {
  std::error_code error;
  if (cache.empty()) return false;
  fs::create_directories(cache, error);
  return !error && ::access(cache.c_str(), W_OK) == 0;
}

}  // namespace

void declare_engine(Flags& flags, EngineFlags& engine, bool required) {
  flags.group("Model and engine");
  FlagInfo& model =
      flags.text("model", engine.model, "M", "Checkpoint folder, snapshot of a Hugging Face cache, or random:SHAPE.");
  model.required = required;
  model.kind = "dir";
  flags.text("tokenizer", engine.tokenizer, "DIR", "Another tokenizer than the checkpoint's own.").kind = "dir";
  flags.text("device", engine.device, "NAME", "auto, cpu or cuda:0.").alias = "devices";
  flags.choice("dtype", engine.dtype, {"auto", "f32", "bf16"},
               "Compute type; auto is bf16 where the processor has it in hardware, else f32.");
  flags.choice("kv-dtype", engine.kv_dtype, {"auto", "f32", "bf16"},
               "Type of stored keys and values; auto as --dtype.");
  flags.count("threads", engine.threads, "N", "Threads. Default: every core this process may use.");
  flags.text("batch-size", engine.batch_size, "N", "Sequences in flight, auto or a number. Never changes a result.");
  flags.count("chunk", engine.chunk, "N", "Rows of a pass. Never changes a result. Default: planned.");
  flags.text("order", engine.order, "ORDER",
             "planned, given, reverse or shuffle:SEED: in which order requests are computed. Never changes a result.");
  flags.on_off("prefix-reuse", engine.prefix_reuse, "Compute shared prefixes once. Never changes a result.");
  flags.on_off("graphs", engine.graphs, "Decode in CUDA graphs. Never changes a result.");
  flags.count("memory-limit", engine.memory, "BYTES", "For cache and scratch, 4096m for 4 GiB. Default: measured.");
  flags.list("ignore-config-key", engine.ignored_config_keys, "KEY",
             "Load although config.json has this key, which is not known; stored with the run.");
}

engine::EngineOptions engine_options(const EngineFlags& flags, Console& console) {
  engine::EngineOptions options;
  options.device = flags.device;
  options.dtype = flags.dtype;
  options.kv_dtype = flags.kv_dtype;
  options.threads = flags.threads;
  if (constexpr int32_t kMostThreads = 1024; flags.threads > kMostThreads) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--threads: cannot use {}", flags.threads),
                {.why = fmt::format("want 1 to {}", kMostThreads),
                 .next = fmt::format("leave it out: this process may use {} cores", hardware_threads())});
  }
  if (flags.batch_size != "auto") {
    const int64_t n = parse_count(flags.batch_size, "--batch-size");
    if (n < 1 || n > 1'000'000) {
      throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--batch-size: cannot use {}", n),
                  {.why = "want auto or 1 to 1000000"});
    }
    options.batch_size = static_cast<int32_t>(n);
  }
  options.chunk = flags.chunk;
  read_order(flags.order, options);
  options.prefix_reuse = flags.prefix_reuse;
  options.graphs = flags.graphs;
  options.memory_limit_bytes = flags.memory;
  options.tokenizer = flags.tokenizer;
  options.ignored_config_keys = flags.ignored_config_keys;
  if (const fs::path cache = cache_folder(); usable(cache)) options.digest_cache = cache / "digests.txt";
  options.events = console.events();
  return options;
}

fs::path model_folder(const std::string& model) {
  if (model.starts_with("random:")) return model;
  std::error_code ignored;
  const fs::path path = model;
  if (!fs::exists(path, ignored)) {
    throw Error(ErrorCode::not_found, ErrorSubject::model, "no such model folder",
                {.where = model, .next = "give the folder that holds config.json and the weights, or random:SHAPE"});
  }
  if (!fs::exists(path / "config.json", ignored) && fs::is_directory(path / "snapshots", ignored)) {
    return cache_snapshot(path);
  }
  return path;
}

std::unique_ptr<engine::Engine> open_engine(const EngineFlags& flags, engine::EngineOptions options) {
  if (options.threads > 0) set_threads(options.threads);
  return engine::Engine::open(model_folder(flags.model), options);
}

std::string device_line(const engine::ModelInfo& info, int32_t threads) {
  if (info.device.starts_with("cpu")) {
    return fmt::format("cpu {} threads  {}", threads > 0 ? threads : hardware_threads(), info.dtype);
  }
  return fmt::format("{}  {}", info.device, info.dtype);
}

}  // namespace hayfork::cli
