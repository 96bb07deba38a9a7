#include "cli/compare_view.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace hayfork::cli {
namespace {

using runs::Align;
using runs::Cell;
using runs::CellType;
using runs::ComparedRow;

// Digits that show a difference of this size: scores have three, perplexities two.
int digits_of(const ComparedRow& row) {
  const double size = std::max(std::abs(row.base_mean), std::abs(row.cand_mean));
  return size >= 100 ? 1 : size >= 2 ? 2 : 3;
}

std::string p_text(const runs::OptReal& p) {
  if (!p) return "";
  if (*p >= 0.995) return "1";
  return *p < 0.001 ? "<0.001" : *p < 0.1 ? fmt::format("{:.3f}", *p) : fmt::format("{:.2f}", *p);
}

std::string verdict_text(const ComparedRow& row) {
  std::string text = row.verdict;
  if (row.verdict == "same?" && row.result.mde) text += fmt::format(" (mde {:.{}f})", *row.result.mde, digits_of(row));
  if (row.best) text += ", best";
  return text;
}

Cell real(const std::optional<double>& value) {
  return value ? Cell(*value) : Cell();
}

runs::Table people_table(const runs::Comparison& comparison, std::span<const runs::RunView> cands) {
  runs::Table table{{{.name = "candidate"},
                     {.name = "task"},
                     {.name = "slice"},
                     {.name = "metric"},
                     {.name = "pairs", .align = Align::right, .type = CellType::integer},
                     {.name = "base", .align = Align::right},
                     {.name = "cand", .align = Align::right},
                     {.name = "delta", .align = Align::right, .title = "Δ"},
                     {.name = "ci", .align = Align::right, .title = "95 % CI"},
                     {.name = "flips", .align = Align::right, .title = "flips −/+"},
                     {.name = "p", .align = Align::right, .title = "p(adj)"},
                     {.name = "verdict"},
                     {.name = "note"}},
                    {}};
  for (const ComparedRow& row : comparison.rows) {
    const int digits = digits_of(row);
    table.rows.push_back({cands.size() > 1 ? cands[row.cand].run.run_id : std::string(), row.task, row.slice,
                          row.metric + (row.higher_is_better ? " ↑" : " ↓"), row.result.n,
                          fmt::format("{:.{}f}", row.base_mean, digits), fmt::format("{:.{}f}", row.cand_mean, digits),
                          signed_text(row.delta(), digits), interval_text(row.delta_interval(), digits),
                          fmt::format("{}/{}", row.result.n_worse, row.result.n_better), p_text(row.p_adj),
                          verdict_text(row), row.note});
  }
  drop_empty_columns(table, {"candidate", "slice", "note"});
  return table;
}

runs::Table whole_table(const runs::Comparison& comparison, std::span<const runs::RunView> cands) {
  runs::Table table{{{.name = "candidate"},
                     {.name = "task"},
                     {.name = "slice"},
                     {.name = "metric"},
                     {.name = "higher_is_better", .type = CellType::boolean},
                     {.name = "pairs", .type = CellType::integer},
                     {.name = "clusters", .type = CellType::integer},
                     {.name = "base", .type = CellType::real},
                     {.name = "cand", .type = CellType::real},
                     {.name = "delta", .type = CellType::real},
                     {.name = "ci_low", .type = CellType::real},
                     {.name = "ci_high", .type = CellType::real},
                     {.name = "ci_method"},
                     {.name = "gain", .type = CellType::real},
                     {.name = "stderr", .type = CellType::real},
                     {.name = "worse", .type = CellType::integer},
                     {.name = "better", .type = CellType::integer},
                     {.name = "test"},
                     {.name = "p", .type = CellType::real},
                     {.name = "p_adj", .type = CellType::real},
                     {.name = "mde", .type = CellType::real},
                     {.name = "verdict"},
                     {.name = "best", .type = CellType::boolean},
                     {.name = "note"}},
                    {}};
  for (const ComparedRow& row : comparison.rows) {
    const auto interval = row.delta_interval();
    table.rows.push_back({cands[row.cand].run.run_id,
                          row.task,
                          row.slice,
                          row.metric,
                          row.higher_is_better,
                          row.result.n,
                          row.result.n_units,
                          row.base_mean,
                          row.cand_mean,
                          row.delta(),
                          interval ? Cell(interval->low) : Cell(),
                          interval ? Cell(interval->high) : Cell(),
                          row.result.ci_method.empty() ? Cell() : Cell(row.result.ci_method),
                          row.result.gain,
                          real(row.result.stderr_value),
                          row.result.n_worse,
                          row.result.n_better,
                          row.result.test,
                          row.result.p,
                          real(row.p_adj),
                          real(row.result.mde),
                          row.verdict,
                          row.best,
                          row.note});
  }
  return table;
}

// Digests are long: what differs is enough.
bool worth_showing(const std::string& name) {
  return name == "arch" || name == "sparse" || name == "dtype" || name == "kv_dtype" || name == "seed" ||
         name == "hayfork" || name == "model" || name == "engine";
}

}  // namespace

