#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_map.h"
#include "base/units.h"
#include "cli/grid_view.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "runs/pairing.h"
#include "runs/report/length_curve.h"

namespace hayfork::cli {
namespace {

using runs::HeatGrid;

struct HeatmapOptions {
  std::vector<std::string> runs;
  DbOptions db;
  std::string metric, by = "model", out, theme = "cividis", heading;
  double threshold = 85.6;  // where the curves' line is drawn
  bool difference = false, curve = false;
};

// The grids of a run, or of the one task that was asked for.
std::vector<TaskGrid> grids_of(runs::Store& store, const std::string& reference, const std::string& metric) {
  const runs::RunSelection selection = store.select(reference);
  const runs::RunView view = store.show_run(selection.run.id);
  std::vector<TaskGrid> grids;
  std::string known;
  bool lengths = false;
  for (const runs::RunTaskView& task : view.tasks) {
    known += (known.empty() ? "" : ", ") + task.task.name;
    if (selection.task && task.task.name != *selection.task) continue;
    const std::vector<runs::GridCell> cells = store.grid(task.row.id);
    if (can_be_drawn(cells)) grids.push_back(task_grid(store, view, task, metric));
    lengths = lengths || std::any_of(cells.begin(), cells.end(), [](const auto& cell) { return cell.ctx_len; });
  }
  if (grids.empty()) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("{} has no length × depth grid", reference),
                {.why = "its tasks are " + (known.empty() ? "none" : known),
                 .next = lengths ? "--curve draws scores by length" : "hayfork show " + reference + " has its scores"});
  }
  return grids;
}

void give_titles(std::vector<TaskGrid>& grids, const std::string& by) {
  const bool one_task =
      std::all_of(grids.begin(), grids.end(), [&](const TaskGrid& g) { return g.task == grids[0].task; });
  for (TaskGrid& grid : grids) {
    if (by == "run") grid.grid.title = grid.run_id + "  " + grid.model;
    if (!one_task) grid.grid.title += "  " + grid.task;
  }
}

// The length of a slice that is nothing else: "ctx_len=4096".
std::optional<int64_t> slice_length(const std::string& slice) {
  static constexpr std::string_view kKey = "ctx_len=";
  if (!slice.starts_with(kKey) || slice.find_first_not_of("0123456789", kKey.size()) != std::string::npos) return {};
  return parse_count(slice.substr(kKey.size()), "ctx_len");
}

// A task's scores over its lengths, as its aggregates have them.
runs::LengthCurve curve_of(runs::Store& store, const runs::RunTaskView& task, const std::string& metric) {
  runs::LengthCurve curve;
  for (const runs::MetricRow& row : task.metrics) {
    if (row.metric == "effective_length" && row.slice.empty() && row.value)
      curve.effective_length = static_cast<int64_t>(*row.value);
    const auto length = slice_length(row.slice);
    if (!length || row.metric != metric) continue;
    curve.points.push_back({*length, row.value, row.ci_low, row.ci_high, row.n});
  }
  for (const runs::GridCell& cell : store.grid(task.row.id)) {
    for (runs::LengthPoint& point : curve.points) {
      if (cell.ctx_len != point.length) continue;
      point.n_failed += cell.n_failed;
      point.n_truncated += cell.n_truncated;
    }
  }
  std::sort(curve.points.begin(), curve.points.end(), [](const auto& a, const auto& b) { return a.length < b.length; });
  return curve;
}

// A group's curve stands for its members'; a task that is named is drawn alone.
std::vector<runs::LengthCurve> curves_of(runs::Store& store, const HeatmapOptions& options,
                                         const std::string& reference, std::string& metric, bool& ruler) {
  const runs::RunSelection selection = store.select(reference);
  const runs::RunView view = store.show_run(selection.run.id);
  const bool group = std::any_of(view.tasks.begin(), view.tasks.end(),
                                 [](const runs::RunTaskView& task) { return task.task.kind == "group"; });
  std::vector<runs::LengthCurve> curves;
  for (const runs::RunTaskView& task : view.tasks) {
    if (selection.task ? task.task.name != *selection.task : group && task.task.kind != "group") continue;
    const std::string shown = options.metric.empty() ? task.task.primary_metric : options.metric;
    runs::LengthCurve curve = curve_of(store, task, shown);
    if (curve.points.empty()) continue;
    curve.title = (options.by == "run" ? view.run.run_id + "  " : "") + view.model.name + "  " + task.task.name;
    if (metric.empty()) metric = shown;
    ruler = ruler || task.task.name == "ruler";
    curves.push_back(std::move(curve));
  }
  if (curves.empty())
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("{} has no scores by length", reference));
  return curves;
}

