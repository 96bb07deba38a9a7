#include "cli/grid_view.h"

#include <algorithm>
#include <set>

namespace hayfork::cli {

bool can_be_drawn(const std::vector<runs::GridCell>& cells) {
  return std::any_of(cells.begin(), cells.end(), [](const auto& cell) { return cell.ctx_len && cell.depth_pct; });
}

bool has_grid(const std::vector<runs::GridCell>& cells) {
  std::set<double> depths;
  for (const runs::GridCell& cell : cells) {
    if (cell.ctx_len && cell.depth_pct) depths.insert(*cell.depth_pct);
  }
  return depths.size() >= 2;
}

TaskGrid task_grid(runs::Store& store, const runs::RunView& view, const runs::RunTaskView& task,
                   const std::string& metric) {
  const std::string shown = metric.empty() ? task.task.primary_metric : metric;
  const std::string asked = shown == task.task.primary_metric ? std::string() : shown;
  const std::vector<runs::GridCell> cells = store.grid(task.row.id, asked);
  return {runs::make_grid(view.model.name, view.model.arch_label.value_or(""), cells),
          task.task.name,
          shown,
          view.run.run_id,
          view.model.name,
          store.scores(task.row.id, asked)};
}

std::string grid_text(const std::vector<runs::HeatGrid>& grids, const runs::HeatOptions& options,
                      const Console& console) {
  return runs::heatmap_text(grids, options, {.colour = console.color_out(), .unicode = !console.plain()});
}

void print_grids(const runs::RunView& view, runs::Store& store, Console& console) {
  for (const runs::RunTaskView& task : view.tasks) {
    if (!has_grid(store.grid(task.row.id))) continue;
    const TaskGrid grid = task_grid(store, view, task, "");
    runs::HeatOptions options;
    options.metric = grid.metric;
    console.out("\n" + grid_text({grid.grid}, options, console));
  }
}

}  // namespace hayfork::cli
