// Drives an Lm with a Task: makes samples (in parallel), hands their requests over in blocks that fit in memory, scores
// every sample as soon as its last answer is there, and calls back. Failed requests become failed samples.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/stop.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

struct SampleResult {
  int64_t index = 0;  // in the task's plan
  Sample sample;      // its requests are spent (empty): the Lm had them
  SampleScore score;
  std::vector<engine::Answer> answers;  // in the order of sample.requests; the same number
  engine::Effort effort;                // summed over the answers; batch_size is the largest
};

struct RunOptions {
  int64_t shard = 0, n_shards = 1;
  // (doc_id, repeat) of samples that need not be run again.
  const std::set<std::pair<std::string, int64_t>>* done = nullptr;
  std::vector<int64_t> only = {};                         // plan indices; empty: all
  int64_t max_block_tokens = int64_t{1} << 26;            // request ids held at once, about (256 MiB)
  std::function<void(int64_t n_prepared)> prepared = {};  // progress of making samples
};

using ResultSink = std::function<void(SampleResult)>;

struct RunTotals {
  int64_t n_selected = 0;  // samples this call had to do
  int64_t n_ok = 0, n_failed = 0, n_skipped = 0, n_truncated = 0;
  int64_t n_cut = 0;     // answers that ended at the token budget
  bool stopped = false;  // `stop` was raised before all were done
};

// The plan indices this call will do, in the plan's order.
std::vector<int64_t> selected_samples(const Task& task, const RunOptions& options);
// Results come in any order, each exactly once, from the calling thread. Throws: what the Lm throws for the whole run.
RunTotals run_task(const Task& task, engine::Lm& lm, const RunOptions& options, const ResultSink& sink,
                   const StopFlag& stop);

}  // namespace hayfork::tasks
