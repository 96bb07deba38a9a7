// LongPPL, or a corpus's loss a token, over training tokens, a panel an architecture: points, the fitted law a·N^−α +
// b·D^−β of the loss (of LongPPL its logarithm) with its bootstrap band, the largest size held out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "metrics/bootstrap.h"
#include "metrics/scaling_fit.h"
#include "runs/report/site/pages.h"

namespace hayfork::runs {
namespace {

using metrics::Goodness;
using metrics::ScalingFit;
using metrics::ScalingPoint;

constexpr int kResamples = 200;
constexpr int64_t kFewKeys = 10;  // key tokens below which a document's LongPPL says little

// What a family of models is measured by.
struct Quantity {
  const char *name, *title;
  bool is_perplexity;  // the law is about its logarithm

  double loss(double shown) const { return is_perplexity ? std::log(shown) : shown; }
  double shown(double loss) const { return is_perplexity ? std::exp(loss) : loss; }
};
constexpr Quantity kLongPpl{"LongPPL", "LongPPL", true}, kCorpusLoss{"loss a token", "Loss a token", false};

struct Family {
  std::string arch, label;
  const Quantity* of = &kLongPpl;
  std::vector<ScalingRow> rows;
  std::vector<int64_t> sizes;  // ascending; shapes go by their order
  std::optional<int64_t> held_out;
  std::vector<ScalingPoint> fitted, verified;
  std::optional<ScalingFit> fit;
  std::vector<ScalingFit> resamples;
  std::string refused;
};

const Quantity& quantity_of(const ScalingRow& row) {
  return row.task == "corpus_loss" ? kCorpusLoss : kLongPpl;
}

bool is_usable(const ScalingRow& row) {  // the loss's logarithm is taken
  return row.value && std::isfinite(*row.value) && quantity_of(row).loss(*row.value) > 0 &&
         row.n_params.value_or(0) > 0 && row.train_tokens.value_or(0) > 0;
}

ScalingPoint point_of(const ScalingRow& row) {
  return {static_cast<double>(*row.n_params), static_cast<double>(*row.train_tokens),
          quantity_of(row).loss(*row.value)};
}

// The largest size is held out when what is left suffices.
void fit_family(Family& family) {
  std::set<int64_t> sizes;
  for (const ScalingRow& row : family.rows) sizes.insert(*row.n_params);
  family.sizes.assign(sizes.begin(), sizes.end());
  const auto n_below = std::count_if(family.rows.begin(), family.rows.end(),
                                     [&](const ScalingRow& row) { return *row.n_params < family.sizes.back(); });
  if (sizes.size() >= 3 && n_below >= static_cast<std::ptrdiff_t>(metrics::kFewestScalingPoints))
    family.held_out = family.sizes.back();
  for (const ScalingRow& row : family.rows)
    (family.held_out == row.n_params ? family.verified : family.fitted).push_back(point_of(row));
  if (family.fitted.size() < metrics::kFewestScalingPoints || sizes.size() < 2) {
    family.refused = fmt::format("Fit refused: {} points of {} size{}; it takes {} of two sizes.", family.fitted.size(),
                                 sizes.size(), sizes.size() == 1 ? "" : "s", metrics::kFewestScalingPoints);
    return;
  }
  family.fit = metrics::fit_scaling(family.fitted);
  family.resamples = metrics::bootstrap_scaling(family.fitted, *family.fit, kResamples);
}

std::vector<Family> families_of(PageContext& page) {
  // LongPPL first; losses by corpus and window, which are the task's.
  std::map<std::tuple<bool, int64_t, std::string>, Family> by_task;
  for (ScalingRow& row : page.reader.scaling()) {
    if (!page.has_run(row.run_id) || !is_usable(row)) continue;
    const std::string arch = row.arch.value_or("");
    const Quantity& of = quantity_of(row);
    Family& family = by_task[{!of.is_perplexity, of.is_perplexity ? 0 : row.task_id, arch}];
    family.arch = arch;
    family.of = &of;
    family.label =
        fmt::format("{}{}", arch.empty() ? "unknown architecture" : arch, of.is_perplexity ? "" : ", corpus_loss");
    family.rows.push_back(std::move(row));
  }
  std::vector<Family> out;
  for (auto& [key, family] : by_task) {
    fit_family(family);
    out.push_back(std::move(family));
  }
  return out;
}

// The 2.5 and 97.5 % points of what the resamples say.
metrics::Interval spread(const std::vector<ScalingFit>& fits, double (*take)(const ScalingFit&, double, double),
                         double n, double d) {
  std::vector<double> values;
  for (const ScalingFit& fit : fits) values.push_back(take(fit, n, d));
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
  };
  return {at(0.025), at(0.975)};
}

Mark size_mark(const Family& family, int64_t size) {
  static constexpr Shape kShapes[] = {Shape::circle,  Shape::square, Shape::triangle,
                                      Shape::diamond, Shape::star,   Shape::down};
  const auto rank =
      static_cast<size_t>(std::find(family.sizes.begin(), family.sizes.end(), size) - family.sizes.begin());
  return {arch_mark(family.arch).colour, kShapes[std::min(rank, std::size(kShapes) - 1)], "", family.held_out == size};
}

void draw_law(Chart& chart, const Family& family, double low, double high) {
  constexpr int kSteps = 24;
  for (const int64_t size : family.sizes) {
    std::vector<ChartPoint> line, below, above;
    for (int i = 0; i <= kSteps; ++i) {
      const double d = low * std::pow(high / low, static_cast<double>(i) / kSteps), n = static_cast<double>(size);
      line.push_back({d, family.of->shown(family.fit->predict(n, d))});
      const metrics::Interval band = spread(
          family.resamples, [](const ScalingFit& f, double x, double y) { return f.predict(x, y); }, n, d);
      below.push_back({d, family.of->shown(band.low)});
      above.push_back({d, family.of->shown(band.high)});
    }
    Mark mark = size_mark(family, size);
    mark.dash = family.held_out == size ? "4 3" : "";
    chart.band(below, above, mark.colour);
    chart.line(line, mark);
  }
}

Graphic draw(PageContext& page, const Family& family, const std::string& finding) {
  double d_low = INFINITY, d_high = 0, low = INFINITY, high = 0;
  for (const ScalingRow& row : family.rows) {
    d_low = std::min(d_low, static_cast<double>(*row.train_tokens));
    d_high = std::max(d_high, static_cast<double>(*row.train_tokens));
    low = std::min(low, row.ci_low.value_or(*row.value));
    high = std::max(high, row.ci_high.value_or(*row.value));
  }
  Chart chart(360, 280, log_axis("training tokens D", d_low, d_high),
              log_axis(fmt::format("{} ↓", family.of->name), low, high));
  if (family.fit) draw_law(chart, family, d_low, d_high);
  for (const ScalingRow& row : family.rows) {
    const Mark mark = size_mark(family, *row.n_params);
    const auto d = static_cast<double>(*row.train_tokens);
    std::string tip =
        fmt::format("{} ({}): N {}, D {}\n{} {:.4g}, {} documents", row.model, row.run_id, count_text(row.n_params),
                    count_text(row.train_tokens), family.of->name, *row.value, row.n);
    if (row.ci_low && row.ci_high) {
      chart.whisker(d, *row.ci_low, *row.ci_high, mark.colour);
      tip += fmt::format("\n95 % {:.4g}–{:.4g}", *row.ci_low, *row.ci_high);
    }
    if (family.held_out == row.n_params) tip += "\nheld out of the fit";
    chart.point(d, *row.value, mark, tip, page.href("run-" + page_stem(row.run_id)));
  }
  return chart.draw(page.chart_id(), fmt::format("{} over training tokens, {}", family.of->title, family.label),
                    finding);
}

std::string exponent(const char* name, double value, bool at_bound, const metrics::Interval& spread) {
  return fmt::format("{} = {:.3f} [{:.3f}, {:.3f}]{}", name, value, spread.low, spread.high,
                     at_bound ? " (at its bound)" : "");
}

std::string finding_of(const Family& family) {
  if (!family.fit) return family.refused;
  const auto alpha = spread(
      family.resamples, [](const ScalingFit& f, double, double) { return f.alpha; }, 0, 0);
  const auto beta = spread(
      family.resamples, [](const ScalingFit& f, double, double) { return f.beta; }, 0, 0);
  const Goodness fitted = metrics::goodness(*family.fit, family.fitted);
  std::string out = fmt::format(
      "{}, {}; R² {:.3f} on {} fitted points", exponent("α", family.fit->alpha, family.fit->alpha_at_bound, alpha),
      exponent("β", family.fit->beta, family.fit->beta_at_bound, beta), fitted.r2, family.fitted.size());
  if (!family.verified.empty()) {
    const Goodness held = metrics::goodness(*family.fit, family.verified);
    out += fmt::format(", {:.3f} on {} held out (RMSE {:.4f})", held.r2, family.verified.size(), held.rmse);
  }
  return out + ".";
}

void numbers(const Family& family, Html& html) {
  PlainTable table{"as a table",
                   {"model", "run", "N", "D", family.of->name, "95 % interval", "fitted", "documents", "use"},
                   {false, false, true, true, true, true, true, true, false},
                   {}};
  for (const ScalingRow& row : family.rows) {
    const ScalingPoint p = point_of(row);
    table.rows.push_back({row.model, row.run_id, count_text(row.n_params), count_text(row.train_tokens),
                          fmt::format("{:.4f}", *row.value),
                          row.ci_low && row.ci_high ? fmt::format("{:.4f}–{:.4f}", *row.ci_low, *row.ci_high) : "–",
                          family.fit ? fmt::format("{:.4f}", family.of->shown(family.fit->predict(p.n, p.d))) : "–",
                          std::to_string(row.n), family.held_out == row.n_params ? "held out" : "fit"});
  }
  details_table(html, table);
}

}  // namespace

