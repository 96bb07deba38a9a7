#include "cli/execute.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"
#include "cli/calibration.h"
#include "cli/grid_view.h"
#include "cli/progress.h"
#include "cli/sample_rows.h"
#include "cli/signals.h"
#include "cli/times.h"
#include "tasks/run_task.h"

namespace hayfork::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string cli_json(const Console& console) {
  return nlohmann::json(console.command_line()).dump();
}

// Raises the flag when the time is up.
class Deadline {
 public:
  Deadline(double seconds, StopFlag& flag) {
    if (seconds <= 0) return;
    thread_ = std::jthread([this, seconds, &flag] {
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return over_; })) return;
      passed_ = true;
      flag.request_soft();
    });
  }
  ~Deadline() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    wake_.notify_all();
  }
  bool passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false, passed_ = false;
  std::jthread thread_;  // last: joins before the rest goes
};

// One attempt at what is left of a run.
class Execution {
 public:
  Execution(const Plan& plan, runs::Store& store, runs::RunHandle handle, const ExecuteOptions& options,
            Console& console)
      : plan_(plan),
        store_(store),
        handle_(std::move(handle)),
        options_(options),
        console_(console),
        progress_(console, options.events) {}

  RunOutcome run() {
    SignalGuard signals;
    Deadline deadline(options_.time_limit_s, signals.flag());
    begin_attempt();
    try {
      for (size_t i = 0; i < plan_.tasks.size() && !signals.flag().soft() && !given_up_; ++i)
        do_task(i, signals.flag());
      return finish(signals.exit_status(), deadline.passed());
    } catch (const Error& error) {
      give_up(error);
      throw;
    }
  }

 private:
  void begin_attempt() {
    const engine::ModelInfo& info = plan_.engine->info();
    runs::AttemptIdentity identity;
    identity.shard = options_.shard;
    identity.host = host_row();
    identity.device = info.device;
    identity.threads = options_.engine.threads > 0 ? options_.engine.threads : hardware_threads();
    identity.cli_json = cli_json(console_);
    attempt_ = store_.begin_attempt(handle_.run, identity);
    progress_.event("begin", fmt::format("\"run\":\"{}\",\"attempt\":{}", handle_.run_id, attempt_));
  }

  void do_task(size_t i, StopFlag& stop) {
    const tasks::Task& task = *plan_.tasks[i];
    const int64_t run_task = handle_.run_tasks.at(i);
    const auto start = Clock::now();
    const auto done = store_.stored_samples(run_task);
    const std::vector<int64_t> occurrence = occurrences(task);
    tasks::RunOptions how;
    how.shard = options_.shard;
    how.n_shards = options_.n_shards;
    how.done = &done;
    ProgressState state = initial_state(task, how);
    const int64_t n_todo = state.n_total - state.n_done;
    how.prepared = [&](int64_t n) { progress_.preparing(task.info().name, n, n_todo); };
    progress_.update(state);
    const SampleRowOptions rows{options_.keep_prompts, options_.log_samples, plan_.engine->tokenizer()};
    const tasks::RunTotals totals = tasks::run_task(
        task, *plan_.engine, how,
        [&](tasks::SampleResult result) {
          const auto index = static_cast<size_t>(result.index);
          note_result(result, state);
          store_.add_sample(sample_row(result, run_task, attempt_, occurrence.at(index), rows));
          progress_.update(state);
          if (static_cast<double>(n_failed_) > options_.max_failed * static_cast<double>(plan_.n_samples())) {
            given_up_ = true;
            stop.request_soft();
          }
        },
        stop);
    n_selected_ += totals.n_selected;
    const Folded folded = fold_task(store_, task, run_task);
    const bool whole = folded.n_stored == task.n_samples();
    store_.finish_task(run_task, !whole ? "partial" : folded.n_failed > 0 ? "partial" : "done", seconds_since(start));
  }

  ProgressState initial_state(const tasks::Task& task, const tasks::RunOptions& how) const {
    ProgressState state;
    state.task = task.info().name;
    state.n_failed = n_failed_;
    tasks::RunOptions all = how;
    all.done = nullptr;
    for (const int64_t i : tasks::selected_samples(task, all)) {
      const tasks::SampleKey key = task.key(i);
      const double work = work_of(key);
      ++state.n_total;
      state.work_total += work;
      if (!how.done->contains({key.doc_id, key.repeat})) continue;
      ++state.n_done;
      state.work_done += work;
    }
    return state;
  }

  static double work_of(const tasks::SampleKey& key) { return key.ctx_len ? static_cast<double>(*key.ctx_len) : 1; }

  void note_result(const tasks::SampleResult& result, ProgressState& state) {
    const bool failed = result.score.status == tasks::Status::failed;
    ++state.n_done;
    state.work_done += work_of(result.sample);
    state.rows += result.effort.rows_base + result.effort.rows_output;
    state.rows_reused += result.effort.rows_reused;
    if (failed) {
      state.n_failed = ++n_failed_;
      if (first_error_.empty()) first_error_ = result.score.error;
    }
    speed_.add(result);
  }

