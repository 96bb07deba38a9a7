#include <fmt/format.h>

#include "base/error.h"
#include "cli/compare_flags.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "runs/report/cross_table.h"

namespace hayfork::cli {
namespace {

struct TableVerb {
  std::vector<std::string> runs, tasks, filters;
  std::string layout, slice, metric;
  bool published = false, best = true, intervals = true;
  double alpha = 0.05;
  DbOptions db;
  OutputOptions output;
};

std::vector<runs::CrossSource> sources_of(runs::Store& store, const TableVerb& verb) {
  if (verb.runs.empty()) return runs::model_sources(store, runs::parse_run_filter(verb.filters));
  std::vector<runs::CrossSource> out;
  for (const std::string& reference : verb.runs) {
    runs::RunView view = store.show_run(store.find_run(reference).id);
    std::string label = view.model.name;
    if (view.sparse) label += " " + view.sparse->label;
    if (verb.runs.size() > 1) label += " (" + view.run.run_id + ")";
    out.push_back({std::move(label), {std::move(view)}});
  }
  return out;
}

int print_layers(const std::vector<runs::CrossSource>& sources, const runs::Layout& layout, const TableVerb& verb,
                 Console& console) {
  runs::Section section{.name = "layers", .table = runs::layer_table(sources), .title = layout.title};
  if (section.table.rows.empty()) {
    console.error(Error(ErrorCode::not_found, ErrorSubject::database, "no run has a sparse configuration",
                        {.where = verb.db.db}));
    return 5;
  }
  section.notes = layout.notes;
  print(console, {"table", {std::move(section)}}, verb.output);
  return 0;
}

int table(const TableVerb& verb, Console& console) {
  const runs::Layout* layout = verb.layout.empty() ? nullptr : &runs::find_layout(verb.layout);
  if (layout == nullptr && verb.published) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "--published needs --layout");
  }
  runs::Store store = open_to_read(verb.db, console);
  const std::vector<runs::CrossSource> sources = sources_of(store, verb);
  if (layout != nullptr && layout->layers) return print_layers(sources, *layout, verb, console);
  runs::CrossOptions options;
  options.groups = known_groups();
  options.best = verb.best;
  options.paired.alpha = verb.alpha;
  auto columns = layout ? layout->columns : runs::task_columns(sources, verb.tasks, options.groups);
  for (runs::LayoutColumn& column : columns) {
    std::vector<runs::SliceKey> keys;
    if (!verb.slice.empty() && !column.mean) column.slice = runs::parse_slice(verb.slice, keys);
    if (verb.metric.empty() || column.mean) continue;
    column.metric = verb.metric;
    column.only_metric = true;
  }
  runs::CrossTable cross = runs::cross_table(store, sources, std::move(columns), options);
  std::erase_if(cross.rows, [](const runs::CrossRow& row) {
    return std::none_of(row.cells.begin(), row.cells.end(),
                        [](const runs::CrossCell& cell) { return cell.value.has_value(); });
  });
  if (cross.rows.empty() && !verb.published) {
    console.error(Error(ErrorCode::not_found, ErrorSubject::database, "no run has a value for any column",
                        {.where = verb.db.db, .next = "hayfork list runs shows which tasks runs have"}));
    return 5;
  }
  if (verb.published) runs::add_published(*layout, cross);
  const std::string& format = verb.output.format;
  const bool people = format == "table" || format == "md" || format == "latex";
  runs::Section section{.name = "table",
                        .table = people ? runs::people_table(cross, verb.intervals) : runs::long_table(cross)};
  if (people) {
    if (layout != nullptr) section.title = layout->title;
    section.notes = cross.notes;
    if (layout != nullptr) section.notes.insert(section.notes.end(), layout->notes.begin(), layout->notes.end());
    drop_empty_columns(section.table, {"arch", "N", "D", "group"});
  }
  print(console, {"table", {std::move(section)}}, verb.output);
  return 0;
}

}  // namespace

Action declare_table(Flags& flags) {
  auto options = std::make_shared<TableVerb>();
  flags.arguments("RUN", options->runs, "A row a run. Default: a row a model, filled from its newest runs.").kind =
      "run";
  flags.group("Table");
  std::string known;
  for (const runs::Layout& layout : runs::layouts()) known += (known.empty() ? "" : ", ") + layout.name;
  flags.text("layout", options->layout, "NAME", "Columns as a paper has them: " + known + ".").configurable = false;
  flags.toggle("published", options->published, "Also the rows that were published.").configurable = false;
  flags.list("tasks", options->tasks, "A,B", "Columns. Default: every task there is.").configurable = false;
  flags.text("metric", options->metric, "NAME", "Instead of each task's primary metric.").configurable = false;
  flags.text("slice", options->slice, "SLICE", "length=4k, depth=50, subtask=NAME, joined by ;.").configurable = false;
  flags.list("filter", options->filters, "KEY=VALUE", "Only models of these runs: arch, series, tag, since, ….")
      .configurable = false;
  flags.on_off("best", options->best, "Mark the best of a column where a paired test says so.");
  flags.on_off("intervals", options->intervals, "Show intervals and sample counts in the cells.");
  flags.real("alpha", options->alpha, "A", "Level of that test.");
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return table(*options, console); };
}

}  // namespace hayfork::cli
