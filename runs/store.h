// The results database: one SQLite file. Rows in, rows out; nothing outside runs/ knows SQL.
// A Store may be used from several threads. Samples are queued and written by one thread, 64 or one second to a
// transaction, each with everything that belongs to it: a process killed at any time loses at most the batch in flight.
// An error of that thread (disk full, ...) is thrown by the next call that writes; what it could not write is dropped
// whole, and resume redoes it. All errors have subject database or disk (exit 6) unless said otherwise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/events.h"
#include "runs/rows.h"
#include "runs/views.h"

namespace hayfork::runs {

constexpr int32_t kApplicationId = 0x48594652;  // "HYFR"
int schema_version();                           // what this program writes: the number of migrations

enum class OpenMode { create_or_open, read_only };

struct StoreOptions {
  int busy_timeout_ms = 15000;
  int commit_samples = 64;
  double commit_seconds = 1.0;
  double beat_seconds = 10.0;  // how often the writer refreshes last_beat of the attempts that this Store began
  int64_t max_pages = 0;       // limit of the file's size in pages; 0: none
  // statfs magic number of the file system that holds the file; replaceable so that tests can pretend.
  std::function<int64_t(const std::filesystem::path&)> file_system = {};
};

// ---- What begin_run needs ------------------------------------------------------------------------------------------

struct RunIdentity {
  ModelRow model;
  std::vector<ModelLayerRow> layers;  // model_id is filled in
  std::optional<SparseRow> sparse;
  std::vector<SparseLayerRow> sparse_layers;
  HostRow host;
  std::string plan_sha256;
  OptText numerics_id;
  int64_t n_shards = 1;
  std::string engine = "cpu";
  OptText dtype, kv_dtype;
  bool deterministic = true;
  OptInt seed;
  std::string cli_json = "[]";     // the command line as given, secrets removed
  std::string config_json = "{}";  // everything needed to build the plan again
  OptText name, note;
  std::vector<std::string> tags;
  std::string origin = "hayfork";
  std::string status = "running";  // or planned, imported
};

struct PlannedTask {
  TaskRow task;
  std::vector<MetricDefRow> metric_defs;  // task_id is filled in
  std::optional<DatasetRow> dataset;
  int64_t num_fewshot = 0;
  int64_t fewshot_seed = -1;
  bool chat = false;
  OptText system_sha256, seeds_json;
  int64_t n_planned = 0;  // of the whole plan, whatever the shard
};

struct RunHandle {
  int64_t run = 0;
  std::string run_id, uuid;
  std::vector<int64_t> run_tasks;  // one per planned task, in the plan's order
};

struct AttemptIdentity {
  int64_t shard = 0;
  HostRow host;
  OptText device;
  OptInt threads;
  std::string cli_json = "[]";
};

struct AttemptEnd {
  std::string reason;  // done, interrupted, failed, time_limit
  OptReal wall_s, gpu_busy;
  OptInt peak_mem_bytes, exit_code;
};

struct RunEnd {
  std::string status;  // done, partial, interrupted, failed, scoring_failed
  OptInt exit_code;
  OptReal wall_s, gpu_busy;  // wall_s left empty: the sum over the attempts
  OptInt peak_mem_bytes;     // left empty: the largest of the attempts
};

struct ResumeOptions {
  OptText numerics_id;                // of this process
  bool allow_mixed_numerics = false;  // goes on under another one, and marks the run (event HAY-W005)
  int64_t shard = 0;
};

struct ResumeState {
  RunHandle handle;
  std::string config_json, plan_sha256;
  bool finished = false;  // status done: nothing is left to do, and nothing was changed
};

// ---- What queries are asked ----------------------------------------------------------------------------------------

struct RunFilter {
  OptText arch, status, tag, model, task, series, dtype, name;
  OptText since;      // ISO-8601; parse_since gives it
  int64_t limit = 0;  // newest so many; 0: all
};

// "arch=gdn", "status=done", "tag=nightly", "model=", "task=", "series=", "dtype=", "name=", "since=7d".
// Throws: usage, listing the keys.
RunFilter parse_run_filter(std::span<const std::string> items);
// "7d", "12h", "30m", "2w", or an ISO date; the result is ISO-8601. Throws: usage.
std::string parse_since(std::string_view text);

struct SampleQuery {
  bool texts = false;     // fill prompt_text and response
  bool details = true;    // fill metrics and choices
  OptText status;         // ok, failed, skipped
  bool only_bad = false;  // failed, skipped or truncated
  int64_t limit = 0;
};

// "r7f3k:niah" → the run and the task's name. Tasks are not looked up.
struct RunSelection {
  RunRow run;
  OptText task;
};

class Store {
 public:
  // A missing or empty file gets the schema; an older one is copied (VACUUM INTO <file>.v<N>.bak) and migrated; a newer
  // one, a file that is no Hayfork database, a locked, read-only or forbidden one is refused and left as it is.
  // Journal: WAL; where the file system cannot hold it (NFS and its like), a rollback journal and the event HAY-W003.
  // read_only: never writes, never migrates. `events` is called by open and by the destructor alone, and must not call
  // this store. Throws: not_found, corrupt, unsupported, resource.
  static Store open(const std::filesystem::path& path, OpenMode mode, EventSink events = {}, StoreOptions options = {});
  ~Store();  // flushes and folds the WAL into the file; an error then becomes an event. close() throws it instead.
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  void close();

