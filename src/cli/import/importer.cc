#include "cli/import/importer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/digest.h"
#include "base/utf8.h"
#include "metrics/estimate_row.h"
#include "runs/provenance.h"
#include "tasks/tasks.h"

namespace hayfork::cli {
namespace {

constexpr Importer kImporters[] = {
    {"lm-eval", "results and samples of lm-evaluation-harness", "results_*.json samples_*.jsonl …", import_lm_eval},
    {"llama-bench", "timings of llama.cpp's llama-bench", "JSON or JSON lines", import_llama_bench},
    {"ruler", "predictions of NVIDIA/RULER, scored here", "LENGTH/…/niah_single_1.jsonl …", import_ruler},
    {"hayfork", "another Hayfork database, as db merge", "OTHER.db …", import_hayfork},
};

// The interval of a mean, where the samples give the value that the file says.
void add_interval(runs::MetricRow& row, const std::vector<runs::SampleRow>& samples) {
  if (row.ci_low || !row.value || !row.slice.empty()) return;
  std::vector<double> values;
  for (const runs::SampleRow& sample : samples) {
    for (const runs::SampleMetricRow& metric : sample.metrics) {
      if (metric.metric == row.metric && metric.filter == row.filter && metric.value) values.push_back(*metric.value);
    }
  }
  if (values.empty()) return;
  const metrics::Estimate estimate = metrics::estimate_mean(values);
  if (std::abs(estimate.value - *row.value) <= 1e-9) metrics::put_interval(row, estimate);
}

}  // namespace

std::span<const Importer> importers() {
  return kImporters;
}

void refuse_import(const std::string& where, const std::string& why, const std::string& next) {
  throw Error(ErrorCode::corrupt, ErrorSubject::data, "the results cannot be imported",
              {.where = where, .why = why, .next = next.empty() ? "nothing was changed" : next});
}

void check_facts(const ImportOptions& options, std::span<const char* const> known) {
  for (const auto& [key, value] : options.facts) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string all;
    for (const char* name : known) all += (all.empty() ? "" : ", ") + std::string(name);
    throw Error(ErrorCode::usage, ErrorSubject::general,
                fmt::format("--map: this importer has no \"{}\"", printable(key.substr(0, 60))),
                {.next = "known: " + all});
  }
}

runs::RunIdentity imported_identity(runs::Store& store, const std::string& origin, const std::string& content_sha256,
                                    const std::string& config_json, const ImportOptions& options) {
  const std::string plan = sha256_hex("import\n" + origin + "\n" + content_sha256);
  if (const auto old = store.runs_of_plan(plan); !old.empty()) {
    throw Error(ErrorCode::usage, ErrorSubject::database,
                fmt::format("these results are in the database already, as run {}", old.front().run_id),
                {.where = store.path().string(), .next = fmt::format("hayfork show {}", old.front().run_id)});
  }
  runs::RunIdentity identity;
  identity.model.verified = false;
  identity.plan_sha256 = plan;
  identity.engine = origin;
  identity.origin = origin;
  identity.status = "imported";
  identity.deterministic = false;
  identity.cli_json = options.cli_json;
  identity.config_json = config_json;
  identity.name = options.name;
  identity.note = options.note;
  identity.tags = options.tags;
  return identity;
}

void store_imported(runs::Store& store, ImportedRun run, ImportReport& report) {
  std::vector<runs::PlannedTask> planned;
  for (const ImportedTask& task : run.tasks) planned.push_back(task.planned);
  const runs::RunHandle handle = store.begin_run(run.identity, planned);
  for (size_t t = 0; t < run.tasks.size(); ++t) {
    ImportedTask& task = run.tasks[t];
    const int64_t run_task = handle.run_tasks[t];
    for (runs::MetricRow& row : task.metrics) add_interval(row, task.samples);
    std::map<std::pair<std::string, int64_t>, int64_t> seen;
    for (runs::SampleRow& sample : task.samples) {
      sample.run_task = run_task;
      sample.occurrence = seen[{sample.doc_sha256, sample.repeat}]++;
      ++report.n_samples;
      store.add_sample(std::move(sample));
    }
    store.set_metrics(run_task, task.metrics);
    store.finish_task(run_task, "done");
    ++report.n_tasks;
  }
  for (runs::BenchRow& row : run.bench) row.run = handle.run;
  store.add_bench(run.bench);
  report.n_bench += static_cast<int64_t>(run.bench.size());
  for (runs::ArtefactRow& artefact : run.artefacts) {
    artefact.run = handle.run;
    store.add_artefact(artefact);
  }
  for (const Event& event : run.events) {
    store.add_event(handle.run, event);
    report.events.push_back(event);
  }
  store.finish_run(handle.run, {.status = "imported", .exit_code = {}, .wall_s = run.wall_s});
  report.run_ids.push_back(handle.run_id);
}

ImportReport import_hayfork(const OpenStore& open, const ImportOptions& options) {
  check_facts(options, {});
  for (const std::filesystem::path& file : options.files) runs::Store::open(file, runs::OpenMode::read_only);
  runs::Store& store = open();
  ImportReport report;
  const auto known = store.list_runs();
  std::set<std::string> before;
  for (const runs::RunListRow& run : known) before.insert(run.uuid);
  for (const std::filesystem::path& file : options.files) {
    const runs::MergeReport merged = store.merge(file);
    report.n_samples += merged.n_samples_added;
    for (const std::string& renamed : merged.renamed)
      report.events.push_back({Event::Level::info, "HAY-I003", "renamed " + renamed, ""});
  }
  for (const runs::RunListRow& run : store.list_runs()) {
    if (before.contains(run.uuid)) continue;
    report.run_ids.push_back(run.run_id);
    report.n_tasks += static_cast<int64_t>(store.run_tasks(run.run).size());
  }
  return report;
}

}  // namespace hayfork::cli