  RunOutcome finish(int signal_status, bool out_of_time) {
    const engine::EngineStats stats = plan_.engine->stats();
    int64_t n_stored = 0, n_planned = 0, n_failed = 0, n_truncated = 0;
    for (const runs::RunTaskView& view : store_.run_tasks(handle_.run)) {
      n_planned += view.row.n_planned;
      n_stored += view.row.n_done + view.row.n_failed;
      n_failed += view.row.n_failed;
      n_truncated += view.row.n_truncated;
    }
    const bool stopped = signal_status != 0 || out_of_time || given_up_;
    const bool whole = n_stored >= n_planned;
    fold_groups(store_, handle_.run, whole && n_failed == 0);
    RunOutcome outcome{handle_.run, handle_.run_id, signal_status};
    if (!stopped && n_selected_ == 0 && n_stored == 0) outcome.status = 5;
    if (outcome.status == 0 && (n_failed > 0 || out_of_time || given_up_ || (options_.strict && n_truncated > 0))) {
      outcome.status = 4;
    }
    const std::string status = stopped && !whole ? "interrupted" : n_failed > 0 || !whole ? "partial" : "done";
    const std::string reason = signal_status != 0 ? "interrupted"
                               : out_of_time      ? "time_limit"
                               : given_up_        ? "failed"
                                                  : "done";
    const double wall = seconds_since(start_);
    store_.finish_attempt(attempt_, {reason, wall, stats.busy, stats.peak_bytes, outcome.status});
    store_.finish_run(handle_.run, {.status = status, .exit_code = outcome.status});
    store_.flush();
    speed_.save(*plan_.engine);
    progress_.event(
        "end",
        fmt::format(
            "\"run\":\"{}\",\"status\":\"{}\",\"exit\":{},\"peak_bytes\":{},\"weight_bytes\":{},\"cache_bytes\":{}",
            handle_.run_id, status, outcome.status, stats.peak_bytes, stats.weight_bytes, stats.cache_bytes));
    console_.clear_status();
    say(status, reason, n_stored, n_planned, n_failed, n_truncated, wall, stats);
    return outcome;
  }

  void say(const std::string& status, const std::string& reason, int64_t n_stored, int64_t n_planned, int64_t n_failed,
           int64_t n_truncated, double wall, const engine::EngineStats& stats) {
    console_.note(fmt::format("{} {} in {}  busy {:.0f} %  peak {}  {} failed, {} truncated", handle_.run_id, status,
                              format_duration(wall), 100 * stats.busy,
                              format_bytes(static_cast<double>(stats.peak_bytes)), n_failed, n_truncated));
    if (given_up_)
      console_.warn("HAY-W011", fmt::format("given up: more than {:g} of the samples failed", options_.max_failed));
    if (!first_error_.empty())
      console_.warn("HAY-W012", fmt::format("{} samples failed; the first: {}", n_failed_, first_error_));
    if (reason == "time_limit") console_.note("the time limit was reached");
    if (n_stored < n_planned && options_.n_shards > 1 && reason == "done") {
      console_.note(fmt::format("shard {}/{} is done; hayfork db merge puts shards of several databases together",
                                options_.shard, options_.n_shards));
    } else if (n_stored < n_planned) {
      console_.note(fmt::format("{} of {} samples are stored  next: {}", n_stored, n_planned, resume_command()));
    } else {
      const std::string run = handle_.run_id + db_flag();
      console_.note("next: hayfork show " + run + (can_be_drawn() ? "   hayfork heatmap " + run : ""));
    }
  }

  bool can_be_drawn() const {
    return std::any_of(handle_.run_tasks.begin(), handle_.run_tasks.end(),
                       [&](int64_t task) { return cli::can_be_drawn(store_.grid(task)); });
  }

  std::string db_flag() const { return options_.db.db == "runs.db" ? "" : " --db " + options_.db.db; }
  std::string resume_command() const {
    return "hayfork resume " + handle_.run_id + db_flag() +
           (options_.n_shards > 1 ? fmt::format(" --shard {}/{}", options_.shard, options_.n_shards) : "");
  }

  // The run cannot go on: what is stored stays, and the database says so as far as it still can.
  void give_up(const Error& error) {
    console_.clear_status();
    try {
      const int status = exit_code(error);
      store_.add_event(handle_.run, {Event::Level::error, "HAY-E001", error.what(), ""});
      store_.finish_attempt(attempt_, {"failed", seconds_since(start_), {}, {}, status});
      store_.finish_run(handle_.run, {.status = "interrupted", .exit_code = status});
    } catch (const Error& second) {
      console_.note(fmt::format("the database could not be told: {}", second.what()));
    }
    console_.note("what is stored is kept  next: " + resume_command());
  }

