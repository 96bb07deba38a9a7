// A run's results as tables: what run, resume, demo and show print.
#pragma once

#include <string>

#include "cli/output.h"
#include "runs/store.h"

namespace hayfork::cli {

// One line a task and slice with value, n and 95 % interval. For people (`all` false): primary metrics only, the whole
// and one line a length.
runs::Section results_section(const runs::RunView& view, const runs::OptText& only_task, bool all);

}  // namespace hayfork::cli
