// Length × depth grids of runs: which tasks have one, and how they look in a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "runs/report/heatmap.h"
#include "runs/store.h"

namespace hayfork::cli {

// A grid of one task of one run, and what it shows.
struct TaskGrid {
  runs::HeatGrid grid;
  std::string task, metric, run_id, model;
  std::vector<runs::ScoreRow> scores;  // of its samples, as Store::scores gives them
};

// Whether `hayfork heatmap` can draw a task: it has samples with a length and a depth.
bool can_be_drawn(const std::vector<runs::GridCell>& cells);
// Whether a task has a length × depth grid worth drawing unasked: samples with both, at two depths or more.
bool has_grid(const std::vector<runs::GridCell>& cells);
TaskGrid task_grid(runs::Store& store, const runs::RunView& view, const runs::RunTaskView& task,
                   const std::string& metric);
std::string grid_text(const std::vector<runs::HeatGrid>& grids, const runs::HeatOptions& options,
                      const Console& console);

// Prints the grid of every task of the run that has one.
void print_grids(const runs::RunView& view, runs::Store& store, Console& console);

}  // namespace hayfork::cli
