#include "runs/report/cross_table.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "runs/compare.h"
#include "runs/report/cross_table_timings.h"

namespace hayfork::runs {
namespace {

using Timing = LayoutColumn::Timing;

// A column's task in a source: the run that fills it.
struct Found {
  const RunView* run = nullptr;
  const RunTaskView* task = nullptr;
};

Found find_task_of(const CrossSource& source, const LayoutColumn& column) {
  for (const std::string& name : column.tasks) {
    for (const RunView& run : source.runs) {
      if (const RunTaskView* task = find_run_task(run, name)) return {&run, task};
    }
  }
  return {};
}

std::string metric_of(const RunTaskView& task, const LayoutColumn& column) {
  if (column.metric.empty()) return task.task.primary_metric;
  const bool known = std::any_of(task.metrics.begin(), task.metrics.end(),
                                 [&](const MetricRow& row) { return row.metric == column.metric; });
  return known || column.only_metric ? column.metric : task.task.primary_metric;
}

const MetricRow* aggregate_of(const RunTaskView& task, const LayoutColumn& column) {
  const std::string metric = metric_of(task, column);
  const MetricRow* found = nullptr;
  for (const MetricRow& row : task.metrics) {
    if (row.metric != metric || row.slice != column.slice || !row.value) continue;
    if (row.filter == "none") return &row;
    if (found == nullptr) found = &row;
  }
  return found;
}

bool direction_of(const RunTaskView& task, const std::string& metric) {
  for (const MetricDefRow& def : task.metric_defs) {
    if (def.metric == metric) return def.higher_is_better;
  }
  return task.task.higher_is_better;
}

// ---- Scores --------------------------------------------------------------------------------------------------------

CrossCell score_cell(const CrossSource& source, const LayoutColumn& column) {
  CrossCell cell;
  const Found found = find_task_of(source, column);
  if (found.task == nullptr) return cell;
  const MetricRow* row = aggregate_of(*found.task, column);
  if (row == nullptr) return cell;
  cell.value = row->value;
  cell.ci_low = row->ci_low;
  cell.ci_high = row->ci_high;
  cell.n = row->n;
  cell.run_id = found.run->run.run_id;
  return cell;
}

// The mean of the columns before it; nothing where one is missing.
CrossCell mean_cell(const CrossRow& row, std::span<const LayoutColumn> columns) {
  CrossCell cell;
  double sum = 0;
  int64_t n = 0;
  for (size_t c = 0; c < row.cells.size(); ++c) {
    if (columns[c].mean) continue;
    if (!row.cells[c].value) return cell;
    sum += *row.cells[c].value;
    ++n;
  }
  if (n == 0) return cell;
  cell.value = sum / static_cast<double>(n);
  cell.n = n;
  return cell;
}

// The samples behind a cell; of a group those of its members.
std::vector<ScoreRow> samples_of(Store& store, const Found& found, const LayoutColumn& column,
                                 const CrossOptions& options) {
  const std::string metric = metric_of(*found.task, column);
  std::vector<const RunTaskView*> tasks;
  const auto group = options.groups.find(found.task->task.name);
  if (found.task->task.kind == "group") {
    if (group == options.groups.end()) return {};
    for (const std::string& member : group->second) {
      if (const RunTaskView* task = find_run_task(*found.run, member)) tasks.push_back(task);
    }
  } else {
    tasks.push_back(found.task);
  }
  std::vector<SliceKey> keys;
  const std::string slice = column.slice.empty() ? "" : parse_slice(column.slice, keys);
  std::vector<ScoreRow> out;
  for (const RunTaskView* task : tasks) {
    for (ScoreRow& row : store.scores(task->row.id, task->task.primary_metric == metric ? "" : metric)) {
      if (!slice.empty() && slice_of(row, keys) != slice) continue;
      row.doc_sha256 = task->task.protocol + "\n" + row.doc_sha256;
      out.push_back(std::move(row));
    }
  }
  std::sort(out.begin(), out.end(), [](const ScoreRow& a, const ScoreRow& b) {
    return std::tie(a.doc_sha256, a.occurrence, a.repeat) < std::tie(b.doc_sha256, b.occurrence, b.repeat);
  });
  return out;
}

// Documents of both were asked with other prompts, though the tokenizer is the same. Both in the order of
// samples_of.
bool other_prompts(const Found& a, const std::vector<ScoreRow>& of_a, const Found& b,
                   const std::vector<ScoreRow>& of_b) {
  const OptText &left = a.run->model.tokenizer_sha256, &right = b.run->model.tokenizer_sha256;
  if (left && right && *left != *right) return false;
  const auto key = [](const ScoreRow& row) { return std::tie(row.doc_sha256, row.occurrence, row.repeat); };
  for (size_t i = 0, j = 0; i < of_a.size() && j < of_b.size();) {
    if (key(of_a[i]) == key(of_b[j])) {
      if (of_a[i].prompt_sha256 != of_b[j].prompt_sha256) return true;
      ++i, ++j;
    } else {
      key(of_a[i]) < key(of_b[j]) ? ++i : ++j;
    }
  }
  return false;
}

void mark_column(Store& store, std::span<const CrossSource> sources, size_t c, const CrossOptions& options,
                 CrossTable& table) {
  const LayoutColumn& column = table.columns[c];
  std::vector<size_t> rows;
  std::vector<Found> found;
  for (size_t r = 0; r < sources.size(); ++r) {
    if (!table.rows[r].cells[c].value) continue;
    rows.push_back(r);
    found.push_back(find_task_of(sources[r], column));
  }
  if (rows.empty()) return;
  bool all_alike = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RunTaskView &a = *found[0].task, &b = *found[i].task;
    const bool alike = a.task.protocol == b.task.protocol && a.row.num_fewshot == b.row.num_fewshot &&
                       a.row.chat == b.row.chat && metric_of(a, column) == metric_of(b, column);
    table.rows[rows[i]].cells[c].comparable = alike;
    all_alike = all_alike && alike;
  }
  if (!options.best || !all_alike || rows.size() < 2) return;
  std::vector<std::vector<ScoreRow>> samples;
  for (const Found& one : found) {
    samples.push_back(samples_of(store, one, column, options));
    if (samples.back().empty()) return;
  }
  for (size_t i = 1; i < found.size(); ++i) {
    if (!other_prompts(found[0], samples[0], found[i], samples[i])) continue;
    table.rows[rows[i]].cells[c].comparable = false;
    all_alike = false;
  }
  if (!all_alike) return;
  const bool higher = direction_of(*found[0].task, metric_of(*found[0].task, column));
  if (const auto best = significant_best(samples, higher, options.paired)) table.rows[rows[*best]].cells[c].best = true;
}

// Of the runs that rows are filled from first; what one does not know is no difference.
void mark_inputs(std::span<const CrossSource> sources, CrossTable& table) {
  OptText tokenizer, dtype;
  const auto differs = [](OptText& first, const OptText& own) {
    if (!first) first = own;
    return own && *own != *first;
  };
  for (size_t r = 0; r < sources.size(); ++r) {
    if (sources[r].runs.empty()) continue;
    const RunView& run = sources[r].runs.front();
    const bool other_tokenizer = differs(tokenizer, run.model.tokenizer_sha256),
               other_dtype = differs(dtype, run.run.dtype);
    table.rows[r].other_input = other_tokenizer || other_dtype;
  }
}

// Shares are shown as percents; a column with anything else as it is.
void settle_scale(CrossTable& table) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    LayoutColumn& column = table.columns[c];
    if (column.mean || column.timing != Timing::none) continue;
    const bool share = std::all_of(table.rows.begin(), table.rows.end(), [&](const CrossRow& row) {
      const OptReal& value = row.cells[c].value;
      return !value || (*value >= 0 && *value <= 1);
    });
    if (share) continue;
    column.scale = 1;
    column.digits = 3;
  }
}

}  // namespace

