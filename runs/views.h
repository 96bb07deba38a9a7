// What the store's queries give back: rows joined for people (list, show), for the reports (grid, lengths, pairs) and
// for the maintenance verbs. Field tables for tables, CSV and JSON are in runs/fields.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runs/rows.h"

namespace hayfork::runs {

// ---- list ----------------------------------------------------------------------------------------------------------

struct RunListRow {
  std::string run_id;
  OptText name;
  std::string when;  // created_at
  std::string model;
  OptText arch;
  OptInt train_tokens;
  OptText sparse, dtype;
  std::string tasks;   // names, comma separated
  std::string status;  // a dead `running` is shown as interrupted
  std::string tags;    // comma separated
  int64_t n_planned = 0, n_done = 0, n_failed = 0, n_truncated = 0;
  OptReal wall_s;
  OptText note;
  int64_t run = 0;
  std::string uuid;
};

struct ModelListRow {
  std::string name;
  OptText series, arch, arch_label;
  OptInt n_params, n_params_noemb, train_tokens, train_step, max_len;
  bool verified = true;
  int64_t n_runs = 0;
  OptText last_run;  // run_id of the newest
  OptText path, weights_sha256;
  int64_t model_id = 0;
};

struct TaskListRow {
  std::string name, family, version, kind, protocol, primary_metric;
  bool higher_is_better = true;
  OptText dataset;
  int64_t n_runs = 0;
  std::string config_sha256;
};

struct DeviceListRow {
  OptText hostname, device, cpu;
  std::string gpus_json;
  OptText driver, cuda, os;
  int64_t n_runs = 0;
  OptText last_used;
};

struct BaselineListRow {
  std::string name;
  OptText run_id;  // NULL: cleared, or the run was deleted
  OptText model, status;
  std::string set_at;
  OptText set_by;
};

// ---- show ----------------------------------------------------------------------------------------------------------

struct RunTaskView {
  RunTaskRow row;
  TaskRow task;
  std::vector<MetricDefRow> metric_defs;
  std::vector<MetricRow> metrics;  // by slice, metric, filter
};

struct RunView {
  RunRow run;
  std::string status;  // run.status, or interrupted when its process is gone
  ModelRow model;
  std::vector<ModelLayerRow> layers;
  std::optional<SparseRow> sparse;
  std::vector<SparseLayerRow> sparse_layers;
  std::optional<HostRow> host;
  std::vector<std::string> tags;
  std::vector<RunTaskView> tasks;  // in the plan's order
  std::vector<AttemptRow> attempts;
  std::vector<EventRow> events;
};

struct SampleView {
  SampleRow sample;  // with texts, metrics, choices, artefacts
  std::string run_id, task;
};

// ---- reports -------------------------------------------------------------------------------------------------------

// One cell of length × depth. A failed sample is counted, never averaged.
struct GridCell {
  OptInt ctx_len;
  OptReal depth_pct;  // nominal
  int64_t n = 0;      // samples averaged: status ok, with a value
  OptReal mean;       // of the score, or of the metric asked for; NULL when n is 0
  int64_t n_failed = 0, n_truncated = 0;
  OptReal depth_real, prompt_tokens;  // means of what was reached
};

struct LengthRow {
  std::string run_id, task;
  OptText subtask;
  OptInt ctx_len;
  int64_t n = 0;
  OptReal mean, prompt_tokens;
  int64_t n_failed = 0, n_cut = 0, n_truncated = 0;
};

// Two runs' answers to one document. gain > 0 is better, whatever the metric's direction.
struct PairRow {
  std::string task, doc_id, doc_sha256;
  int64_t repeat = 0;
  OptText subtask;
  OptInt ctx_len;
  OptReal depth_pct;
  OptText cluster;
  OptReal base_score, cand_score, gain;
  OptText base_answer, cand_answer, target;
  bool same_prompt = false;
  int64_t base_sample = 0, cand_sample = 0;
};

// A sample as comparisons need it: who it is, and one value.
struct ScoreRow {
  int64_t sample = 0;
  std::string doc_sha256;
  int64_t occurrence = 0, repeat = 0;
  std::string prompt_sha256;
  OptText cluster, subtask;
  OptInt ctx_len;
  OptReal depth_pct;
  bool ok = false, truncated = false;
  OptReal value;  // of the score, or of the metric asked for; only of samples that are ok
};

// ---- maintenance ---------------------------------------------------------------------------------------------------

struct SampleDigest {
  std::string task, doc_id;
  int64_t repeat = 0;
  std::string sha256;
};

struct RunDigest {
  std::string sha256;
  int64_t n_samples = 0;
  std::vector<SampleDigest> samples;  // when asked for
};

struct CheckReport {
  std::vector<std::string> faults;  // empty: sound
  int64_t n_runs = 0, n_samples = 0, n_texts = 0, n_orphan_texts = 0, n_bytes = 0;
};

struct MergeReport {
  int64_t n_runs_added = 0, n_runs_joined = 0, n_samples_added = 0, n_samples_same = 0;
  std::vector<std::string> renamed;  // "r7f3k -> r0abc"
  std::vector<int64_t> refold;       // runs whose aggregates were dropped: their sample set grew
};

struct PruneReport {
  int64_t n_runs = 0, n_samples = 0, n_texts = 0;
};

}  // namespace hayfork::runs
