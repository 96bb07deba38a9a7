// The one place that turns what a task gives (SampleResult, Aggregate) into rows of the store, and back for folding.
#pragma once

#include "runs/store.h"
#include "tasks/run_task.h"
#include "tasks/tasks.h"

namespace hayfork::cli {

struct SampleRowOptions {
  bool keep_prompts = false;  // long prompts too, decoded from their ids
  bool texts = true;          // false: neither prompts nor answers (--no-log-samples)
  const engine::Tokenizer* tokenizer = nullptr;
};

runs::SampleRow sample_row(const tasks::SampleResult& result, int64_t run_task, int64_t attempt, int64_t occurrence,
                           const SampleRowOptions& options);

// Folds a task's stored samples into its aggregates, in the plan's order: the same bits however the run was stopped,
// sharded or merged. Gives the number of samples that are stored.
struct Folded {
  int64_t n_stored = 0, n_ok = 0, n_failed = 0, n_truncated = 0;
};
Folded fold_task(runs::Store& store, const tasks::Task& task, int64_t run_task);

// Makes the aggregates of a run's groups from those of their members. `whole`: every member has all its samples.
void fold_groups(runs::Store& store, int64_t run, bool whole);

}  // namespace hayfork::cli