std::vector<CrossSource> model_sources(Store& store, const RunFilter& filter) {
  std::vector<RunView> views;
  for (const RunListRow& row : store.list_runs(filter)) {
    if (row.status != "done" && row.status != "imported" && row.status != "partial") continue;
    if (("," + row.tags + ",").find(",confirm,") == std::string::npos) views.push_back(store.show_run(row.run));
  }
  return model_sources(std::move(views));
}

std::vector<CrossSource> model_sources(std::vector<RunView> views) {
  std::vector<CrossSource> out;
  std::map<std::pair<int64_t, int64_t>, size_t> by_model;
  for (RunView& view : views) {
    const auto [at, fresh] = by_model.try_emplace({view.model.id, view.run.sparse_id.value_or(0)}, out.size());
    if (fresh) {
      std::string label = view.model.name;
      if (view.sparse) label += " " + view.sparse->label;
      out.push_back({std::move(label), {}});
    }
    out[at->second].runs.push_back(std::move(view));
  }
  std::reverse(out.begin(), out.end());  // models in the order they were first of the newest seen: oldest above
  return out;
}

std::vector<LayoutColumn> task_columns(std::span<const CrossSource> sources, const std::vector<std::string>& tasks,
                                       const std::map<std::string, std::vector<std::string>>& groups) {
  std::vector<std::string> names = tasks;
  if (names.empty()) {
    std::set<std::string> covered;
    std::vector<std::string> all;
    for (const CrossSource& source : sources) {
      for (const RunView& run : source.runs) {
        for (const RunTaskView& task : run.tasks) {
          if (std::find(all.begin(), all.end(), task.task.name) == all.end()) all.push_back(task.task.name);
          const auto group = groups.find(task.task.name);
          if (task.task.kind == "group" && group != groups.end())
            covered.insert(group->second.begin(), group->second.end());
        }
      }
    }
    for (const std::string& name : all) {
      if (!covered.contains(name)) names.push_back(name);
    }
  }
  std::vector<LayoutColumn> out;
  for (const std::string& name : names) {
    LayoutColumn column{.title = name, .tasks = {name}};
    for (const CrossSource& source : sources) {
      if (const Found found = find_task_of(source, column); found.task != nullptr) {
        column.higher_is_better = direction_of(*found.task, metric_of(*found.task, column));
        break;
      }
    }
    out.push_back(std::move(column));
  }
  return out;
}

