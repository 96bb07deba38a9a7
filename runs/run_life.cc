// A run's life: begin, attempts, resume, end.
#include <random>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/units.h"
#include "base/version.h"
#include "runs/provenance.h"
#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

constexpr int64_t kStaleBeatSeconds =
    120;  // a process elsewhere that was silent this long counts as gone (beats: 10 s)

std::string random_text(std::string_view alphabet, size_t n) {
  thread_local std::random_device entropy;  // the operating system's
  std::string out;
  for (size_t i = 0; i < n; ++i) out += alphabet[entropy() % alphabet.size()];
  return out;
}

std::string new_uuid() {
  std::string u = random_text("0123456789abcdef", 32);
  u[12] = '4';  // RFC 9562: version 4, variant 10
  u[16] = "89ab"[static_cast<size_t>(u[16]) & 3];
  return u.substr(0, 8) + "-" + u.substr(8, 4) + "-" + u.substr(12, 4) + "-" + u.substr(16, 4) + "-" + u.substr(20);
}

bool process_lives(Connection& db, OptInt pid, const OptText& boot_id, const OptText& last_beat) {
  if (!pid || !boot_id) return false;
  const Liveness state = liveness(*pid, *boot_id);
  if (state != Liveness::elsewhere) return state == Liveness::alive;
  if (!last_beat) return false;
  const auto age = db.value<OptInt>("SELECT unixepoch('now') - unixepoch(?)", *last_beat);
  return age && *age < kStaleBeatSeconds;
}

std::vector<AttemptRow> open_attempts(Connection& db, int64_t run) {
  return select_rows<AttemptRow>(db, "WHERE run = ? AND ended_at IS NULL ORDER BY id", run);
}

void mark_started(Connection& db, int64_t run) {
  const ProcessIdentity process = this_process();
  const std::string now = utc_now();
  db.run(
      "UPDATE runs SET status = 'running', pid = ?, boot_id = ?, last_beat = ?, started_at = coalesce(started_at, ?), "
      "finished_at = NULL, exit_code = NULL WHERE id = ?",
      process.pid, process.boot_id, now, now, run);
}

RunRow run_row(Connection& db, const RunIdentity& identity) {
  RunRow run;
  run.uuid = new_uuid();
  run.run_id = new_run_id(db);
  run.name = identity.name;
  run.status = identity.status;
  run.model_id = put_model(db, identity.model, identity.layers);
  if (identity.sparse) run.sparse_id = put_sparse(db, *identity.sparse, identity.sparse_layers);
  run.host_id = put_host(db, identity.host);
  run.plan_sha256 = identity.plan_sha256;
  run.numerics_id = identity.numerics_id;
  run.n_shards = identity.n_shards;
  run.engine = identity.engine;
  run.dtype = identity.dtype;
  run.kv_dtype = identity.kv_dtype;
  run.deterministic = identity.deterministic;
  run.seed = identity.seed;
  run.hayfork_version = version();
  run.git_commit = std::string(commit());
  run.git_dirty = commit_dirty() ? 1 : 0;
  run.cli_json = identity.cli_json;
  run.config_json = identity.config_json;
  run.config_sha256 =
      sha256_hex(canonical_json(parse_json(identity.config_json, "the run's configuration", ErrorSubject::database)));
  run.created_at = utc_now();
  run.origin = identity.origin;
  run.note = identity.note;
  return run;
}

int64_t add_run_task(Connection& db, int64_t run, const PlannedTask& planned, const std::string& run_status) {
  TaskRow task = planned.task;
  if (planned.dataset) task.dataset_id = put_dataset(db, *planned.dataset);
  RunTaskRow row;
  row.run = run;
  row.task_id = put_task(db, task, planned.metric_defs);
  row.status = run_status == "imported" ? "done" : "planned";
  row.num_fewshot = planned.num_fewshot;
  row.fewshot_seed = planned.fewshot_seed;
  row.chat = planned.chat;
  row.system_sha256 = planned.system_sha256;
  row.seeds_json = planned.seeds_json;
  row.n_planned = planned.n_planned;
  return insert_row(db, row);
}

}  // namespace