  const Plan& plan_;
  runs::Store& store_;
  runs::RunHandle handle_;
  const ExecuteOptions& options_;
  Console& console_;
  Progress progress_;
  SpeedLog speed_;
  Clock::time_point start_ = Clock::now();
  int64_t attempt_ = 0, n_selected_ = 0, n_failed_ = 0;
  bool given_up_ = false;
  std::string first_error_;
};

runs::RunIdentity identity_of(const Plan& plan, const ExecuteOptions& options, const std::string& sha256,
                              const Console& console) {
  const engine::ModelInfo& info = plan.engine->info();
  runs::RunIdentity identity;
  identity.model = model_row(info);
  if (!options.series.empty()) identity.model.series = options.series;
  if (options.train_tokens) identity.model.train_tokens = options.train_tokens;
  identity.model.train_step = options.train_step;
  identity.layers = layer_rows(info);
  identity.host = host_row();
  identity.plan_sha256 = sha256;
  identity.numerics_id = info.numerics_id;
  identity.n_shards = options.n_shards;
  identity.engine = info.device;
  identity.dtype = info.dtype;
  identity.kv_dtype = info.kv_dtype;
  if (plan.config.seed) identity.seed = *plan.config.seed;
  identity.cli_json = cli_json(console);
  identity.config_json = to_json(plan.config);
  if (!options.name.empty()) identity.name = options.name;
  if (!options.note.empty()) identity.note = options.note;
  identity.tags = options.tags;
  return identity;
}

void announce(const Plan& plan, const std::string& run_id, const ExecuteOptions& options, Console& console) {
  const engine::ModelInfo& info = plan.engine->info();
  const auto head = [](const std::string& digest) { return digest.empty() ? std::string("?") : digest.substr(0, 8); };
  console.note(fmt::format("run {}  {}  {}  weights {}  tok {}  {}  db {}", run_id, info.name, info.arch_label,
                           head(info.weights_sha256), head(info.tokenizer_sha256),
                           device_line(info, options.engine.threads), options.db.db));
}

}  // namespace

EventLog::EventLog(Console& console) : print_(console.events()) {}

EventSink EventLog::sink() {
  return [this](const Event& event) {
    print_(event);
    if (store_ != nullptr) {
      store_->add_event(run_, event);
    } else {
      waiting_.push_back(event);
    }
  };
}

void EventLog::attach(runs::Store& store, int64_t run) {
  for (const Event& event : waiting_) store.add_event(run, event);
  waiting_.clear();
  store_ = &store;
  run_ = run;
}

RunOutcome begin_and_execute(const Plan& plan, runs::Store& store, const ExecuteOptions& options, EventLog& events,
                             Console& console) {
  require_samples(plan);
  const std::string sha256 = plan_sha256(plan);
  for (const runs::RunRow& old : store.runs_of_plan(sha256)) {
    if (options.n_shards > 1 && old.n_shards == options.n_shards) {
      return resume_and_execute(plan, old, store, options, events, console);
    }
    if (store.shown_status(old) == "interrupted") {
      console.note(
          fmt::format("run {} has the same plan and is not finished: hayfork resume {}", old.run_id, old.run_id));
    }
  }
  std::vector<runs::PlannedTask> planned;
  for (const auto& task : plan.tasks) planned.push_back(planned_task(*task, plan.config));
  for (runs::PlannedTask& group : planned_groups(plan)) planned.push_back(std::move(group));
  runs::RunHandle handle = store.begin_run(identity_of(plan, options, sha256, console), planned);
  events.attach(store, handle.run);
  announce(plan, handle.run_id, options, console);
  RunOutcome outcome = Execution(plan, store, std::move(handle), options, console).run();
  events.detach();
  return outcome;
}

RunOutcome resume_and_execute(const Plan& plan, const runs::RunRow& run, runs::Store& store,
                              const ExecuteOptions& options, EventLog& events, Console& console) {
  const std::string sha256 = plan_sha256(plan);
  if (sha256 != run.plan_sha256) {
    throw Error(ErrorCode::usage, ErrorSubject::general,
                fmt::format("run {} cannot go on: the plan came out another", run.run_id),
                {.where = plan.config.model,
                 .why = "the checkpoint, tokenizer, data or this program's numerics changed since the run began",
                 .next = "begin a new run"});
  }
  const runs::ResumeState state =
      store.resume_run(run.id, {plan.engine->info().numerics_id, options.allow_mixed_numerics, options.shard});
  if (state.finished) {
    console.note(fmt::format("run {} is done: nothing is left to do", run.run_id));
    return {run.id, run.run_id, 0};
  }
  events.attach(store, run.id);
  announce(plan, run.run_id, options, console);
  RunOutcome outcome = Execution(plan, store, state.handle, options, console).run();
  events.detach();
  return outcome;
}

}  // namespace hayfork::cli
