// llama-bench of llama.cpp, -o json (an array) or jsonl: a row a test (tools/llama-bench/llama-bench.cpp, struct test).
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/import/importer.h"
#include "datasets/jsonl.h"

namespace hayfork::cli {
namespace {

using json = nlohmann::ordered_json;

class LlamaBench {
 public:
  explicit LlamaBench(const ImportOptions& options) : options_(options) {}

  ImportReport run(const OpenStore& open) {
    static constexpr const char* kFacts[] = {"model", "series", "arch", "dtype"};
    check_facts(options_, kFacts);
    for (const auto& file : options_.files) read(file);
    if (runs_.empty()) refuse_import(options_.files.front().string(), "it holds no test");
    ImportReport report;
    runs::Store& store = open();
    for (auto& [key, run] : runs_) describe(store, key, run);  // one that is there already stops all
    for (auto& [key, run] : runs_) store_imported(store, std::move(run.imported), report);
    return report;
  }

 private:
  struct Run {
    ImportedRun imported;
    json first;
    std::string rows;  // for the digest
  };

  void read(const std::filesystem::path& file) {
    const std::string text = read_file(file, ErrorSubject::data, size_t{256} << 20);
    const size_t start = text.find_first_not_of(" \r\n\t");
    if (start != std::string::npos && text[start] == '[') {
      const json all = parse_ordered_json(text, file.string(), ErrorSubject::data);
      for (size_t i = 0; i < all.size(); ++i) add(all[i], fmt::format("{}, entry {}", file.string(), i + 1));
      return;
    }
    datasets::JsonlReader reader(text, file.string());
    json line;
    while (reader.next(line)) add(line, reader.where());
  }

  static double number(const json& row, const char* key, const std::string& where) {
    const auto at = row.find(key);
    if (at == row.end() || !at->is_number() || !std::isfinite(at->get<double>()) || at->get<double>() < 0 ||
        at->get<double>() > 1e15)
      refuse_import(where, fmt::format("want a number \"{}\" of 0 or more", key));
    return at->get<double>();
  }
  static int64_t count(const json& row, const char* key, const std::string& where, bool required = true) {
    if (!required && !row.contains(key)) return 0;
    return static_cast<int64_t>(number(row, key, where));
  }
  static std::string text(const json& row, const char* key) {
    const auto at = row.find(key);
    return at != row.end() && at->is_string() ? replace_invalid_utf8(at->get<std::string>()) : "";
  }

  void add(const json& row, const std::string& where) {
    if (!row.is_object()) refuse_import(where, "want an object a test");
    runs::BenchRow bench;
    bench.n_prompt = count(row, "n_prompt", where);
    bench.n_gen = count(row, "n_gen", where);
    bench.depth = count(row, "n_depth", where, false);
    bench.tps_mean = number(row, "avg_ts", where);
    bench.tps_sd = number(row, "stddev_ts", where);
    if (bench.n_gen == 0) bench.ttft_ms = number(row, "avg_ns", where) / 1e6;
    const auto samples = row.find("samples_ts");
    if (samples != row.end() && samples->is_array()) {
      bench.reps = static_cast<int64_t>(samples->size());
      bench.reps_json = canonical_json(nlohmann::json(*samples));
    }
    bench.device = text(row, "gpu_info").empty() ? text(row, "cpu_info") : text(row, "gpu_info");
    bench.test = bench.n_gen == 0      ? fmt::format("pp{}", bench.n_prompt)
                 : bench.n_prompt == 0 ? fmt::format("tg{}", bench.n_gen)
                                       : fmt::format("pp{}+tg{}", bench.n_prompt, bench.n_gen);
    if (bench.depth > 0) bench.test += fmt::format(" @ d{}", bench.depth);
    // One run a model, build and setting: what llama-bench varies beside the test itself.
    std::string key;
    for (const char* name : {"model_filename", "build_commit", "backends", "type_k", "type_v"})
      key += text(row, name) + "\n";
    for (const char* name : {"n_threads", "n_gpu_layers", "n_batch", "n_ubatch", "flash_attn"})
      key += (row.contains(name) ? row[name].dump() : "") + "\n";
    Run& run = runs_[key];
    if (run.imported.bench.empty()) run.first = row;
    run.rows += row.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    run.imported.bench.push_back(std::move(bench));
  }

  void describe(runs::Store& store, const std::string& key, Run& run) {
    nlohmann::json settings = {{"importer", "llama-bench"}};
    for (const auto& [name, value] : run.first.items()) {
      if (!value.is_structured() && name.size() < 100) settings[replace_invalid_utf8(name)] = value;
    }
    runs::RunIdentity& identity = run.imported.identity;
    identity = imported_identity(store, "llama-bench", sha256_hex(key + run.rows), canonical_json(settings), options_);
    const auto fact = [&](const char* name) {
      const auto found = options_.facts.find(name);
      return found == options_.facts.end() ? runs::OptText() : runs::OptText(found->second);
    };
    const std::string file = text(run.first, "model_filename");
    identity.model.name =
        fact("model").value_or(file.empty() ? "unknown" : std::filesystem::path(file).filename().string());
    identity.model.arch_label = text(run.first, "model_type");
    identity.model.series = fact("series");
    identity.model.arch = fact("arch");
    if (run.first.contains("model_n_params") && run.first["model_n_params"].is_number_integer())
      identity.model.n_params = run.first["model_n_params"].get<int64_t>();
    identity.dtype = fact("dtype");
    identity.kv_dtype = text(run.first, "type_k");
    identity.host.cpu = text(run.first, "cpu_info");
  }

  const ImportOptions& options_;
  std::map<std::string, Run> runs_;
};

}  // namespace

ImportReport import_llama_bench(const OpenStore& open, const ImportOptions& options) {
  return LlamaBench(options).run(open);
}

}  // namespace hayfork::cli
