// Prediction files of NVIDIA/RULER (scripts/pred/call_api.py): <task>.jsonl, a line a sample: index, input, outputs,
// pred, others, truncation, length. They are scored here as scripts/eval/evaluate.py does. The nominal length is the
// number in the file's path (…/4096/pred/niah_single_1.jsonl), or --map length=4096. The samples carry the documents'
// digests of the protocol ruler/p1 with its own seed 42, so that they pair with our runs of it; the prompts' digests
// tell whether they were the same.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/import/importer.h"
#include "datasets/jsonl.h"
#include "datasets/ruler/ruler.h"
#include "metrics/estimate_row.h"
#include "metrics/text.h"
#include "tasks/ruler.h"

namespace hayfork::cli {
namespace {

using json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kSeed = 42;  // scripts/data/prepare.py's default

class Ruler {
 public:
  explicit Ruler(const ImportOptions& options) : options_(options) {}

  ImportReport run(const OpenStore& open) {
    static constexpr const char* kFacts[] = {"model", "series", "arch", "length", "dtype"};
    check_facts(options_, kFacts);
    for (const fs::path& file : options_.files) read(file);
    runs::Store& store = open();
    ImportedRun run;
    run.identity = imported_identity(store, "ruler", hex(hash_.finish()), R"({"importer":"ruler"})", options_);
    run.identity.model.name = fact("model").value_or("unknown");
    run.identity.model.series = fact("series");
    run.identity.model.arch = fact("arch");
    run.identity.dtype = fact("dtype");
    run.identity.seed = kSeed;
    run.events.push_back({Event::Level::warn, "HAY-W032", "the weights' digest is unknown: comparisons say so", ""});
    for (auto& [name, task] : tasks_) {
      task.planned.n_planned = static_cast<int64_t>(task.samples.size());
      task.metrics = aggregates(task.samples);
      run.tasks.push_back(std::move(task));
    }
    ImportReport report;
    store_imported(store, std::move(run), report);
    return report;
  }

 private:
  runs::OptText fact(const std::string& key) const {
    const auto found = options_.facts.find(key);
    return found == options_.facts.end() ? runs::OptText() : runs::OptText(found->second);
  }

  static const datasets::RulerTask& ruler_task(const fs::path& file) {
    const std::string stem = file.stem().string();
    for (const datasets::RulerTask& task : datasets::ruler_tasks()) {
      if (task.name == stem) return task;
    }
    std::string known;
    for (const datasets::RulerTask& task : datasets::ruler_tasks()) known += (known.empty() ? "" : ", ") + task.name;
    refuse_import(file.string(), "its name is no task of RULER", "files are called after the task: " + known);
  }

  int64_t length_of(const fs::path& file) const {
    if (const auto given = fact("length")) return parse_count(*given, "--map length");
    for (fs::path folder = file.parent_path(); !folder.empty() && folder != folder.parent_path();
         folder = folder.parent_path()) {
      const std::string name = folder.filename().string();
      int64_t length = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), length);
      if (error == std::errc() && end == name.data() + name.size() && length >= 128 && length <= (1 << 30))
        return length;
    }
    refuse_import(file.string(), "no folder of its path is a length", "give --map length=4096");
  }

  void read(const fs::path& file) {
    const datasets::RulerTask& kind = ruler_task(file);
    const int64_t length = length_of(file);
    const std::string name = "ruler_" + kind.name;
    ImportedTask& task = tasks_[name];
    task.planned.task.name = name;
    task.planned.task.family = "ruler";
    task.planned.task.version = "1";
    task.planned.task.kind = "generate";
    task.planned.task.protocol = "ruler/p1/" + kind.name;
    task.planned.task.primary_metric = "score";
    task.planned.task.config_json = canonical_json(nlohmann::json{{"imported", "ruler"}});
    task.planned.metric_defs = {{0, "score", true, "mean", {}}};
    task.planned.seeds_json = canonical_json(nlohmann::json{{"seed", kSeed}});
    datasets::JsonlReader reader(
        file, {.duplicate_keys = datasets::DuplicateKeys::last, .invalid_utf8 = datasets::InvalidUtf8::replace});
    json line;
    size_t n = 0;
    while (reader.next(line)) {
      task.samples.push_back(sample_of(line, kind, length, reader.where()));
      hash_.update(task.samples.back().doc_sha256 + task.samples.back().prompt_sha256 +
                   task.samples.back().response->text + "\n");
      ++n;
    }
    if (n == 0) refuse_import(file.string(), "it holds no prediction");
  }

  runs::SampleRow sample_of(const json& line, const datasets::RulerTask& kind, int64_t length,
                            const std::string& where) const {
    const auto want = [&](const char* key, bool ok) {
      if (!ok) refuse_import(where, fmt::format("\"{}\" is missing or of another type", key));
    };
    want("index", line.contains("index") && line["index"].is_number_integer());
    want("pred", line.contains("pred") && line["pred"].is_string());
    want("outputs", line.contains("outputs") && line["outputs"].is_array() && !line["outputs"].empty());
    std::vector<std::string> targets;
    for (const json& one : line["outputs"]) {
      want("outputs", one.is_string());
      targets.push_back(one.get<std::string>());
    }
    const int64_t index = line["index"].get<int64_t>();
    runs::SampleRow row;
    row.doc_id = fmt::format("{}/{}", length, index);
    row.doc_sha256 = sha256_hex(canonical_json(nlohmann::json{{"protocol", "ruler/p1/" + kind.name},
                                                              {"length", length},
                                                              {"repeat", index},
                                                              {"seed", kSeed},
                                                              {"permutation", "official"}}));
    row.ctx_len = length;
    row.seed = kSeed;
    if (line.contains("input") && line["input"].is_string()) {
      const std::string prompt = line["input"].get<std::string>();
      row.prompt_sha256 = sha256_hex(prompt);
      row.prompt_text = runs::StoredText{prompt};
    }
    if (line.contains("length") && line["length"].is_number_integer())
      row.prompt_tokens = line["length"].get<int64_t>();
    const std::string pred = line["pred"].get<std::string>();
    row.response = runs::StoredText{pred};
    row.answer = tasks::ruler_postprocess(pred);
    for (const std::string& target : targets) row.target = row.target ? *row.target + " | " + target : target;
    row.score = kind.match_part ? metrics::string_match_part(*row.answer, targets)
                                : metrics::string_match_all(*row.answer, targets);
    row.metrics = {{.metric = "score", .value = row.score}};
    return row;
  }

  static runs::MetricRow mean_row(const std::string& slice, const std::vector<double>& values) {
    runs::MetricRow row;
    row.slice = slice;
    row.metric = "score";
    metrics::put_estimate(row, metrics::estimate_mean(values));
    return row;
  }

  static std::vector<runs::MetricRow> aggregates(const std::vector<runs::SampleRow>& samples) {
    std::map<int64_t, std::vector<double>> by_length;
    std::vector<double> all;
    for (const runs::SampleRow& row : samples) {
      by_length[*row.ctx_len].push_back(*row.score);
      all.push_back(*row.score);
    }
    std::vector<runs::MetricRow> out = {mean_row("", all)};
    for (const auto& [length, values] : by_length) out.push_back(mean_row(fmt::format("ctx_len={}", length), values));
    return out;
  }

  const ImportOptions& options_;
  std::map<std::string, ImportedTask> tasks_;
  Sha256Stream hash_;
};

}  // namespace

ImportReport import_ruler(const OpenStore& open, const ImportOptions& options) {
  return Ruler(options).run(open);
}

}  // namespace hayfork::cli
