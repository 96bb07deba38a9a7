// Metrics over training steps or time, a chart a series and task; what the gate said of each point.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/units.h"
#include "runs/report/site/pages.h"

namespace hayfork::runs {
namespace {

struct Series {
  std::string name, task, metric;
  bool higher_is_better = true;
  std::vector<TimelineRow> rows;  // oldest first
  bool by_step = false;
};

const Mark& verdict_mark(const OptText& verdict) {
  static const Mark kBetter{2, Shape::triangle}, kWorse{1, Shape::down}, kSame{0, Shape::circle},
      kUnsure{6, Shape::circle, "", true};
  if (!verdict || *verdict == "too few") return kUnsure;
  if (*verdict == "better") return kBetter;
  if (*verdict == "worse") return kWorse;
  return kSame;
}

std::vector<Series> series_of(PageContext& page) {
  std::vector<Series> out;
  for (TimelineRow& row : page.reader.timeline()) {
    if (!row.value || !page.has_run(row.run_id)) continue;
    const std::string name = row.series.value_or(row.model);
    if (out.empty() || out.back().name != name || out.back().task != row.task)
      out.push_back({name, row.task, row.metric, row.higher_is_better, {}, false});
    out.back().rows.push_back(std::move(row));
  }
  std::erase_if(out, [](const Series& s) { return s.rows.size() < 2; });
  for (Series& s : out) {
    std::set<int64_t> steps;
    for (const TimelineRow& row : s.rows) {
      if (row.train_step) steps.insert(*row.train_step);
    }
    s.by_step = steps.size() == s.rows.size();
    if (!s.by_step)
      std::stable_sort(s.rows.begin(), s.rows.end(),
                       [](const TimelineRow& a, const TimelineRow& b) { return a.created_at < b.created_at; });
  }
  return out;
}

double x_of(const Series& series, size_t i) {
  return series.by_step ? static_cast<double>(*series.rows[i].train_step) : static_cast<double>(i);
}

std::string tip_of(const Series& series, size_t i) {
  const TimelineRow& row = series.rows[i];
  std::string tip = fmt::format("{}, {}: {} {:.4g}", row.run_id, short_time(row.created_at), row.metric, *row.value);
  if (row.ci_low && row.ci_high) tip += fmt::format("\n95 % {:.4g}–{:.4g}, n {}", *row.ci_low, *row.ci_high, row.n);
  if (row.train_step) tip += "\nstep " + format_count(*row.train_step);
  if (row.verdict) tip += fmt::format("\n{} against {}", *row.verdict, row.base_run.value_or("?"));
  if (row.p_adj) tip += fmt::format(", p {:.3g}", *row.p_adj);
  if (row.n_pairs) tip += fmt::format(", {} pairs", *row.n_pairs);
  if (i > 0 && row.git_commit && series.rows[i - 1].git_commit && *row.git_commit != *series.rows[i - 1].git_commit)
    tip += fmt::format("\ncommits {}..{}", series.rows[i - 1].git_commit->substr(0, 7), row.git_commit->substr(0, 7));
  return tip;
}

// The largest step between neighbours whose intervals do not overlap. A hint, not a test.
std::string change_hint(const Series& series) {
  size_t at = 0;
  double largest = 0;
  for (size_t i = 1; i < series.rows.size(); ++i) {
    const TimelineRow &a = series.rows[i - 1], &b = series.rows[i];
    if (!a.ci_low || !a.ci_high || !b.ci_low || !b.ci_high) continue;
    const bool apart = *a.ci_high < *b.ci_low || *b.ci_high < *a.ci_low;
    if (!apart || std::abs(*b.value - *a.value) <= largest) continue;
    largest = std::abs(*b.value - *a.value);
    at = i;
  }
  if (at == 0) return "No two neighbours have intervals that part.";
  return fmt::format("Largest step: {} from {} to {} ({}), where the intervals part. A hint, not a test.",
                     signed_number(*series.rows[at].value - *series.rows[at - 1].value, 3), series.rows[at - 1].run_id,
                     series.rows[at].run_id, short_time(series.rows[at].created_at));
}

Axis x_axis(const Series& series) {
  if (series.by_step) {
    Axis axis = linear_axis("training step", x_of(series, 0), x_of(series, series.rows.size() - 1));
    for (Tick& tick : axis.ticks) tick.label = unit_label(tick.at);
    return axis;
  }
  std::vector<std::string> labels;
  for (const TimelineRow& row : series.rows)
    labels.push_back(row.created_at.size() < 10 ? row.created_at : row.created_at.substr(5, 5));
  return index_axis("run, by date", std::move(labels));
}

Graphic draw(PageContext& page, const Series& series, const std::vector<BaselineRow>& baselines) {
  double low = INFINITY, high = -INFINITY;
  std::vector<ChartPoint> line;
  for (size_t i = 0; i < series.rows.size(); ++i) {
    const TimelineRow& row = series.rows[i];
    low = std::min(low, row.ci_low.value_or(*row.value));
    high = std::max(high, row.ci_high.value_or(*row.value));
    line.push_back({x_of(series, i), *row.value});
  }
  Chart chart(360, 240, x_axis(series),
              linear_axis(series.metric + (series.higher_is_better ? " ↑" : " ↓"), low, high));
  for (size_t i = 0; i < series.rows.size(); ++i) {
    for (const BaselineRow& baseline : baselines) {
      if (baseline.run && *baseline.run == series.rows[i].run) chart.vertical(x_of(series, i), baseline.name);
    }
  }
  chart.line(line, {6, Shape::circle, "1 3"});
  for (size_t i = 0; i < series.rows.size(); ++i) {
    const TimelineRow& row = series.rows[i];
    const Mark& mark = verdict_mark(row.verdict);
    if (row.ci_low && row.ci_high) chart.whisker(line[i].x, *row.ci_low, *row.ci_high, mark.colour);
    chart.point(line[i].x, line[i].y, mark, tip_of(series, i), page.href("run-" + page_stem(row.run_id)));
  }
  return chart.draw(page.chart_id(), series.name + ", " + series.task, change_hint(series));
}

void numbers(const Series& series, Html& html) {
  PlainTable table{"as a table",
                   {"run", "when", "step", series.metric, "95 % interval", "n", "verdict", "p adjusted"},
                   {false, false, true, true, true, true, false, true},
                   {}};
  for (const TimelineRow& row : series.rows)
    table.rows.push_back({row.run_id, short_time(row.created_at), row.train_step ? format_count(*row.train_step) : "–",
                          fmt::format("{:.4f}", *row.value),
                          row.ci_low && row.ci_high ? fmt::format("{:.4f}–{:.4f}", *row.ci_low, *row.ci_high) : "–",
                          format_count(row.n), row.verdict.value_or("–"),
                          row.p_adj ? fmt::format("{:.3g}", *row.p_adj) : "–"});
  details_table(html, table);
}

}  // namespace

void timeline_page(PageContext& page, Html& html) {
  page_title(html, "Timeline",
             "Primary metrics of each series, over training steps where runs say them, else over time.");
  const std::vector<Series> all = series_of(page);
  if (all.empty())
    return empty_state(html, "No series has two runs of the same task.",
                       "hayfork describe RUN --series NAME --train-step N");
  legend(html, {{"better than the baseline", verdict_mark("better")},
                {"no difference seen", verdict_mark("same")},
                {"worse", verdict_mark("worse")},
                {"not judged, or too few pairs", verdict_mark({})}});
  const std::vector<BaselineRow> baselines = page.reader.baseline_history();
  std::string name;
  bool open = false;
  for (const Series& series : all) {
    if (series.name != name) {
      if (open) html.close();
      name = series.name;
      html.element("h2", name);
      html.open("div", {{"class", "panels"}});
      open = true;
    }
    html.open("figure");
    html.element("figcaption", series.task);
    html.open("div", {{"class", "scroll"}});
    html.graphic(draw(page, series, baselines));
    html.close();
    html.element("p", {{"class", "note"}}, change_hint(series));
    numbers(series, html);
    html.close();
  }
  html.close();
}

}  // namespace hayfork::runs