std::string signed_text(double value, int digits) {
  const std::string text = fmt::format("{:.{}f}", std::abs(value), digits);
  if (text.find_first_not_of("0.") == std::string::npos) return text;
  return (value < 0 ? "−" : "+") + text;
}

std::string interval_text(const std::optional<metrics::Interval>& interval, int digits) {
  if (!interval) return "";
  return fmt::format("[{}, {}]", signed_text(interval->low, digits), signed_text(interval->high, digits));
}

runs::Section comparison_section(const runs::Comparison& comparison, std::span<const runs::RunView> cands,
                                 bool people) {
  return {.name = "comparison", .table = people ? people_table(comparison, cands) : whole_table(comparison, cands)};
}

runs::Section flips_section(const runs::Comparison& comparison, std::span<const runs::RunView> cands,
                            runs::Store& store) {
  runs::Section section{.name = "flips",
                        .table = {{{.name = "candidate"},
                                   {.name = "task"},
                                   {.name = "doc_id"},
                                   {.name = "slice"},
                                   {.name = "base", .align = Align::right, .type = CellType::real, .digits = 3},
                                   {.name = "cand", .align = Align::right, .type = CellType::real, .digits = 3},
                                   {.name = "base_answer"},
                                   {.name = "cand_answer"},
                                   {.name = "target"},
                                   {.name = "base_sample", .align = Align::right, .type = CellType::integer},
                                   {.name = "cand_sample", .align = Align::right, .type = CellType::integer}},
                                  {}},
                        .title = "Flips, losses first"};
  for (const runs::Flip& flip : comparison.flips) {
    const runs::SampleRow base = store.show_sample(flip.base_sample).sample;
    const runs::SampleRow cand = store.show_sample(flip.cand_sample).sample;
    std::string slice;
    const auto add = [&slice](const std::string& text) { slice += (slice.empty() ? "" : ";") + text; };
    if (flip.ctx_len) add(fmt::format("ctx_len={}", *flip.ctx_len));
    if (flip.depth_pct) add(fmt::format("depth_pct={}", *flip.depth_pct));
    if (flip.subtask) add("subtask=" + *flip.subtask);
    section.table.rows.push_back({cands[flip.cand].run.run_id, flip.task, base.doc_id, slice, flip.base_score,
                                  flip.cand_score, cell(base.answer), cell(cand.answer), cell(base.target),
                                  flip.base_sample, flip.cand_sample});
  }
  return section;
}

std::vector<std::string> identity_lines(const runs::Comparison& comparison, std::span<const runs::RunView> cands) {
  std::vector<std::string> lines;
  for (size_t c = 0; c < comparison.identity.size(); ++c) {
    std::string differs, same, unknown;
    for (const runs::IdentityColumn& column : comparison.identity[c]) {
      const bool neither = column.base == "unknown" && column.cand == "unknown";
      std::string& list = column.same ? same : neither ? unknown : differs;
      list += (list.empty() ? "" : ", ") + column.name;
      if (!column.same && !neither && worth_showing(column.name))
        list += fmt::format(" ({}→{})", column.base, column.cand);
    }
    const std::string who = cands.size() > 1 ? cands[c].run.run_id + " " : "";
    lines.push_back(fmt::format("{}differs: {}.  same: {}", who, differs.empty() ? "nothing" : differs,
                                same.empty() ? "nothing" : same) +
                    (unknown.empty() ? "" : ".  unknown: " + unknown));
  }
  return lines;
}

runs::Section identity_section(const runs::Comparison& comparison, std::span<const runs::RunView> cands) {
  runs::Section section{.name = "identity",
                        .table = {{{.name = "candidate"},
                                   {.name = "column"},
                                   {.name = "base"},
                                   {.name = "cand"},
                                   {.name = "same", .type = CellType::boolean}},
                                  {}}};
  for (size_t c = 0; c < comparison.identity.size(); ++c) {
    for (const runs::IdentityColumn& column : comparison.identity[c])
      section.table.rows.push_back({cands[c].run.run_id, column.name, column.base, column.cand, column.same});
  }
  return section;
}

}  // namespace hayfork::cli
