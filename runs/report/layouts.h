// Tables as papers have them: which columns, filled from which task and metric, and the rows that were published
// (arXiv papers, named in each layout). Published figures are data for a reader to
// look at beside his own; nothing is computed from them but the means that check them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hayfork::runs {

struct LayoutColumn {
  std::string title;
  std::vector<std::string> tasks;  // the first that a run has; empty with `mean`: the mean of all columns before it
  std::string metric = {};         // empty: the task's primary one
  bool only_metric = false;        // a task without it has no value; else its primary one stands in
  std::string slice = {};
  bool mean = false;
  // Of timings instead of scores (tasks empty): a figure of the bench row with these sizes.
  enum class Timing { none, ttft, end_to_end, output, decode, speedup } timing = Timing::none;
  int64_t n_prompt = 0, n_gen = 0, batch = 0, depth = 0;
  bool higher_is_better = true;
  double scale = 100;  // scores are shares, tables have percents
  int digits = 2;
};

struct PublishedRow {
  std::string group, model;  // group: "1.3B", "Llama3.1-8B"; rows of one group are compared with each other
  std::vector<std::optional<double>> values;  // one a column, as printed
};

struct Layout {
  std::string name, title, source;
  std::vector<std::string> notes;
  std::vector<LayoutColumn> columns;
  std::vector<PublishedRow> published;
  bool layers = false;  // a row a sparse configuration, a column a layer: see sparse-table6
};

const std::vector<Layout>& layouts();
const Layout& find_layout(std::string_view name);  // Throws: usage, listing them

// What is wrong with the printed means: "Transformer: printed 53.41, the columns give 53.46". Tolerance 0.006 of the
// last digit's unit beyond its half (two means of the sources sit on a rounding edge).
std::vector<std::string> check_published(const Layout& layout);

}  // namespace hayfork::runs
