// Rows of the results database as plain structs: one struct a table, one member a column. Times are UTC ISO-8601 text,
// hashes lower-case hex, an empty optional is NULL (unknown, never 0). `id` members are filled by the store.
// The field tables in runs/fields.h drive INSERT, SELECT, CSV and JSON; a new column is one line there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hayfork::runs {

using OptText = std::optional<std::string>;
using OptInt = std::optional<int64_t>;
using OptReal = std::optional<double>;

struct Blob {
  std::string bytes;
  bool operator==(const Blob&) const = default;
};
using OptBlob = std::optional<Blob>;

// A text kept once in `texts` (zstd, content-addressed). The row holds the text itself, the table its SHA-256.
struct StoredText {
  std::string text;
  bool operator==(const StoredText&) const = default;
};
using OptStoredText = std::optional<StoredText>;

// ---- What was measured -------------------------------------------------------------------------------------------

struct ModelRow {
  int64_t id = 0;
  std::string name;
  OptText series, arch, arch_label, layers_json;  // arch: full, swa, gdn, mamba2, orthros, hybrid
  OptInt n_params, n_params_noemb, train_tokens, train_step, parent_id;
  OptText weights_sha256, weights_provenance, config_sha256, tokenizer_sha256, template_sha256;
  OptInt max_len;
  OptText path;
  bool verified = true;         // false: imported, or weights unknown
  std::string identity_sha256;  // left empty: model_identity() of the row
};

// SHA-256 over canonical JSON of weights, config, tokenizer and template digests (of the name too when weights are
// unknown): what makes two rows the same model.
std::string model_identity(const ModelRow& model);

struct ModelLayerRow {
  int64_t model_id = 0;
  int64_t layer = 0;
  std::string kind;
  OptInt window;
  OptText pos;
  OptInt n_heads, n_kv, head_dim;
};

struct SparseRow {
  int64_t id = 0;
  std::string sha256;  // left empty: digest of config_json
  std::string label, config_json;
};

struct SparseLayerRow {
  int64_t sparse_id = 0;
  int64_t layer = 0;
  std::string mode;
  OptInt window, sink, budget, refresh;
};

struct DatasetRow {
  int64_t id = 0;
  std::string name, version, sha256;
  OptInt n_docs;
  OptText license;
};

struct TaskRow {
  int64_t id = 0;
  std::string name, family, version;
  std::string kind;  // choice, generate, rolling, longppl, group
  std::string primary_metric;
  bool higher_is_better = true;
  std::string config_json;
  std::string config_sha256;  // left empty: digest of config_json
  std::string protocol;       // "ruler/p1/niah_single_1"
  OptInt dataset_id;
};

struct MetricDefRow {
  int64_t task_id = 0;
  std::string metric;
  bool higher_is_better = true;
  std::string agg;
  OptText unit;
};

struct HostRow {
  int64_t id = 0;
  OptText hostname, cpu;
  std::string gpus_json = "[]";
  OptText driver, cuda, os;
};

// ---- Runs ----------------------------------------------------------------------------------------------------------

struct RunRow {
  int64_t id = 0;
  std::string uuid, run_id;  // run_id: the short public one, "r7f3k"
  OptText name;
  std::string status;  // planned, running, interrupted, scoring_failed, partial, done, failed, imported
  int64_t model_id = 0;
  OptInt sparse_id, host_id;
  std::string plan_sha256;
  OptText numerics_id;
  int64_t n_shards = 1;
  std::string engine;
  OptText dtype, kv_dtype;
  bool deterministic = true;
  OptInt seed;
  std::string hayfork_version;
  OptText git_commit;
  OptInt git_dirty;
  std::string cli_json, config_json, config_sha256;
  std::string created_at;
  OptText started_at, finished_at;
  OptInt pid;
  OptText boot_id, last_beat;
  OptReal wall_s, gpu_busy;
  OptInt peak_mem_bytes, exit_code;
  std::string origin = "hayfork";
  OptText note;
};

struct AttemptRow {
  int64_t id = 0;
  int64_t run = 0;
  int64_t shard = 0;
  int64_t attempt = 0;
  OptInt host_id;
  OptText device;
  OptInt threads;
  std::string hayfork_version;
  OptText git_commit;
  std::string cli_json;
  OptInt pid;
  OptText boot_id;
  std::string started_at;
  OptText last_beat, ended_at, end_reason;
  int64_t n_written = 0;
  OptReal wall_s, gpu_busy;
  OptInt peak_mem_bytes, exit_code;
};

struct RunTaskRow {
  int64_t id = 0;
  int64_t run = 0;
  int64_t task_id = 0;
  std::string status;  // planned, running, done, partial, failed
  int64_t num_fewshot = 0;
  int64_t fewshot_seed = -1;
  bool chat = false;
  OptText system_sha256, seeds_json;
  int64_t n_planned = 0;  // of the whole plan, whatever the shard
  int64_t n_done = 0;     // rows with status ok
  int64_t n_failed = 0, n_truncated = 0, n_cut = 0;
  OptReal wall_s;
};

