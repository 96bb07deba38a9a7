// A forest of differences: every model against the baseline, task by task, long contexts apart from short ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "runs/compare.h"
#include "runs/report/site/pages.h"
#include "runs/report/svg.h"

namespace hayfork::runs {
namespace {

constexpr double kWidth = 190, kEdge = 8;

struct Difference {
  std::string model, arch, run_id;
  ComparedRow row;
  bool is_long = false;
};

struct Found {
  std::vector<Difference> rows;
  std::vector<std::string> refused;  // what could not be compared, and why
};

// Tasks whose samples have a context length are the long ones.
bool is_long(const RunView& run, const std::string& task) {
  const RunTaskView* view = find_run_task(run, task);
  if (view == nullptr) return false;
  if (view->task.family == "ruler" || view->task.family == "niah" || view->task.kind == "longppl") return true;
  return std::any_of(view->metrics.begin(), view->metrics.end(),
                     [](const MetricRow& row) { return row.slice.starts_with("ctx_len="); });
}

void compare_task(PageContext& page, const CrossSource& model, const std::string& task, Found& out) {
  const RunView* run = PageContext::run_with(model, task);
  if (run == nullptr) return;
  CompareOptions options;
  options.tasks = {task};
  options.groups = page.options.groups;
  options.allow_partial = true;
  try {
    const Comparison comparison = compare_runs(page.store, *page.baseline, std::span(run, 1), options);
    for (const ComparedRow& row : comparison.rows)
      out.rows.push_back({model.label, run->model.arch.value_or(""), run->run.run_id, row, is_long(*run, task)});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::usage) throw;
    out.refused.push_back(model.label + ", " + task + ": " + error.summary() +
                          (error.detail().why.empty() ? "" : " (" + error.detail().why + ")"));
  }
}

// Holm over every test of the page; too few pairs are no test.
void adjust_together(std::vector<Difference>& rows) {
  std::vector<Difference*> tested;
  std::vector<double> p;
  for (Difference& d : rows) {
    if (!d.row.p_adj) continue;
    tested.push_back(&d);
    p.push_back(d.row.result.p);
  }
  const std::vector<double> adjusted = metrics::holm(p);
  for (size_t i = 0; i < tested.size(); ++i) {
    tested[i]->row.p_adj = adjusted[i];
    tested[i]->row.verdict = metrics::verdict(tested[i]->row.result, adjusted[i], 0.05);
  }
}

Found compare_all(PageContext& page) {
  Found out;
  for (const RunTaskView& task : page.baseline->tasks) {
    for (const CrossSource& model : page.models) {
      const bool same = model.runs.front().model.id == page.baseline->model.id &&
                        model.runs.front().run.sparse_id == page.baseline->run.sparse_id;
      if (!same) compare_task(page, model, task.task.name, out);
    }
  }
  adjust_together(out.rows);
  return out;
}

double place(double v, double reach) {
  return kWidth / 2 + std::clamp(v / reach, -1.0, 1.0) * (kWidth / 2 - kEdge);
}

// Point and interval of a gain around 0; an arrow where the interval goes on.
Graphic interval_svg(const Difference& d, double reach, const Mark& mark) {
  const double gain = d.row.result.gain;
  std::string out = fmt::format("<path class=\"zero\" d=\"M{0} 0L{0} 26\"/>", coordinate(kWidth / 2));
  if (d.row.result.interval) {
    const double low = place(d.row.result.interval->low, reach), high = place(d.row.result.interval->high, reach);
    out +=
        fmt::format("<path class=\"whisker k{}\" d=\"M{} 13L{} 13\"/>", mark.colour, coordinate(low), coordinate(high));
  }
  out += marker(place(gain, reach), 13, mark);
  return Graphic(fmt::format("<svg width=\"{0}\" height=\"26\" viewBox=\"0 0 {0} 26\" aria-hidden=\"true\">{1}</svg>",
                             coordinate(kWidth), out));
}

Graphic scale_svg(double reach) {
  std::string out;
  for (const double at : {-1.0, -0.5, 0.0, 0.5, 1.0}) {
    const double x = place(at * reach, reach);
    out += fmt::format("<path class=\"axis\" d=\"M{0} 0L{0} 4\"/>", coordinate(x));
    if (at == -0.5 || at == 0.5) continue;
    out += svg_text(x, 17, signed_number(at * reach, reach < 0.1 ? 3 : 2),
                    {12,
                     at < 0   ? "start"
                     : at > 0 ? "end"
                              : "middle",
                     "soft"});
  }
  return Graphic(
      fmt::format("<svg width=\"{0}\" height=\"20\" viewBox=\"0 0 {0} 20\" aria-hidden=\"true\"><path class=\"axis\" "
                  "d=\"M0 0L{0} 0\"/>{1}</svg>",
                  coordinate(kWidth), out));
}

void row(PageContext& page, const Difference& d, double reach, Html& html) {
  const metrics::PairedResult& r = d.row.result;
  html.open("tr");
  html.open("th", {{"scope", "row"}});
  if (page.has_run(d.run_id))
    html.link(page.href("run-" + page_stem(d.run_id)), d.model);
  else
    html.text(d.model);
  html.close();
  html.open("td");
  html.graphic(interval_svg(d, reach, page.marks.of(d.model, d.arch)));
  html.close();
  html.element("td", {{"class", "num nowrap"}}, signed_number(r.gain, 3));
  html.element("td", {{"class", "num nowrap opt"}},
               r.interval ? signed_number(r.interval->low, 3) + " … " + signed_number(r.interval->high, 3) : "–");
  html.open("td");
  badge(html, d.row.verdict);
  html.close();
  html.element("td", {{"class", "num opt"}}, d.row.p_adj ? fmt::format("{:.3g}", *d.row.p_adj) : "–");
  html.element("td", {{"class", "num opt"}}, fmt::format("{}", r.n));
  html.element("td", {{"class", "num opt"}}, fmt::format("−{} / +{}", r.n_worse, r.n_better));
  html.element("td", {{"class", "num opt"}}, r.mde ? fmt::format("{:.3f}", *r.mde) : "–");
  html.close();
}

// The rows of one task, on a scale of their own: metrics have different units.
void task_rows(PageContext& page, std::span<const Difference* const> rows, Html& html) {
  double reach = 0.02;
  for (const Difference* d : rows) {
    const metrics::PairedResult& r = d->row.result;
    reach = std::max(reach, std::abs(r.gain));
    if (r.interval) reach = std::max({reach, std::abs(r.interval->low), std::abs(r.interval->high)});
  }
  html.open("tr", {{"class", "head"}});
  html.element("th", {{"scope", "rowgroup"}, {"colspan", "9"}}, rows[0]->row.task + ", " + rows[0]->row.metric);
  html.close();
  for (const Difference* d : rows) row(page, *d, reach, html);
  html.open("tr");
  html.element("td", "");
  html.open("td");
  html.graphic(scale_svg(reach));
  html.close();
  html.close();
}

void forest(PageContext& page, const std::vector<Difference>& all, bool want_long, Html& html) {
  std::vector<const Difference*> rows;
  for (const Difference& d : all) {
    if (d.is_long == want_long) rows.push_back(&d);
  }
  if (rows.empty()) return;
  html.element("h2", want_long ? "Long context" : "Short context");
  html.open("div", {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", "Differences"}});
  html.open("table", {{"class", "forest"}});
  html.open("thead");
  html.open("tr");
  html.element("th", {{"scope", "col"}}, "model");
  html.element("th", {{"scope", "col"}}, "← worse · better →");
  html.element("th", {{"scope", "col"}, {"class", "num"}}, "gain");
  html.element("th", {{"scope", "col"}, {"class", "num opt"}}, "95 % interval");
  html.element("th", {{"scope", "col"}}, "verdict");
  for (const char* name : {"p adjusted", "pairs", "flips", "mde"})
    html.element("th", {{"scope", "col"}, {"class", "num opt"}}, name);
  html.close();
  html.close();
  html.open("tbody");
  for (size_t from = 0, to = 0; from < rows.size(); from = to) {
    while (to < rows.size() && rows[to]->row.task == rows[from]->row.task) ++to;
    task_rows(page, std::span(rows).subspan(from, to - from), html);
  }
  html.close();
  html.close();
  html.close();
}

}  // namespace

void architectures_page(PageContext& page, Html& html) {
  page_title(html, "Across architectures",
             page.baseline ? fmt::format("Every model against {} ({}, {}): paired differences, right is better.",
                                         page.baseline->model.name, page.baseline->run.run_id, page.baseline_why)
                           : "");
  if (!page.baseline || page.models.size() < 2)
    return empty_state(html, "Nothing to compare: it takes finished runs of two models.",
                       "hayfork baseline set main RUN");
  const Found found = compare_all(page);
  if (found.rows.empty() && found.refused.empty())
    return empty_state(html, "No other model has a task of the baseline.", "hayfork list runs");
  forest(page, found.rows, true, html);
  forest(page, found.rows, false, html);
  html.element(
      "p", {{"class", "note"}},
      "Gain: mean over the pairs, positive is better whatever the metric's direction; interval: BCa bootstrap; p: "
      "exact or sign-flip test, Holm-adjusted over this page; mde: the difference that four of five "
      "repetitions would find.");
  if (found.refused.empty()) return;
  html.element("h2", "Not comparable");
  html.open("ul", {{"class", "events"}});
  for (const std::string& line : found.refused) html.element("li", line);
  html.close();
}

}  // namespace hayfork::runs
