// Needle in a haystack: a heatmap a model on common axes, and its difference from the baseline.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "metrics/paired.h"
#include "runs/pairing.h"
#include "runs/report/heatmap.h"
#include "runs/report/site/pages.h"

namespace hayfork::runs {
namespace {

struct Shown {
  const RunView* run = nullptr;
  const RunTaskView* task = nullptr;
  std::string label;
};

bool has_grid(const std::vector<GridCell>& cells) {
  std::set<double> depths;
  for (const GridCell& cell : cells) {
    if (cell.ctx_len && cell.depth_pct) depths.insert(*cell.depth_pct);
  }
  return depths.size() >= 2;
}

// The runs of each task with a grid, the newest of each model; tasks by name.
std::map<std::string, std::vector<Shown>> tasks_with_grids(PageContext& page) {
  std::map<std::string, std::vector<Shown>> out;
  for (const CrossSource& model : page.models) {
    std::set<std::string> seen;
    for (const RunView& run : model.runs) {
      for (const RunTaskView& task : run.tasks) {
        if (task.task.kind == "group" || !seen.insert(task.task.name).second) continue;
        if (has_grid(page.store.grid(task.row.id))) out[task.task.name].push_back({&run, &task, model.label});
      }
    }
  }
  return out;
}

HeatOptions heat_options(PageContext& page, const std::string& metric, const HeatGrid& grid) {
  HeatOptions options;
  options.metric = metric;
  options.theme = page.options.theme;
  options.page_id = page.chart_id();
  for (const HeatCell& cell : grid.cells) {
    if (cell.value && *cell.value > options.high) options.high = *cell.value;
  }
  return options;
}

void panel(Html& html, const HeatGrid& grid, const HeatOptions& options) {
  html.open("figure");
  html.open("div", {{"class", "scroll"}});
  html.graphic(Graphic(heatmap_svg(std::vector{grid}, options)));
  html.close();
  html.element("p", {{"class", "note"}}, finding(grid, options.metric));
  html.graphic(Graphic(heatmap_details(grid, options)));
  html.close();
}

using CellKey = std::pair<double, int64_t>;

// Pairs of each cell tested together, Benjamini and Hochberg over the cells: which are marked.
std::set<CellKey> significant_cells(const TaskPairs& pairs) {
  std::map<CellKey, std::vector<Pair>> cells;
  for (const Pair& pair : pairs.pairs) {
    if (pair.cand->ctx_len && pair.cand->depth_pct) cells[{*pair.cand->depth_pct, *pair.cand->ctx_len}].push_back(pair);
  }
  std::vector<CellKey> keys;
  std::vector<double> p;
  for (const auto& [key, members] : cells) {
    const PairValues values = values_of(pairs, members);
    metrics::PairedOptions options;
    options.interval = false;
    keys.push_back(key);
    p.push_back(metrics::compare_paired(values.gains, values.clusters, values.binary, options).p);
  }
  const std::vector<double> adjusted = metrics::benjamini_hochberg(p);
  std::set<CellKey> out;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (adjusted[i] < 0.05) out.insert(keys[i]);
  }
  return out;
}

bool comparable(const Shown& a, const Shown& b) {
  return a.task->task.protocol == b.task->task.protocol && a.task->row.num_fewshot == b.task->row.num_fewshot &&
         a.task->row.chat == b.task->row.chat;
}

void differences(PageContext& page, const std::vector<Shown>& shown, const std::vector<HeatGrid>& grids, Html& html) {
  if (!page.baseline) return;
  const auto base = std::find_if(shown.begin(), shown.end(),
                                 [&](const Shown& s) { return s.run->run.run_id == page.baseline->run.run_id; });
  if (base == shown.end() || shown.size() < 2) return;
  html.element("h3", "Difference from " + base->label);
  html.element("p", {{"class", "note"}},
               fmt::format("{} is {}. A frame marks cells whose pairs differ significantly (paired test, "
                           "Benjamini–Hochberg over the cells, 0.05).",
                           base->run->run.run_id, page.baseline_why));
  html.open("div", {{"class", "panels"}});
  const HeatGrid& from = grids[static_cast<size_t>(base - shown.begin())];
  for (size_t i = 0; i < shown.size(); ++i) {
    if (shown.begin() + static_cast<std::ptrdiff_t>(i) == base || !comparable(*base, shown[i])) continue;
    const TaskPairs pairs = pair_rows(page.store.scores(base->task->row.id), page.store.scores(shown[i].task->row.id),
                                      shown[i].task->task.higher_is_better);
    HeatGrid grid = pairs.pairs.empty() ? difference(from, grids[i]) : difference(from, grids[i], pairs);
    if (grid.cells.empty()) continue;
    const std::set<CellKey> marked = significant_cells(pairs);
    for (size_t r = 0; r < grid.depths.size(); ++r) {
      for (size_t c = 0; c < grid.lengths.size(); ++c)
        grid.at(r, c).marked = marked.contains({grid.depths[r], grid.lengths[c]});
    }
    HeatOptions options = heat_options(page, shown[i].task->task.primary_metric, from);
    options.is_difference = true;
    panel(html, grid, options);
  }
  html.close();
}

}  // namespace

void niah_page(PageContext& page, Html& html) {
  page_title(html, "Needle in a haystack", "What is found, by the context's length and the needle's depth.");
  const auto tasks = tasks_with_grids(page);
  if (tasks.empty())
    return empty_state(html, "No finished run has a grid of lengths and depths.",
                       "hayfork run --model DIR --tasks niah --lengths 1k-8k*2 --depths 0-100+25");
  html.element(
      "p", {{"class", "note"}},
      "A light hatch is a cell that was not run, a cross-hatch one whose samples failed; neither counts as 0. A "
      "dotted frame marks fewer than 5 samples.");
  for (const auto& [name, shown] : tasks) {
    html.element("h2", name);
    std::vector<HeatGrid> grids;
    for (const Shown& one : shown) {
      grids.push_back(make_grid(one.label, one.run->model.arch_label.value_or(one.run->model.arch.value_or("")),
                                page.store.grid(one.task->row.id)));
    }
    align_axes(grids);
    html.open("div", {{"class", "panels"}});
    for (size_t i = 0; i < grids.size(); ++i)
      panel(html, grids[i], heat_options(page, shown[i].task->task.primary_metric, grids[i]));
    html.close();
    differences(page, shown, grids, html);
  }
}

}  // namespace hayfork::runs
