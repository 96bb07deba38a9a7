// Scores over context length: a curve a model with its 95 % band, RULER first; how far each model reaches.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/units.h"
#include "metrics/stats.h"
#include "runs/report/heatmap.h"
#include "runs/report/site/pages.h"

namespace hayfork::runs {
namespace {

constexpr double kRulerThreshold = 0.856;  // Llama2-7B at 4K: RULER, Hsieh et al. 2024, section 4

struct LengthPoint {
  int64_t length = 0, n = 0;
  double value = 0;
  OptReal low, high, real_tokens;
};

struct Curve {
  std::string label, run_id, arch;
  std::vector<LengthPoint> points;  // by length
};

struct Panel {
  std::string task, metric;
  bool higher_is_better = true, ruler = false, group = false;
  std::vector<Curve> curves;
};

std::optional<int64_t> length_of(const std::string& slice) {
  constexpr std::string_view kKey = "ctx_len=";
  if (!slice.starts_with(kKey)) return std::nullopt;
  int64_t length = 0;
  const auto [end, error] = std::from_chars(slice.data() + kKey.size(), slice.data() + slice.size(), length);
  return error == std::errc{} && end == slice.data() + slice.size() ? std::optional(length) : std::nullopt;
}

// What the task itself stored by length, with its intervals; where it stored none, means of the samples.
std::vector<LengthPoint> points_of(Store& store, const RunTaskView& task) {
  std::map<int64_t, LengthPoint> points;
  for (const MetricRow& row : task.metrics) {
    const auto length = length_of(row.slice);
    if (!length || !row.value || row.metric != task.task.primary_metric || row.filter != "none") continue;
    points[*length] = {*length, row.n, *row.value, row.ci_low, row.ci_high, {}};
  }
  const bool stored = !points.empty();
  for (const LengthRow& row : store.lengths(task.row.id)) {
    if (!row.ctx_len || !row.mean || row.n == 0) continue;
    if (!stored) points[*row.ctx_len] = {*row.ctx_len, row.n, *row.mean, {}, {}, {}};
    if (const auto at = points.find(*row.ctx_len); at != points.end()) at->second.real_tokens = row.prompt_tokens;
  }
  std::vector<LengthPoint> out;
  for (const auto& [length, point] : points) out.push_back(point);
  return out;
}

std::vector<Panel> panels_of(PageContext& page) {
  std::vector<Panel> out;
  std::map<std::string, size_t> at;
  for (const CrossSource& model : page.models) {
    std::set<std::string> seen;
    for (const RunView& run : model.runs) {
      for (const RunTaskView& task : run.tasks) {
        if (!seen.insert(task.task.name).second) continue;
        std::vector<LengthPoint> points = points_of(page.store, task);
        if (points.size() < 2) continue;
        const auto [it, fresh] = at.try_emplace(task.task.name, out.size());
        if (fresh)
          out.push_back({task.task.name,
                         task.task.primary_metric,
                         task.task.higher_is_better,
                         task.task.family == "ruler",
                         task.task.kind == "group",
                         {}});
        out[it->second].curves.push_back({model.label, run.run.run_id, run.model.arch.value_or(""), std::move(points)});
      }
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Panel& a, const Panel& b) { return a.group > b.group; });
  return out;
}

std::vector<int64_t> lengths_of(const Panel& panel) {
  std::set<int64_t> all;
  for (const Curve& curve : panel.curves) {
    for (const LengthPoint& point : curve.points) all.insert(point.length);
  }
  return {all.begin(), all.end()};
}

std::string interval(const LengthPoint& p) {
  return p.low && p.high ? fmt::format("{:.3f}–{:.3f}", *p.low, *p.high) : "–";
}

// The largest length such that every tested length up to it holds the threshold; with the lower bounds, surely.
std::optional<int64_t> effective_length(const Curve& curve, double threshold, bool surely) {
  std::optional<int64_t> reached;
  for (const LengthPoint& point : curve.points) {
    const OptReal value = surely ? point.low : OptReal(point.value);
    if (!value || !(surely ? *value >= threshold : *value > threshold)) break;
    reached = point.length;
  }
  return reached;
}

Graphic draw(PageContext& page, const Panel& panel, double width) {
  double low = 0, high = 1;
  bool share = true;
  for (const Curve& curve : panel.curves) {
    for (const LengthPoint& p : curve.points) {
      share = share && p.value >= 0 && p.value <= 1;
      low = std::min(low, p.low.value_or(p.value));
      high = std::max(high, p.high.value_or(p.value));
    }
  }
  const std::vector<int64_t> lengths = lengths_of(panel);
  Chart chart(width, 250, length_axis("context length (tokens)", lengths),
              linear_axis(panel.metric + (panel.higher_is_better ? " ↑" : " ↓"), low, high, share));
  if (panel.ruler && share) chart.horizontal(kRulerThreshold, "85.6 %");
  std::string finding;
  for (const Curve& curve : panel.curves) {
    const Mark& mark = page.marks.of(curve.label, curve.arch);
    std::vector<ChartPoint> line, below, above;
    for (const LengthPoint& p : curve.points) {
      const auto x = static_cast<double>(p.length);
      line.push_back({x, p.value});
      if (!p.low || !p.high) continue;
      below.push_back({x, *p.low});
      above.push_back({x, *p.high});
    }
    chart.band(below, above, mark.colour);
    chart.line(line, mark);
    for (const LengthPoint& p : curve.points) {
      std::string tip = fmt::format("{}, {}: {} {:.3f}", curve.label, length_label(p.length), panel.metric, p.value);
      if (p.low) tip += "\n95 % " + interval(p);
      tip += fmt::format(", n {}", p.n);
      if (p.real_tokens) tip += fmt::format("\n{:.0f} prompt tokens on average", *p.real_tokens);
      chart.point(static_cast<double>(p.length), p.value, mark, tip);
    }
    finding +=
        fmt::format("{}: {:.3f} at {}, {:.3f} at {}. ", curve.label, line.front().y,
                    length_label(curve.points.front().length), line.back().y, length_label(curve.points.back().length));
  }
  return chart.draw(page.chart_id(), panel.task + ": " + panel.metric + " by context length", finding);
}

void numbers(const Panel& panel, Html& html) {
  PlainTable table{"as a table",
                   {"model", "run", "length", "real tokens", panel.metric, "95 % interval", "n"},
                   {false, false, true, true, true, true, true},
                   {}};
  for (const Curve& curve : panel.curves) {
    for (const LengthPoint& p : curve.points)
      table.rows.push_back({curve.label, curve.run_id, format_count(p.length),
                            p.real_tokens ? fmt::format("{:.0f}", *p.real_tokens) : "–", fmt::format("{:.4f}", p.value),
                            interval(p), format_count(p.n)});
  }
  details_table(html, table);
}

void figure(PageContext& page, const Panel& panel, double width, Html& html) {
  html.open("figure");
  html.open("figcaption");
  html.text(panel.task);
  html.close();
  html.open("div", {{"class", "scroll"}});
  html.graphic(draw(page, panel, width));
  html.close();
  numbers(panel, html);
  html.close();
}

void reach(const std::vector<Panel>& panels, Html& html) {
  PlainTable table{"",
                   {"task", "model", "effective length", "surely (lower bounds)", "longest tested"},
                   {false, false, true, true, true},
                   {}};
  const auto text = [](const std::optional<int64_t>& length) { return length ? length_label(*length) : "none"; };
  for (const Panel& panel : panels) {
    if (!panel.ruler) continue;
    for (const Curve& curve : panel.curves)
      table.rows.push_back({panel.task, curve.label, text(effective_length(curve, kRulerThreshold, false)),
                            text(effective_length(curve, kRulerThreshold, true)),
                            length_label(curve.points.back().length)});
  }
  if (table.rows.empty()) return;
  html.element("h2", "Effective length");
  html.element(
      "p", {{"class", "note"}},
      "The largest length such that every tested length up to it scores above 85.6 %; surely, where the interval's "
      "lower bound does.");
  plain_table(html, table);
}

}  // namespace

void lengths_page(PageContext& page, Html& html) {
  page_title(html, "Scores over context length", "One curve a model, with its 95 % interval as a band.");
  const std::vector<Panel> panels = panels_of(page);
  if (panels.empty())
    return empty_state(html, "No finished run has a task at two lengths or more.",
                       "hayfork run --model DIR --tasks ruler --lengths 4k-32k*2");
  std::set<std::string> drawn;
  for (const Panel& panel : panels) {
    for (const Curve& curve : panel.curves) drawn.insert(curve.label);
  }
  model_legend(page, html, drawn);
  html.open("div", {{"class", "panels"}});
  for (const Panel& panel : panels) figure(page, panel, 360, html);
  html.close();
  reach(panels, html);
}

}  // namespace hayfork::runs
