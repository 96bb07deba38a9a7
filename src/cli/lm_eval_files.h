// A run in the files of lm-evaluation-harness 0.4: results_<date>.json and samples_<task>_<date>.jsonl, as its
// EvaluationTracker writes them, so that its own tools read them (import lm-eval does too).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runs/store.h"

namespace hayfork::cli {

// Writes into `folder`/<model>/ and returns the paths, the results first. What the store does not hold (a document's
// own fields, unless it was imported with them) is left empty. Throws: resource (disk).
std::vector<std::filesystem::path> write_lm_eval_files(runs::Store& store, const runs::RunView& run,
                                                       const std::filesystem::path& folder);

}  // namespace hayfork::cli