struct BaselineRow {
  int64_t id = 0;
  std::string name;
  OptInt run;
  OptText run_id_text;
  std::string set_at;
  OptText set_by;
};

// ---- Samples -------------------------------------------------------------------------------------------------------

struct SampleMetricRow {
  int64_t sample = 0;
  std::string metric;
  std::string filter = "none";
  OptReal value, weight;
};

struct SampleChoiceRow {
  int64_t sample = 0;
  int64_t choice = 0;
  OptReal logprob;
  OptInt n_tokens, n_chars, n_bytes;
  OptReal uncond_logprob, ctx_nll;
  OptInt ctx_tokens;
  OptText ids_sha256;
  OptInt greedy;
  bool gold = false;
};

struct ArtefactRow {
  int64_t id = 0;
  OptInt run, sample;
  std::string kind, name;
  OptText mime;
  std::string sha256;   // left empty with a body: digest of the body
  int64_t n_bytes = 0;  // left 0 with a body: its size
  OptText path;
  OptBlob body;
};

struct SampleRow {
  int64_t id = 0;
  int64_t run_task = 0;
  std::string doc_id, doc_sha256;
  int64_t repeat = 0;
  OptText subtask;
  OptInt ctx_len;
  OptReal depth_pct, depth_real;
  OptText cluster;
  OptInt seed;
  int64_t occurrence = 0;
  OptInt attempt;
  std::string prompt_sha256;
  OptText ids_sha256;
  OptStoredText prompt_text;
  OptText recipe_json;
  OptInt prompt_tokens, kept_tokens;
  OptInt rows_base, rows_output, rows_reused;
  OptInt needle_tok, needle_tokens, needle_distance;
  OptReal ctx_nll;
  OptInt ctx_tokens, gen_tokens, batch_size;
  std::string status = "ok";  // ok, failed, skipped
  OptText finish, stop;
  OptInt max_new_tokens;
  OptBlob response_ids;  // int32, little-endian: pack_ids
  bool truncated = false;
  OptStoredText response;  // column response_sha256
  OptText answer, target;
  OptReal score;
  OptText error;
  OptInt cached_from;
  OptReal t_prefill_ms, t_decode_ms;

  std::vector<SampleMetricRow> metrics;  // with the row in one transaction; so are choices and artefacts
  std::vector<SampleChoiceRow> choices;
  std::vector<ArtefactRow> artefacts;
};

Blob pack_ids(const std::vector<int32_t>& ids);

// ---- Results -------------------------------------------------------------------------------------------------------

struct MetricRow {
  int64_t run_task = 0;
  std::string slice;  // "key=value;key=value", keys sorted; "" = all
  std::string metric;
  std::string filter = "none";
  OptReal value;
  int64_t n = 0;
  OptReal stderr_value;  // column stderr (a macro of <cstdio>)
  OptReal ci_low, ci_high;
  OptText ci_method;
};

struct TimingRow {
  int64_t id = 0;
  int64_t run = 0;
  OptInt run_task;
  std::string phase;
  OptInt ctx_len, batch, n_tokens;
  double wall_ms = 0;
  OptText kernel;
};

struct BenchRow {
  int64_t id = 0;
  int64_t run = 0;
  OptInt model_id, sparse_id;
  OptText device;
  OptReal joules, floor_ms;
  std::string test;
  int64_t n_prompt = 0, n_gen = 0, depth = 0, batch = 1, reps = 0;
  double tps_mean = 0;
  OptReal tps_sd, ttft_ms;
  OptInt peak_mem_bytes;
  std::string reps_json = "[]";
};

struct GateRow {
  int64_t id = 0;
  int64_t cand = 0, base = 0;
  OptText baseline_name;
  std::string policy_sha256, policy_text;
  std::string verdict;  // pass, fail, inconclusive
  int64_t exit_code = 0;
  std::string made_at;  // left empty: now
};

struct ComparisonRow {
  int64_t id = 0;
  OptInt gate;
  int64_t base = 0, cand = 0;
  std::string task, slice, metric, test;
  int64_t n_pairs = 0;
  OptInt worse, better;
  OptReal delta, ci_low, ci_high, p, p_adj, mde;
  std::string verdict;
  OptText policy_sha256;
  std::string made_at;  // left empty: now
};

struct SearchRow {
  int64_t id = 0;
  OptInt run;
  int64_t model_id = 0;
  std::string algo;
  int64_t seed = 0;
  std::string space_json, started_at;  // started_at left empty: now
};

struct SearchPointRow {
  int64_t search_id = 0;
  int64_t n = 0;
  OptInt generation;
  int64_t sparse_id = 0;
  OptReal quality, quality_lo, cost_ms;
  bool on_front = false;
  OptReal held_out;
};

struct KeyTokensRow {
  std::string doc_sha256, evaluator_sha256, params_sha256, spans_json;
  int64_t n_key = 0;
};

struct EventRow {
  int64_t id = 0;
  OptInt run;
  std::string at, level, code;  // level: info, warn, error
  OptText task;
  std::string message;
};

}  // namespace hayfork::runs
