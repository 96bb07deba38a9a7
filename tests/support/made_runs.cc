#include "tests/support/made_runs.h"

#include <cmath>

#include "base/digest.h"
#include "metrics/estimate_row.h"
#include "runs/provenance.h"

namespace hayfork::test {
namespace {

runs::PlannedTask planned(const MadeTask& task) {
  runs::PlannedTask out;
  out.task.name = task.name;
  out.task.family = task.family;
  out.task.version = task.version;
  out.task.kind = task.kind;
  out.task.primary_metric = task.metric;
  out.task.higher_is_better = task.higher_is_better;
  out.task.config_json = task.config_json;
  out.task.protocol = task.protocol;
  out.metric_defs = {{0, task.metric, task.higher_is_better, "mean", {}}};
  out.num_fewshot = task.num_fewshot;
  out.chat = task.chat;
  out.seeds_json = task.seeds_json;
  out.n_planned = static_cast<int64_t>(task.scores.size());
  return out;
}

runs::SampleRow sample(const MadeTask& task, size_t i) {
  runs::SampleRow row;
  const int64_t document = task.first_document + static_cast<int64_t>(i);
  row.doc_id = std::to_string(document);
  row.doc_sha256 = sha256_hex(task.protocol + std::to_string(document));
  row.prompt_sha256 = sha256_hex(task.prompt + std::to_string(document));
  if (i < task.lengths.size()) row.ctx_len = task.lengths[i];
  if (i < task.clusters.size()) row.cluster = task.clusters[i];
  row.answer = task.answer;
  row.target = task.target;
  row.response = runs::StoredText{task.answer};
  if (std::isnan(task.scores[i])) {
    row.status = "failed";
    row.error = "made to fail";
    return row;
  }
  row.score = task.scores[i];
  row.metrics = {{.metric = task.metric, .value = task.scores[i]}};
  return row;
}

std::vector<runs::MetricRow> aggregate(const MadeTask& task) {
  std::vector<double> values;
  for (const double score : task.scores) {
    if (!std::isnan(score)) values.push_back(score);
  }
  if (values.empty()) return {};
  runs::MetricRow row;
  row.metric = task.metric;
  metrics::put_estimate(row, metrics::estimate_mean(values));
  return {row};
}

}  // namespace

std::vector<double> ones(int64_t n_right, int64_t n) {
  std::vector<double> out(static_cast<size_t>(n), 0.0);
  for (int64_t i = 0; i < n_right; ++i) out[static_cast<size_t>(i)] = 1;
  return out;
}

std::string make_run(runs::Store& store, const MadeRun& run) {
  static int64_t made = 0;
  runs::RunIdentity identity;
  identity.model.name = run.model;
  identity.model.arch = "full";
  identity.model.weights_sha256 = sha256_hex(run.model);
  identity.model.tokenizer_sha256 = sha256_hex(run.tokenizer);
  identity.model.verified = run.origin == "hayfork";
  identity.host = runs::this_host();
  identity.plan_sha256 = sha256_hex("plan " + std::to_string(made++));
  identity.dtype = "f32";
  identity.status = run.status;
  identity.origin = run.origin;
  identity.tags = run.tags;
  if (run.config_json) identity.config_json = *run.config_json;
  std::vector<runs::PlannedTask> tasks;
  for (const MadeTask& task : run.tasks) tasks.push_back(planned(task));
  const runs::RunHandle handle = store.begin_run(identity, tasks);
  for (size_t t = 0; t < run.tasks.size(); ++t) {
    for (size_t i = 0; i < run.tasks[t].scores.size(); ++i) {
      runs::SampleRow row = sample(run.tasks[t], i);
      row.run_task = handle.run_tasks[t];
      store.add_sample(std::move(row));
    }
    store.set_metrics(handle.run_tasks[t], aggregate(run.tasks[t]));
    store.finish_task(handle.run_tasks[t], "done");
  }
  store.flush();
  store.finish_run(handle.run, {.status = run.status, .exit_code = 0});
  return handle.run_id;
}

runs::Store open_new(const std::filesystem::path& file) {
  return runs::Store::open(file, runs::OpenMode::create_or_open);
}

std::vector<std::string> make_runs(const std::filesystem::path& file, const std::vector<MadeRun>& made) {
  runs::Store store = open_new(file);
  std::vector<std::string> ids;
  for (const MadeRun& run : made) ids.push_back(make_run(store, run));
  store.close();
  return ids;
}

}  // namespace hayfork::test