int draw_curves(runs::Store& store, const HeatmapOptions& options, const std::vector<std::string>& references,
                Console& console) {
  runs::CurveOptions how;
  how.metric.clear();
  how.heading = options.heading;
  bool ruler = false;
  std::vector<runs::LengthCurve> curves;
  for (const std::string& reference : references)
    for (runs::LengthCurve& curve : curves_of(store, options, reference, how.metric, ruler))
      curves.push_back(std::move(curve));
  if (ruler) how.threshold = options.threshold / 100;
  if (options.out.empty())
    console.out(runs::length_curves_text(curves, how));
  else if (options.out == "-")
    console.out(runs::length_curves_svg(curves, how));
  else if (options.out.ends_with(".svg"))
    write_file_atomically(options.out, runs::length_curves_svg(curves, how));
  else
    write_file_atomically(options.out, runs::svg_to_png(runs::length_curves_svg(curves, how)));
  if (!options.out.empty() && options.out != "-") console.note("wrote " + options.out);
  return 0;
}

void write(const HeatmapOptions& options, const std::vector<HeatGrid>& grids, const runs::HeatOptions& how,
           Console& console) {
  const std::string& out = options.out;
  if (out.empty()) {
    console.out(grid_text(grids, how, console));
    for (const HeatGrid& grid : grids) console.note(fmt::format("{}: {}", grid.title, runs::finding(grid, how.metric)));
  } else if (out == "-") {
    console.out(runs::heatmap_svg(grids, how));
  } else if (out.ends_with(".svg")) {
    write_file_atomically(out, runs::heatmap_svg(grids, how));
  } else {
    write_file_atomically(out, runs::svg_to_png(runs::heatmap_svg(grids, how)));
  }
  if (!out.empty() && out != "-") console.note("wrote " + out);
}

int run(const HeatmapOptions& options, Console& console) {
  if (!options.out.empty() && options.out != "-" && !options.out.ends_with(".svg") && !options.out.ends_with(".png")) {
    throw Error(ErrorCode::usage, ErrorSubject::general,
                fmt::format("-o: cannot tell the format of \"{}\"", options.out),
                {.why = "want FILE.svg, FILE.png or - (SVG on standard output)"});
  }
  runs::Store store = open_to_read(options.db, console);
  const std::vector<std::string> references = options.runs.empty() ? std::vector<std::string>{"@last"} : options.runs;
  if (options.curve) return draw_curves(store, options, references, console);
  std::vector<TaskGrid> found;
  for (const std::string& reference : references) {
    for (TaskGrid& grid : grids_of(store, reference, options.metric)) found.push_back(std::move(grid));
  }
  give_titles(found, options.by);
  runs::HeatOptions how;
  how.metric = found.front().metric;
  how.theme = options.theme == "classic" ? runs::Theme::classic : runs::Theme::cividis;
  how.heading = options.heading;
  std::vector<HeatGrid> grids;
  if (options.difference) {
    if (found.size() != 2) {
      throw Error(ErrorCode::usage, ErrorSubject::general, "--diff takes two grids",
                  {.why = fmt::format("these runs have {}", found.size()), .next = "name RUN:TASK twice"});
    }
    how.is_difference = true;
    const runs::TaskPairs pairs = runs::pair_rows(std::move(found[0].scores), std::move(found[1].scores), true);
    if (pairs.pairs.empty()) console.note("no sample is in both: the difference is that of the cells' means");
    grids.push_back(pairs.pairs.empty() ? runs::difference(found[0].grid, found[1].grid)
                                        : runs::difference(found[0].grid, found[1].grid, pairs));
    grids[0].title = found[1].grid.title + " − " + found[0].grid.title;
  } else {
    for (TaskGrid& grid : found) grids.push_back(std::move(grid.grid));
  }
  write(options, grids, how, console);
  return 0;
}

}  // namespace

Action declare_heatmap(Flags& flags) {
  auto options = std::make_shared<HeatmapOptions>();
  flags.arguments("RUN[:TASK]", options->runs, "One or more. Default: the newest.").kind = "run";
  flags.group("What to draw");
  flags.text("metric", options->metric, "NAME", "Default: the task's primary one.").configurable = false;
  flags.choice("by", options->by, {"model", "run"}, "What the titles name.").configurable = false;
  flags.toggle("diff", options->difference, "The second minus the first, over the samples that both have.")
      .configurable = false;
  flags.toggle("curve", options->curve, "Scores over length with their intervals, and the effective length.")
      .configurable = false;
  flags.real("threshold", options->threshold, "PERCENT", "Where RULER's line is drawn under --curve.").configurable =
      false;
  flags.choice("theme", options->theme, {"cividis", "classic"},
               "Colours: cividis survives greyscale and colour blindness, classic is the usual red to green.");
  flags.text("title", options->heading, "TEXT", "A heading.").configurable = false;
  flags.group("Output");
  FlagInfo& out = flags.text("o,out", options->out, "FILE",
                             "FILE.svg, FILE.png, or - for SVG on standard output. Default: in the terminal.");
  out.kind = "file";
  out.configurable = false;
  declare_db(flags, options->db);
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
