// Searches over sparse configurations: quality against speed, the front with its picks, and what each layer got.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runs/report/site/pages.h"
#include "runs/report/svg.h"

namespace hayfork::runs {
namespace {

struct Placed {
  SearchPointRow row;
  double speed = 1;  // cost of the slowest point ÷ its own
  std::string pick;
};

// Points that were measured, slowest first.
std::vector<Placed> placed_points(Store& store, int64_t search) {
  std::vector<Placed> out;
  double slowest = 0;
  for (SearchPointRow& row : store.search_points(search)) {
    if (!row.quality || !row.cost_ms || !(*row.cost_ms > 0)) continue;
    slowest = std::max(slowest, *row.cost_ms);
    out.push_back({std::move(row), 1, ""});
  }
  for (Placed& p : out) p.speed = slowest / *p.row.cost_ms;
  std::stable_sort(out.begin(), out.end(), [](const Placed& a, const Placed& b) { return a.speed < b.speed; });
  return out;
}

// Of the front: the best quality, the fastest, and the one farthest from the line between these two.
void name_picks(std::vector<Placed>& points) {
  std::vector<Placed*> front;
  for (Placed& p : points) {
    if (p.row.on_front) front.push_back(&p);
  }
  if (front.empty()) return;
  Placed* best = *std::max_element(front.begin(), front.end(),
                                   [](const Placed* a, const Placed* b) { return *a->row.quality < *b->row.quality; });
  Placed* fastest = front.back();
  best->pick = "accuracy";
  if (fastest == best) return;
  fastest->pick = "speed";
  const double dq = *best->row.quality - *fastest->row.quality, ds = fastest->speed - best->speed;
  if (!(dq > 0) || !(ds > 0)) return;
  Placed* middle = nullptr;
  double most = 0.02;  // nearly straight: no knee
  for (Placed* p : front) {
    const double above = (*p->row.quality - *fastest->row.quality) / dq + (p->speed - best->speed) / ds - 1;
    if (p->pick.empty() && above > most) most = above, middle = p;
  }
  if (middle != nullptr) middle->pick = "balanced";
}

std::string tip_of(const Placed& p) {
  std::string tip = fmt::format("point {}: quality {}, {:.2f}× as fast ({:.4g} ms)", p.row.n,
                                signed_number(*p.row.quality, 4), p.speed, *p.row.cost_ms);
  if (p.row.quality_lo) tip += "\nlower bound " + signed_number(*p.row.quality_lo, 4);
  if (p.row.held_out) tip += "\nheld-out samples " + signed_number(*p.row.held_out, 4);
  if (p.row.generation) tip += fmt::format("\ngeneration {}", *p.row.generation);
  if (!p.pick.empty()) tip += "\npick: " + p.pick;
  return tip;
}

Graphic scatter(PageContext& page, const std::vector<Placed>& points, const std::string& title) {
  double low = INFINITY, high = -INFINITY;
  for (const Placed& p : points) {
    low = std::min(low, p.row.quality_lo.value_or(*p.row.quality));
    high = std::max(high, *p.row.quality);
  }
  Chart chart(360, 280, linear_axis("speed-up over the slowest point", 1, points.back().speed),
              linear_axis("quality", low, high));
  const Mark front{4, Shape::star, "", false}, other{6, Shape::circle, "", true};
  std::vector<ChartPoint> line;
  for (const Placed& p : points) {
    if (p.row.on_front) line.push_back({p.speed, *p.row.quality});
  }
  chart.line(line, front);
  for (const bool on_front : {false, true}) {
    for (const Placed& p : points) {
      if (p.row.on_front != on_front) continue;
      const Mark& mark = on_front ? front : other;
      if (on_front && p.row.quality_lo) chart.whisker(p.speed, *p.row.quality_lo, *p.row.quality, mark.colour);
      chart.point(p.speed, *p.row.quality, mark, tip_of(p));
      if (!p.pick.empty()) chart.label(p.speed, *p.row.quality, p.pick);
    }
  }
  return chart.draw(page.chart_id(), title,
                    fmt::format("{} points, {} on the front, up to {:.2f} times as fast.", points.size(), line.size(),
                                points.back().speed));
}

// Two rows of cells, window above budget, darker for more; full attention is the darkest.
Graphic strip(const SparseView& sparse, const std::string& id, const std::string& title) {
  constexpr double kCell = 11, kLeft = 58;
  int64_t most = 1;
  for (const SparseLayerRow& layer : sparse.layers)
    most = std::max({most, layer.window.value_or(1), layer.budget.value_or(1)});
  const auto shade = [&](const OptInt& v, bool full) {
    if (full) return 0.0;
    if (!v || *v <= 0) return 1.0;
    return 0.9 - 0.8 * std::log2(1.0 + static_cast<double>(*v)) / std::log2(1.0 + static_cast<double>(most));
  };
  std::string out;
  double x = kLeft;
  for (const SparseLayerRow& layer : sparse.layers) {
    const bool full = layer.mode == "full";
    const auto text = [&](const OptInt& v) {
      return full ? std::string("full") : v ? std::to_string(*v) : std::string("none");
    };
    const std::string tip = fmt::format("layer {}: {}, window {}, budget {}", layer.layer, layer.mode,
                                        text(layer.window), text(layer.budget));
    out += "<g><title>" + xml_text(tip) + "</title>";
    double y = 0;
    for (const OptInt& v : {layer.window, layer.budget}) {
      out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"14\" fill=\"{}\"/>", coordinate(x),
                         coordinate(y), coordinate(kCell - 1), css(sequential(shade(v, full), Theme::cividis)));
      y += 16;
    }
    out += "</g>";
    x += kCell;
  }
  out += svg_text(kLeft - 6, 11.5, "window", {12, "end", "soft"}) +
         svg_text(kLeft - 6, 27.5, "budget", {12, "end", "soft"});
  return Graphic(
      fmt::format("<svg width=\"{0}\" height=\"32\" viewBox=\"0 0 {0} 32\" role=\"img\" aria-labelledby=\"{1}\"><title "
                  "id=\"{1}\">{2}</title>{3}</svg>\n",
                  coordinate(std::max(x, 120.0)), id, xml_text(title), out));
}

PlainTable layer_table(const SparseView& sparse) {
  PlainTable table{"layers as a table",
                   {"layer", "mode", "window", "sink", "budget", "refresh"},
                   {true, false, true, true, true, true},
                   {}};
  const auto text = [](const OptInt& n) { return n ? std::to_string(*n) : "–"; };
  for (const SparseLayerRow& l : sparse.layers)
    table.rows.push_back(
        {std::to_string(l.layer), l.mode, text(l.window), text(l.sink), text(l.budget), text(l.refresh)});
  return table;
}

void front(PageContext& page, const std::vector<Placed>& points, Html& html) {
  for (const Placed& p : points) {
    if (!p.row.on_front) continue;
    const std::optional<SparseView> sparse = page.reader.sparse(p.row.sparse_id);
    const std::string label = sparse ? sparse->row.label : "configuration " + std::to_string(p.row.sparse_id);
    html.open("figure");
    html.open("figcaption");
    html.text(label + " ");
    if (!p.pick.empty()) badge(html, p.pick);
    html.close();
    html.element("p", {{"class", "note"}},
                 fmt::format("{:.2f}× as fast, quality {}{}{}", p.speed, signed_number(*p.row.quality, 4),
                             p.row.quality_lo ? ", lower bound " + signed_number(*p.row.quality_lo, 4) : "",
                             p.row.held_out ? ", held-out " + signed_number(*p.row.held_out, 4) : ""));
    if (sparse && !sparse->layers.empty()) {
      html.open("div", {{"class", "scroll"}});
      html.graphic(strip(*sparse, page.chart_id(), label + ": window and budget of each layer, darker is more"));
      html.close();
      details_table(html, layer_table(*sparse));
    }
    html.close();
  }
}

void numbers(const std::vector<Placed>& points, Html& html) {
  PlainTable table{"every point as a table",
                   {"point", "generation", "quality", "lower bound", "ms", "speed-up", "held-out", "front", "pick"},
                   {true, true, true, true, true, true, true, false, false},
                   {}};
  const auto number = [](const OptReal& v) { return v ? signed_number(*v, 4) : "–"; };
  for (const Placed& p : points)
    table.rows.push_back({std::to_string(p.row.n), p.row.generation ? std::to_string(*p.row.generation) : "–",
                          number(p.row.quality), number(p.row.quality_lo), fmt::format("{:.4g}", *p.row.cost_ms),
                          fmt::format("{:.2f}", p.speed), number(p.row.held_out), p.row.on_front ? "yes" : "", p.pick});
  details_table(html, table);
}

}  // namespace

