// Models × tasks: every row one model (or run), every column a task's aggregate with its interval, the best of a column
// marked where the paired, adjusted test against every other row says so. Missing is missing, never 0.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "metrics/paired.h"
#include "runs/report/layouts.h"
#include "runs/report/table.h"
#include "runs/store.h"

namespace hayfork::runs {

struct CrossSource {
  std::string label;
  std::vector<RunView> runs;  // the first that has a column's task fills it
};

struct CrossCell {
  OptReal value, ci_low, ci_high;  // unscaled
  int64_t n = 0;
  bool best = false;
  bool comparable = true;  // false: another protocol, prompt, few-shot or chat form than the rest of the column
  std::string run_id;
};

struct CrossRow {
  std::string label, group;
  OptText arch;
  OptInt n_params, train_tokens;
  bool published = false;
  bool other_input = false;  // another tokenizer or dtype than the first row's
  std::vector<CrossCell> cells;
};

struct CrossTable {
  std::vector<LayoutColumn> columns;  // with scale and digits settled
  std::vector<CrossRow> rows;
  std::vector<std::string> notes;
};

struct CrossOptions {
  std::map<std::string, std::vector<std::string>> groups;  // members, for the tests of groups
  bool best = true;
  metrics::PairedOptions paired;
};

// A source for each model of the database that has a finished or imported run, its runs newest first.
std::vector<CrossSource> model_sources(Store& store, const RunFilter& filter);
// The same of runs at hand, newest first.
std::vector<CrossSource> model_sources(std::vector<RunView> runs);
// Columns for tasks by name; none given: every task that a source has, in order, members of groups left out.
std::vector<LayoutColumn> task_columns(std::span<const CrossSource> sources, const std::vector<std::string>& tasks,
                                       const std::map<std::string, std::vector<std::string>>& groups);
CrossTable cross_table(Store& store, std::span<const CrossSource> sources, std::vector<LayoutColumn> columns,
                       const CrossOptions& options);
// The layout's own rows at the end, in its units; and what their printed means say of themselves.
void add_published(const Layout& layout, CrossTable& table);
// Window and budget of each layer that a run's sparse configuration names.
Table layer_table(std::span<const CrossSource> sources);

// A row a model with "53.41* [50.1, 56.7] n=570"; `intervals` false: values and marks alone.
Table people_table(const CrossTable& table, bool intervals);
// "53.41": a cell's figure as people_table shows it; "1.30B".
std::string column_text(double value, const LayoutColumn& column);
std::string count_text(const OptInt& n);
// A row a cell, unrounded.
Table long_table(const CrossTable& table);

}  // namespace hayfork::runs