void scaling_page(PageContext& page, Html& html) {
  page_title(html, "Scaling",
             "Perplexity of key tokens, or a corpus's loss, over training tokens, and the law fitted to it.");
  const std::vector<Family> families = families_of(page);
  if (families.empty())
    return empty_state(
        html, "No run shown has a LongPPL or a corpus's loss, a parameter count and a number of training tokens.",
        "hayfork describe RUN --train-tokens N");
  const KeyCount keys = page.reader.key_counts(kFewKeys);
  if (keys.n_documents > 0)
    html.element("p", {{"class", "note"}},
                 fmt::format("Key tokens are known for {} documents; {} of them have fewer than {}.", keys.n_documents,
                             keys.n_few, kFewKeys));
  html.open("div", {{"class", "panels"}});
  for (const Family& family : families) {
    const std::string finding = finding_of(family);
    html.open("figure");
    html.element("figcaption", family.label);
    html.open("div", {{"class", "scroll"}});
    html.graphic(draw(page, family, finding));
    html.close();
    std::vector<LegendEntry> entries;
    for (const int64_t size : family.sizes)
      entries.push_back(
          {"N " + count_text(size) + (family.held_out == size ? ", held out" : ""), size_mark(family, size)});
    legend(html, entries);
    html.element("p", {{"class", "note"}}, finding);
    numbers(family, html);
    html.close();
  }
  html.close();
  html.element(
      "p", {{"class", "note"}},
      fmt::format("log LongPPL, or the loss, = a·N^−α + b·D^−β, without a constant: Huber loss of the residuals' "
                  "logarithms (δ = 0.001), "
                  "α and β at least 0. Brackets and bands: {} resamples of the points. A hollow marker was held out.",
                  kResamples));
}

}  // namespace hayfork::runs
