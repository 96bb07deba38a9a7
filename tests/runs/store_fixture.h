// Rows for tests of the store: a run of two tasks, and samples that are a function of their number alone.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "runs/provenance.h"
#include "runs/store.h"
#include "tests/support/paths.h"
#include "tests/support/raw_sql.h"

namespace hayfork::runs {

using test::raw_sql;

inline RunIdentity identity(const std::string& plan = "plan-1") {
  RunIdentity id;
  id.model.name = "orthros-1.3b";
  id.model.arch = "orthros";
  id.model.arch_label = "Orthros 128";
  id.model.series = "scaling";
  id.model.train_tokens = 100'000'000'000;
  id.model.weights_sha256 = "9c1e";
  id.model.config_sha256 = "44ab";
  id.layers = {{0, 0, "orthros", 128, "rope", 32, 8, 64}, {0, 1, "full", {}, "none", 32, 8, 64}};
  id.host = this_host();
  id.plan_sha256 = plan;
  id.numerics_id = "cpu/1";
  id.dtype = "f32";
  id.seed = 0;
  id.cli_json = R"(["run","--model","m"])";
  id.config_json = R"({"tasks":["niah"],"lengths":[4096]})";
  return id;
}

inline PlannedTask niah_task(int64_t n_planned) {
  PlannedTask planned;
  planned.task.name = "niah";
  planned.task.family = "niah";
  planned.task.version = "1";
  planned.task.kind = "generate";
  planned.task.primary_metric = "acc";
  planned.task.config_json = R"({"kind":"number"})";
  planned.task.protocol = "hayfork/niah/1";
  planned.metric_defs = {{0, "acc", true, "mean", {}}};
  planned.dataset = DatasetRow{0, "haystack", "1", "d00d", 1, "Apache-2.0"};
  planned.n_planned = n_planned;
  return planned;
}

inline PlannedTask choice_task(int64_t n_planned) {
  PlannedTask planned = niah_task(n_planned);
  planned.task.name = "arc_easy";
  planned.task.family = "commonsense";
  planned.task.kind = "choice";
  planned.task.protocol = "lm-eval/arc_easy/1.0";
  planned.num_fewshot = 5;
  planned.dataset.reset();
  return planned;
}

// Sample number i: 4 lengths × 5 depths, every 50th failed unless `heal`.
inline SampleRow sample(int64_t run_task, int64_t i, bool heal = true) {
  SampleRow row;
  row.run_task = run_task;
  row.doc_id = std::to_string(i);
  row.doc_sha256 = "doc" + std::to_string(i);
  row.ctx_len = 1024 << (i % 4);
  row.depth_pct = 25.0 * static_cast<double>(i / 4 % 5);
  row.depth_real = *row.depth_pct + 0.1;
  row.cluster = std::to_string(i % 7);
  row.prompt_sha256 = "p" + std::to_string(i);
  row.prompt_text = StoredText{"What is the special magic number for key " + std::to_string(i % 10) + "?"};
  row.prompt_tokens = *row.ctx_len - 32;
  row.finish = i % 11 == 0 ? "length" : "stop";
  row.truncated = i % 13 == 0;
  if (!heal && i % 50 == 7) {
    row.status = "failed";
    row.error = "NaN logits in layer 3";
    return row;
  }
  row.response = StoredText{"The answer is " + std::to_string(i * 7919 % 10000) + ". " + std::string(200, 'z')};
  row.response_ids = pack_ids({static_cast<int32_t>(i), -1, 65536});
  row.answer = std::to_string(i * 7919 % 10000);
  row.target = "7";
  row.score = i % 3 == 0 ? 0.0 : 1.0;
  row.ctx_nll = 1.0 / (1.0 + static_cast<double>(i));
  row.metrics = {{0, "acc", "none", row.score, {}}, {0, "f1", "strict", 0.1 * static_cast<double>(i % 10), 2.0}};
  row.choices = {{0, 0, -1.5 - 0.001 * static_cast<double>(i), 3, 10, 11, -2.0, {}, {}, "ids", 1, true},
                 {0, 1, -2.5, 4, 12, 12, {}, {}, {}, {}, 0, false}};
  return row;
}

inline Store open_store(const std::filesystem::path& path, StoreOptions options = {}, EventSink events = {}) {
  return Store::open(path, OpenMode::create_or_open, std::move(events), std::move(options));
}

// The error that body throws; a test failure when it throws none.
inline Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(ErrorCode::internal, ErrorSubject::general, "none");
}

class StoreTest : public ::testing::Test {
 protected:
  std::filesystem::path file() const { return folder_.path() / "runs.db"; }
  // A finished run of n niah samples.
  RunHandle filled(Store& store, int64_t n, const std::string& plan = "plan-1") {
    const RunHandle run = store.begin_run(identity(plan), std::vector{niah_task(n)});
    const int64_t attempt = store.begin_attempt(run.run, {});
    for (int64_t i = 0; i < n; ++i) {
      SampleRow row = sample(run.run_tasks[0], i);
      row.attempt = attempt;
      store.add_sample(std::move(row));
    }
    store.set_metrics(run.run_tasks[0],
                      std::vector<MetricRow>{{0, "", "acc", "none", 0.5, n, 0.01, 0.4, 0.6, "wilson"}});
    store.finish_task(run.run_tasks[0], "done", 1.5);
    store.finish_attempt(attempt, {"done", 2.0, {}, 1000, 0});
    store.finish_run(run.run, {"done", 0, {}, {}, {}});
    return run;
  }
  test::TempDir folder_;
};
}  // namespace hayfork::runs
