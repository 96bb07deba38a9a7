// The nine pages, one file each: <name>_page.cc. Each writes what stands between the frame's header and footer, in
// either form (a file of its own, or a section among others). For runs/report/site/ alone.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runs/page_reader.h"
#include "runs/report/cross_table.h"
#include "runs/report/site/arch_mark.h"
#include "runs/report/site/chart.h"
#include "runs/report/site/html.h"
#include "runs/report/site/site.h"

namespace hayfork::runs {

// What every page is made from. Pages add nothing to it.
struct PageContext {
  Store& store;
  PageReader& reader;
  const SiteOptions& options;
  std::vector<RunView> runs;        // newest first
  std::set<std::string> run_ids;    // of `runs`
  std::optional<RunView> baseline;  // what others are compared with; may lie outside `runs`
  std::string baseline_why;         // "the baseline named main", "the oldest run shown"
  std::vector<CrossSource> models;  // finished runs by model, oldest model first
  ArchMarks marks;
  bool single_file = false;
  int n_charts = 0;

  // "niah.html#a" or, in one file, "#a" ("#niah" without an anchor).
  std::string href(const std::string& page, const std::string& anchor = "") const;
  bool has_run(const std::string& run_id) const { return run_ids.contains(run_id); }
  void run_link(Html& html, const std::string& run_id) const;  // plain text when it has no page
  std::string chart_id() { return "chart" + std::to_string(++n_charts); }
  // The newest finished run of a model and its sparse configuration that has the task; null without one.
  static const RunView* run_with(const CrossSource& model, const std::string& task);
};

void index_page(PageContext& page, Html& html);
void niah_page(PageContext& page, Html& html);
void lengths_page(PageContext& page, Html& html);
void architectures_page(PageContext& page, Html& html);
void scaling_page(PageContext& page, Html& html);
void timeline_page(PageContext& page, Html& html);
void search_page(PageContext& page, Html& html);
void run_page(PageContext& page, const RunView& run, Html& html);
void samples_page(PageContext& page, const RunView& run, Html& html);

// ---- Pieces that pages share (pieces.cc) ---------------------------------------------------------------------------

void page_title(Html& html, const std::string& title, const std::string& below);
// "Nothing to show": what is missing and the command that makes it.
void empty_state(Html& html, const std::string& what, const std::string& how);
// A table of texts; `right` columns are numbers. With a caption it lies in <details>.
struct PlainTable {
  std::string caption;
  std::vector<std::string> columns;
  std::vector<bool> right;
  std::vector<std::vector<std::string>> rows;
};
void details_table(Html& html, const PlainTable& table);
void plain_table(Html& html, const PlainTable& table);
// A badge with a word: "pass", "worse", "failed", …; its colour goes with the word, which is always there.
void badge(Html& html, const std::string& word);
struct LegendEntry {
  std::string label;
  Mark mark;
};
void legend(Html& html, const std::vector<LegendEntry>& entries);
// Of the models that a page draws, in their order.
void model_legend(PageContext& page, Html& html, const std::set<std::string>& labels);
std::string signed_number(double value, int digits);  // "+0.127", "−0.019", "0"
std::string short_time(const std::string& iso);       // "2026-11-30 13:35"

}  // namespace hayfork::runs
