// The table of models × tasks as rows of text and figures.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "runs/report/cross_table.h"

namespace hayfork::runs {

std::string column_text(double value, const LayoutColumn& column) {
  return fmt::format("{:.{}f}", value * column.scale, column.digits);
}

std::string count_text(const OptInt& n) {
  if (!n) return "";
  const auto x = static_cast<double>(*n);
  for (const auto& [unit, name] : {std::pair{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}}) {
    if (x >= unit) return fmt::format("{:.{}f}{}", x / unit, x / unit >= 100 ? 0 : x / unit >= 10 ? 1 : 2, name);
  }
  return std::to_string(*n);
}

Table layer_table(std::span<const CrossSource> sources) {
  std::set<int64_t> layers;
  for (const CrossSource& source : sources) {
    if (source.runs.empty()) continue;
    for (const SparseLayerRow& layer : source.runs.front().sparse_layers) layers.insert(layer.layer);
  }
  Table table{{{.name = "model"}, {.name = "config"}}, {}};
  for (const int64_t layer : layers)
    table.columns.push_back({.name = fmt::format("layer_{}", layer), .align = Align::right});
  for (const CrossSource& source : sources) {
    if (source.runs.empty() || !source.runs.front().sparse) continue;
    const RunView& run = source.runs.front();
    std::vector<Cell> row = {run.model.name, run.sparse->label};
    for (const int64_t layer : layers) {
      std::string text;
      for (const SparseLayerRow& one : run.sparse_layers) {
        if (one.layer != layer) continue;
        const bool full = one.mode == "full" || !one.window;
        text = full ? "full" : std::to_string(*one.window);
        text += "/" + (one.budget ? std::to_string(*one.budget) : "–");
      }
      row.emplace_back(text);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table people_table(const CrossTable& table, bool intervals) {
  Table out{
      {{.name = "model"}, {.name = "arch"}, {.name = "N", .align = Align::right}, {.name = "D", .align = Align::right}},
      {}};
  const bool groups =
      std::any_of(table.rows.begin(), table.rows.end(), [](const CrossRow& row) { return !row.group.empty(); });
  if (groups) out.columns.insert(out.columns.begin(), Column{.name = "group"});
  for (const LayoutColumn& column : table.columns) {
    const std::string arrow = column.mean ? "" : column.higher_is_better ? " ↑" : " ↓";
    out.columns.push_back({.name = column.title, .align = Align::right, .title = column.title + arrow});
  }
  for (const CrossRow& row : table.rows) {
    std::vector<Cell> cells = {row.label + (row.other_input ? " ‡" : ""), row.arch ? Cell(*row.arch) : Cell(),
                               count_text(row.n_params), count_text(row.train_tokens)};
    if (groups) cells.insert(cells.begin(), Cell(row.group));
    for (size_t c = 0; c < row.cells.size(); ++c) {
      const CrossCell& cell = row.cells[c];
      if (!cell.value) {
        cells.emplace_back("–");
        continue;
      }
      std::string text =
          column_text(*cell.value, table.columns[c]) + (cell.best ? "*" : "") + (cell.comparable ? "" : "†");
      if (intervals && cell.ci_low && cell.ci_high) {
        text += fmt::format(" [{}, {}]", column_text(*cell.ci_low, table.columns[c]),
                            column_text(*cell.ci_high, table.columns[c]));
      }
      if (intervals && cell.n > 0 && !table.columns[c].mean) text += fmt::format(" n={}", cell.n);
      cells.emplace_back(text);
    }
    out.rows.push_back(std::move(cells));
  }
  return out;
}

Table long_table(const CrossTable& table) {
  Table out{{{.name = "model"},
             {.name = "group"},
             {.name = "arch"},
             {.name = "n_params", .type = CellType::integer},
             {.name = "train_tokens", .type = CellType::integer},
             {.name = "published", .type = CellType::boolean},
             {.name = "column"},
             {.name = "value", .type = CellType::real},
             {.name = "ci_low", .type = CellType::real},
             {.name = "ci_high", .type = CellType::real},
             {.name = "n", .type = CellType::integer},
             {.name = "best", .type = CellType::boolean},
             {.name = "comparable", .type = CellType::boolean},
             {.name = "run"}},
            {}};
  const auto real = [](const OptReal& value) { return value ? Cell(*value) : Cell(); };
  const auto whole = [](const OptInt& value) { return value ? Cell(*value) : Cell(); };
  for (const CrossRow& row : table.rows) {
    for (size_t c = 0; c < row.cells.size(); ++c) {
      const CrossCell& cell = row.cells[c];
      out.rows.push_back({row.label, row.group.empty() ? Cell() : Cell(row.group), row.arch ? Cell(*row.arch) : Cell(),
                          whole(row.n_params), whole(row.train_tokens), row.published, table.columns[c].title,
                          real(cell.value), real(cell.ci_low), real(cell.ci_high), cell.n, cell.best, cell.comparable,
                          cell.run_id.empty() ? Cell() : Cell(cell.run_id)});
    }
  }
  return out;
}

}  // namespace hayfork::runs