void search_page(PageContext& page, Html& html) {
  page_title(html, "Search",
             "Sparse configurations tried: quality against speed, the front, and the layers of its points.");
  bool any = false;
  for (const SearchListRow& search : page.reader.searches()) {
    if (search.run_id && !page.has_run(*search.run_id)) continue;
    any = true;
    html.element("h2", fmt::format("{}, {} (seed {})", search.model, search.algo, search.seed));
    html.open("p", {{"class", "note"}});
    html.text(fmt::format("{} points, {} on the front, begun {} UTC", search.n_points, search.n_front,
                          short_time(search.started_at)));
    if (search.run_id) {
      html.text("; ");
      page.run_link(html, *search.run_id);
    }
    html.close();
    std::vector<Placed> points = placed_points(page.store, search.id);
    if (points.empty()) {
      empty_state(html, "No point of this search has been measured yet.", "");
      continue;
    }
    name_picks(points);
    html.open("div", {{"class", "panels"}});
    html.open("figure");
    html.graphic(scatter(page, points, "Quality against speed, " + search.model));
    legend(html, {{"on the front", {4, Shape::star, "", false}}, {"dominated", {6, Shape::circle, "", true}}});
    numbers(points, html);
    html.close();
    html.open("div");
    front(page, points, html);
    html.close();
    html.close();
  }
  if (!any) empty_state(html, "No search is in the database.", "");
}

}  // namespace hayfork::runs
