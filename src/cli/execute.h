// Computing a plan into the store: what run, resume and demo share. Samples are stored as they are answered; the end of
// a run, however it comes, leaves a database that resume can go on from.
#pragma once

#include <string>
#include <vector>

#include "cli/output.h"
#include "cli/plan.h"
#include "runs/store.h"

namespace hayfork::cli {

struct ExecuteOptions {
  EngineFlags engine;
  DbOptions db;
  int64_t shard = 0, n_shards = 1;
  double time_limit_s = 0;  // 0: none
  double max_failed = 1;    // share of the planned samples after which the run is given up
  bool strict = false;      // a cut prompt makes the exit status 4
  bool keep_prompts = false, log_samples = true, events = false;
  bool allow_mixed_numerics = false;
  std::string name, note, series;
  std::vector<std::string> tags;
  std::optional<int64_t> train_tokens, train_step;
};

// Flags of the above that both run and resume have.
void declare_execution(Flags& flags, ExecuteOptions& options);

struct RunOutcome {
  int64_t run = 0;
  std::string run_id;
  int status = 0;  // exit status
};

// Collects warnings until a run is there to hold them; prints each once.
class EventLog {
 public:
  explicit EventLog(Console& console);
  EventSink sink();
  void attach(runs::Store& store, int64_t run);  // writes what was collected, and from now on at once
  void detach() { store_ = nullptr; }

 private:
  EventSink print_;
  std::vector<Event> waiting_;
  runs::Store* store_ = nullptr;
  int64_t run_ = 0;
};

// A new run (or, for a shard, the run of this plan that other shards in this database began).
RunOutcome begin_and_execute(const Plan& plan, runs::Store& store, const ExecuteOptions& options, EventLog& events,
                             Console& console);
// The rest of an old one. Throws: usage when the plan came out another.
RunOutcome resume_and_execute(const Plan& plan, const runs::RunRow& run, runs::Store& store,
                              const ExecuteOptions& options, EventLog& events, Console& console);

// The settings that a run was made with. Throws: usage for an imported run, corrupt when they cannot be read.
RunConfig config_of(const runs::RunRow& run);

// Aggregates of merged runs, made again from their stored samples; a run whose model is not here is told of.
void refold_runs(runs::Store& store, const std::vector<int64_t>& runs, Console& console);

}  // namespace hayfork::cli