CrossTable cross_table(Store& store, std::span<const CrossSource> sources, std::vector<LayoutColumn> columns,
                       const CrossOptions& options) {
  CrossTable table;
  table.columns = std::move(columns);
  for (const CrossSource& source : sources) {
    CrossRow row;
    row.label = source.label;
    if (!source.runs.empty()) {
      const ModelRow& model = source.runs.front().model;
      row.arch = model.arch_label ? model.arch_label : model.arch;
      row.n_params = model.n_params_noemb ? model.n_params_noemb : model.n_params;
      row.train_tokens = model.train_tokens;
    }
    for (const LayoutColumn& column : table.columns) {
      row.cells.push_back(column.mean                     ? mean_cell(row, table.columns)
                          : column.timing != Timing::none ? timing_cell(store, source, column)
                                                          : score_cell(source, column));
    }
    table.rows.push_back(std::move(row));
  }
  divide_by_first(table);
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (!table.columns[c].mean && table.columns[c].timing == Timing::none)
      mark_column(store, sources, c, options, table);
  }
  settle_scale(table);
  mark_inputs(sources, table);
  const auto any = [&](auto&& test) {
    return std::any_of(table.rows.begin(), table.rows.end(),
                       [&](const CrossRow& row) { return std::any_of(row.cells.begin(), row.cells.end(), test); });
  };
  if (any([](const CrossCell& cell) { return cell.best; })) {
    table.notes.push_back(
        fmt::format("* best: better than every other row, paired test, Holm-adjusted p < {}", options.paired.alpha));
  }
  if (any([](const CrossCell& cell) { return !cell.comparable; }))
    table.notes.emplace_back(
        "† not comparable with the column: another protocol, prompt, few-shot number or chat form");
  if (std::ranges::any_of(table.rows, &CrossRow::other_input))
    table.notes.emplace_back("‡ another tokenizer or dtype than the first row's");
  return table;
}

void add_published(const Layout& layout, CrossTable& table) {
  for (const PublishedRow& row : layout.published) {
    CrossRow out;
    out.label = row.model + " (published)";
    out.group = row.group;
    out.published = true;
    for (size_t c = 0; c < table.columns.size(); ++c) {
      CrossCell cell;
      if (c < row.values.size() && row.values[c]) cell.value = *row.values[c] / layout.columns[c].scale;
      out.cells.push_back(cell);
    }
    table.rows.push_back(std::move(out));
  }
  table.notes.push_back("published: " + layout.source);
  for (const std::string& fault : check_published(layout)) table.notes.push_back(fault);
}

}  // namespace hayfork::runs
