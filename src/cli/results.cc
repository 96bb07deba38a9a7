#include "cli/results.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "runs/main_filter.h"

namespace hayfork::cli {
namespace {

using runs::Align;
using runs::Cell;
using runs::CellType;

std::optional<int64_t> length_of(const std::string& slice) {
  constexpr std::string_view kKey = "ctx_len=";
  if (!slice.starts_with(kKey) || slice.find(';') != std::string::npos) return std::nullopt;
  int64_t length = 0;
  const auto [end, error] = std::from_chars(slice.data() + kKey.size(), slice.data() + slice.size(), length);
  return error == std::errc{} && end == slice.data() + slice.size() ? std::optional(length) : std::nullopt;
}

std::string notes_of(const runs::RunTaskRow& row) {
  std::string notes;
  const auto add = [&notes](const std::string& note) { notes += (notes.empty() ? "" : ", ") + note; };
  if (row.n_done + row.n_failed < row.n_planned)
    add(fmt::format("{} of {} samples", row.n_done + row.n_failed, row.n_planned));
  if (row.n_failed > 0) add(fmt::format("{} failed", row.n_failed));
  if (row.n_truncated > 0) add(fmt::format("{} cut prompts", row.n_truncated));
  if (row.n_cut > 0) add(fmt::format("{} answers at the budget", row.n_cut));
  return notes;
}

bool higher_is_better(const runs::RunTaskView& view, const std::string& metric) {
  for (const runs::MetricDefRow& def : view.metric_defs) {
    if (def.metric == metric) return def.higher_is_better;
  }
  return view.task.higher_is_better;
}

Cell interval(const runs::MetricRow& row) {
  if (!row.ci_low || !row.ci_high) return {};
  return fmt::format("[{:.3f}, {:.3f}]", *row.ci_low, *row.ci_high);
}

void add_for_people(const runs::RunTaskView& view, runs::Table& table) {
  bool first = true;
  const std::string filter = runs::main_filter(view.metrics, view.task.primary_metric);
  const std::string notes = notes_of(view.row);
  const auto add = [&](const runs::MetricRow& row, const Cell& length) {
    const std::string metric =
        row.metric + (filter == "none" ? "" : "," + filter) + (higher_is_better(view, row.metric) ? " ↑" : " ↓");
    table.rows.push_back(
        {view.task.name, length, row.n, metric, cell(row.value), interval(row), Cell(first ? notes : "")});
    first = false;
  };
  for (const runs::MetricRow& row : view.metrics) {
    if (row.metric != view.task.primary_metric || row.filter != filter) continue;
    if (row.slice.empty()) add(row, Cell("all"));
  }
  std::vector<std::pair<int64_t, const runs::MetricRow*>> by_length;
  for (const runs::MetricRow& row : view.metrics) {
    if (row.metric != view.task.primary_metric || row.filter != filter) continue;
    if (const auto length = length_of(row.slice)) by_length.emplace_back(*length, &row);
  }
  std::sort(by_length.begin(), by_length.end());
  for (const auto& [length, row] : by_length) add(*row, Cell(std::to_string(length)));
  if (first)
    table.rows.push_back({view.task.name, Cell(), int64_t{0}, view.task.primary_metric, Cell(), Cell(), notes});
}

void add_whole(const runs::RunTaskView& view, runs::Table& table) {
  for (const runs::MetricRow& row : view.metrics) {
    table.rows.push_back({view.task.name, view.task.version, view.task.protocol, view.row.num_fewshot, row.slice,
                          row.metric, row.filter, higher_is_better(view, row.metric), cell(row.value), row.n,
                          cell(row.stderr_value), cell(row.ci_low), cell(row.ci_high), cell(row.ci_method)});
  }
}

}  // namespace

runs::Section results_section(const runs::RunView& view, const runs::OptText& only_task, bool all) {
  runs::Section section{.name = "results"};
  if (all) {
    section.table.columns = {{.name = "task"},
                             {.name = "version"},
                             {.name = "protocol"},
                             {.name = "num_fewshot", .type = CellType::integer},
                             {.name = "slice"},
                             {.name = "metric"},
                             {.name = "filter"},
                             {.name = "higher_is_better", .type = CellType::boolean},
                             {.name = "value", .align = Align::right, .type = CellType::real},
                             {.name = "n", .align = Align::right, .type = CellType::integer},
                             {.name = "stderr", .align = Align::right, .type = CellType::real},
                             {.name = "ci_low", .align = Align::right, .type = CellType::real},
                             {.name = "ci_high", .align = Align::right, .type = CellType::real},
                             {.name = "ci_method"}};
  } else {
    section.table.columns = {{.name = "task"},
                             {.name = "len", .align = Align::right},
                             {.name = "n", .align = Align::right, .type = CellType::integer},
                             {.name = "metric"},
                             {.name = "value", .align = Align::right, .type = CellType::real, .digits = 3},
                             {.name = "ci", .align = Align::right, .title = "95 % CI"},
                             {.name = "notes"}};
  }
  for (const runs::RunTaskView& task : view.tasks) {
    if (only_task && task.task.name != *only_task) continue;
    if (all) {
      add_whole(task, section.table);
    } else {
      add_for_people(task, section.table);
    }
  }
  if (!all) drop_empty_columns(section.table, {"notes"});
  return section;
}

}  // namespace hayfork::cli
