// What a policy's `confirm: k` asks for: both runs' models again, on one task, with k new seeds.
#pragma once

#include <utility>
#include <vector>

#include "cli/execute.h"

namespace hayfork::cli {

// The pairs of runs (baseline's, candidate's) that were made; they are tagged "confirm" in the same database. Empty
// when the task has no seed of its own. Throws: what opening either model throws.
std::vector<std::pair<int64_t, int64_t>> confirm_runs(runs::Store& store, const runs::RunView& base,
                                                      const runs::RunView& cand, const std::vector<std::string>& tasks,
                                                      int64_t rounds, const ExecuteOptions& options, Console& console);

}  // namespace hayfork::cli