  const std::filesystem::path& path() const;
  std::string journal_mode() const;  // "wal", "delete"

  // ---- Writing a run ----
  RunHandle begin_run(const RunIdentity& identity, std::span<const PlannedTask> tasks);
  // Checks that the run can go on in this process, and marks it running. Throws: usage (numerics differ and that is not
  // allowed), resource (another live process works on this shard).
  ResumeState resume_run(int64_t run, const ResumeOptions& options);
  // Ends attempts of this shard whose process is gone (end_reason "lost"). Returns the attempt's id.
  int64_t begin_attempt(int64_t run, const AttemptIdentity& identity);
  // What need not be done again: samples stored as ok or skipped. Failed ones are redone; add_sample then replaces the
  // failed row in the same transaction.
  std::set<std::pair<std::string, int64_t>> stored_samples(int64_t run_task);
  // Queues the row. Requires: run_task set, (doc_id, repeat) not stored as ok. NaN is stored as NULL.
  void add_sample(SampleRow sample);
  void flush();  // returns when everything queued is on disk
  void heartbeat(int64_t run, std::optional<int64_t> attempt);
  void finish_task(int64_t run_task, const std::string& status, OptReal wall_s = {});
  void set_metrics(int64_t run_task, std::span<const MetricRow> rows);  // replaces all aggregates of the task
  void finish_attempt(int64_t attempt, const AttemptEnd& end);
  void finish_run(int64_t run, const RunEnd& end);
  // New scores for stored answers (rescore): score, answer, metrics of one sample, in one transaction per call.
  void rescore(std::span<const SampleRow> samples);

  // ---- Facts beside it ----
  void add_event(std::optional<int64_t> run, const Event& event);
  void add_tag(int64_t run, const std::string& tag);
  void remove_tag(int64_t run, const std::string& tag);
  void set_name(int64_t run, const OptText& name);
  void set_note(int64_t run, const OptText& note);
  // Facts of a model learnt later; what is empty stays as it is.
  void describe_model(int64_t model, const OptText& series, OptInt train_tokens, OptInt train_step);
  void set_baseline(const std::string& name, std::optional<int64_t> run, OptText set_by);  // nullopt clears
  void add_timings(std::span<const TimingRow> rows);
  void add_bench(std::span<const BenchRow> rows);
  int64_t add_gate(const GateRow& gate, std::span<const ComparisonRow> comparisons);
  int64_t add_artefact(const ArtefactRow& artefact);
  int64_t add_sparse(const SparseRow& sparse, std::span<const SparseLayerRow> layers);
  int64_t begin_search(const SearchRow& search);
  void put_search_point(const SearchPointRow& point);  // replaces point n
  void put_key_tokens(const KeyTokensRow& row);
  std::optional<KeyTokensRow> key_tokens(const std::string& doc, const std::string& evaluator,
                                         const std::string& params);

  // ---- Finding ----
  // r7f3k, a unique prefix of it, a uuid, a run's name, @last, @tag:x (newest), @baseline:x.
  // Throws: not_found with what is near; usage when several runs fit.
  RunRow find_run(std::string_view reference);
  RunSelection select(std::string_view reference);                   // the same with ":task" at its end
  std::vector<RunRow> runs_of_plan(const std::string& plan_sha256);  // oldest first
  std::string shown_status(const RunRow& run);  // a running run whose process is gone is interrupted

  std::vector<RunListRow> list_runs(const RunFilter& filter = {});  // newest first
  std::vector<ModelListRow> list_models(const RunFilter& filter = {});
  std::vector<TaskListRow> list_tasks();  // tasks that have been run
  std::vector<DeviceListRow> list_devices();
  std::vector<BaselineListRow> list_baselines();
  RunView show_run(int64_t run);
  SampleView show_sample(int64_t sample);  // Throws: not_found
  std::vector<RunTaskView> run_tasks(int64_t run);
  // By doc_id and repeat. The callback must not call the store.
  void for_each_sample(int64_t run_task, const SampleQuery& query, const std::function<void(const SampleRow&)>& body);
  // By length, then depth. `metric` empty: the sample's score.
  std::vector<GridCell> grid(int64_t run_task, const std::string& metric = {});
  std::vector<LengthRow> lengths(int64_t run_task, bool by_subtask = false);
  std::vector<PairRow> pairs(int64_t base_run, int64_t cand_run, const OptText& task = {});
  // Every sample of a task by document, occurrence and repeat. `metric` empty: the sample's score.
  std::vector<ScoreRow> scores(int64_t run_task, const std::string& metric = {});
  std::vector<BenchRow> bench(int64_t run);
  std::vector<SearchPointRow> search_points(int64_t search);

  // ---- Maintenance ----
  // What must be equal between two runs of one plan, whatever killed, sharded or batched them.
  RunDigest digest(int64_t run, bool samples = false);
  CheckReport check();
  void vacuum();  // drops texts nothing refers to, then compacts the file
  // Adds another file's runs. Runs of one plan whose shards lie in both files become one; samples in both must agree,
  // or nothing is changed. Throws: usage (they disagree), naming the first.
  MergeReport merge(const std::filesystem::path& other);
  // Deletes the samples of runs that have no tag, are no baseline and are not among the newest `keep`; metrics stay.
  PruneReport prune(int64_t keep);

 private:
  class Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hayfork::runs