std::string new_run_id(Connection& db) {
  for (int n = 0;; ++n) {  // no i, l, o, u: read over the telephone. 2^20 names of four; longer ones when crowded
    const std::string id = "r" + random_text("0123456789abcdefghjkmnpqrstvwxyz", n < 16 ? 4 : 6);
    if (db.value("SELECT count(*) FROM runs WHERE run_id = ?", id) == 0) return id;
  }
}

RunRow get_run(Connection& db, int64_t run) {
  const auto rows = select_rows<RunRow>(db, "WHERE id = ?", run);
  if (!rows.empty()) return rows.front();
  throw Error(ErrorCode::not_found, ErrorSubject::database, fmt::format("there is no run number {}", run),
              {.where = db.name(), .next = "hayfork list runs"});
}

std::string shown_status(Connection& db, const RunRow& run) {
  if (run.status != "running") return run.status;
  const auto attempts = open_attempts(db, run.id);
  for (const AttemptRow& a : attempts) {
    if (process_lives(db, a.pid, a.boot_id, a.last_beat)) return run.status;
  }
  if (attempts.empty() && process_lives(db, run.pid, run.boot_id, run.last_beat)) return run.status;
  return "interrupted";
}

RunHandle handle_of(Connection& db, const RunRow& run) {
  RunHandle handle{run.id, run.run_id, run.uuid, {}};
  Statement s = db.statement("SELECT id FROM run_tasks WHERE run = ? ORDER BY id");
  s.bind_all(run.id);
  while (s.step()) handle.run_tasks.push_back(s.get<int64_t>());
  return handle;
}

void insert_event(Connection& db, std::optional<int64_t> run, const Event& event) {
  static constexpr const char* kLevels[] = {"info", "warn", "error"};
  EventRow row;
  row.run = run;
  row.at = utc_now();
  row.level = kLevels[static_cast<int>(event.level)];
  row.code = event.code;
  if (!event.task.empty()) row.task = event.task;
  row.message = event.message;
  insert_row(db, row);
}

RunHandle Store::begin_run(const RunIdentity& identity, std::span<const PlannedTask> tasks) {
  auto db = impl_->writing();
  Transaction transaction(db.db);
  const RunRow row = run_row(db.db, identity);
  const int64_t run = insert_row(db.db, row);
  RunHandle handle{run, row.run_id, row.uuid, {}};
  for (const PlannedTask& task : tasks) handle.run_tasks.push_back(add_run_task(db.db, run, task, identity.status));
  for (const std::string& tag : identity.tags) db->run("INSERT OR IGNORE INTO run_tags VALUES(?,?)", run, tag);
  if (identity.status == "running") mark_started(db.db, run);
  transaction.commit();
  return handle;
}

int64_t Store::begin_attempt(int64_t run, const AttemptIdentity& identity) {
  int64_t id = 0;
  {
    auto db = impl_->writing();
    Transaction transaction(db.db);
    const ProcessIdentity process = this_process();
    AttemptRow row;
    row.run = run;
    row.shard = identity.shard;
    row.attempt = db->value("SELECT coalesce(max(attempt), 0) + 1 FROM run_attempts WHERE run = ? AND shard = ?", run,
                            identity.shard);
    row.host_id = put_host(db.db, identity.host);
    row.device = identity.device;
    row.threads = identity.threads;
    row.hayfork_version = version();
    row.git_commit = std::string(commit());
    row.cli_json = identity.cli_json;
    row.pid = process.pid;
    row.boot_id = process.boot_id;
    row.started_at = utc_now();
    row.last_beat = row.started_at;
    for (const AttemptRow& old : open_attempts(db.db, run)) {
      if (old.shard != identity.shard) continue;
      db->run("UPDATE run_attempts SET ended_at = coalesce(last_beat, started_at), end_reason = 'lost' WHERE id = ?",
              old.id);
    }
    id = insert_row(db.db, row);
    mark_started(db.db, run);
    transaction.commit();
  }
  impl_->writer->watch(run, id);
  return id;
}

ResumeState Store::resume_run(int64_t run, const ResumeOptions& options) {
  auto db = impl_->writing();
  Transaction transaction(db.db);
  const RunRow row = get_run(db.db, run);
  ResumeState state{handle_of(db.db, row), row.config_json, row.plan_sha256, row.status == "done"};
  if (state.finished) return state;
  if (row.status == "imported") {
    throw Error(ErrorCode::usage, ErrorSubject::database,
                fmt::format("run {} was imported: it cannot be resumed", row.run_id), {.where = db->name()});
  }
  for (const AttemptRow& a : open_attempts(db.db, run)) {
    if (a.shard != options.shard || !process_lives(db.db, a.pid, a.boot_id, a.last_beat)) continue;
    throw Error(
        ErrorCode::resource, ErrorSubject::database, fmt::format("run {} is still running", row.run_id),
        {.where = db->name(),
         .why = fmt::format("process {} works on shard {} (last sign {})", *a.pid, a.shard, a.last_beat.value_or("?")),
         .next = "wait for it, or stop it and resume again"});
  }
  if (options.numerics_id && row.numerics_id && *options.numerics_id != *row.numerics_id) {
    const std::string why = fmt::format("begun under {}, this process has {}", *row.numerics_id, *options.numerics_id);
    if (!options.allow_mixed_numerics) {
      throw Error(ErrorCode::usage, ErrorSubject::database,
                  fmt::format("run {} cannot go on here: its numbers would be mixed", row.run_id),
                  {.where = db->name(),
                   .why = why,
                   .next = "resume where it began, begin a new run, or --allow-mixed-numerics (which marks the run)"});
    }
    insert_event(db.db, run, {Event::Level::warn, "HAY-W005", "mixed numerics: " + why, ""});
  }
  mark_started(db.db, run);
  transaction.commit();
  return state;
}

std::set<std::pair<std::string, int64_t>> Store::stored_samples(int64_t run_task) {
  auto db = impl_->reading();
  std::set<std::pair<std::string, int64_t>> out;
  Statement s = db->statement("SELECT doc_id, repeat FROM samples WHERE run_task = ? AND status <> 'failed'");
  s.bind_all(run_task);
  while (s.step()) out.emplace(s.get<std::string>(0), s.get<int64_t>(1));
  return out;
}

void Store::heartbeat(int64_t run, std::optional<int64_t> attempt) {
  auto db = impl_->writing();
  Transaction transaction(db.db);
  beat_rows(db.db, run, attempt);
  transaction.commit();
}

void Store::finish_task(int64_t run_task, const std::string& status, OptReal wall_s) {
  impl_->writing()->run(
      "UPDATE run_tasks SET status = ?1, wall_s = CASE WHEN ?2 IS NULL THEN wall_s ELSE coalesce(wall_s, 0) + ?2 END "
      "WHERE id = ?3",
      status, wall_s, run_task);
}

void Store::finish_attempt(int64_t attempt, const AttemptEnd& end) {
  impl_->writer->unwatch(attempt);
  const std::string now = utc_now();
  impl_->writing()->run(
      "UPDATE run_attempts SET ended_at = ?, last_beat = ?, end_reason = ?, wall_s = ?, gpu_busy = ?, peak_mem_bytes = "
      "?, "
      "exit_code = ? WHERE id = ?",
      now, now, end.reason, end.wall_s, end.gpu_busy, end.peak_mem_bytes, end.exit_code, attempt);
}

void Store::finish_run(int64_t run, const RunEnd& end) {
  const std::string now = utc_now();
  impl_->writing()->run(
      "UPDATE runs SET status = ?2, finished_at = ?3, last_beat = ?3, exit_code = ?4, gpu_busy = ?6, "
      "wall_s = coalesce(?5, (SELECT sum(wall_s) FROM run_attempts WHERE run = ?1)), "
      "peak_mem_bytes = coalesce(?7, (SELECT max(peak_mem_bytes) FROM run_attempts WHERE run = ?1)) WHERE id = ?1",
      run, end.status, now, end.exit_code, end.wall_s, end.gpu_busy, end.peak_mem_bytes);
}

}  // namespace hayfork::runs
