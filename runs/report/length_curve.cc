#include "runs/report/length_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.h"
#include "runs/report/heatmap.h"
#include "runs/report/svg.h"

namespace hayfork::runs {
namespace {

constexpr double kPlotW = 560, kPlotH = 320, kTop = 46, kBottom = 56, kRight = 16;
constexpr int64_t kFew = 5;  // samples below which a point is hollow
// Okabe and Ito's colours without the yellow; a dash each as well, never colour alone.
struct Look {
  const char *colour, *dash;
};
constexpr std::array<Look, 6> kLooks = {{{"#0072b2", ""},
                                         {"#d55e00", "7 3"},
                                         {"#009e73", "2 3"},
                                         {"#cc79a7", "9 3 2 3"},
                                         {"#56b4e9", "4 2"},
                                         {"#6a6a6a", "1 4"}}};

constexpr const char* kStyle =
    "<style>.page{fill:#ffffff}.ink{fill:#1b1b1b}.soft{fill:#555555}.grid{stroke:#dddddd;fill:none}"
    ".axis{stroke:#555555;fill:none}.rule{stroke:#555555;fill:none;stroke-dasharray:4 4}"
    ".hollow{fill:#ffffff}</style>\n";

struct Plot {
  double left = 0;
  std::vector<int64_t> lengths;
  CurveOptions o;

  // Lengths stand by their logarithm.
  double x(int64_t length) const {
    if (lengths.size() < 2) return left + kPlotW / 2;
    const double low = std::log2(static_cast<double>(lengths.front())),
                 high = std::log2(static_cast<double>(lengths.back()));
    return left + 20 + (kPlotW - 40) * (std::log2(static_cast<double>(length)) - low) / (high - low);
  }
  double y(double value) const {
    return kTop + kPlotH * (1 - (std::clamp(value, o.low, o.high) - o.low) / (o.high - o.low));
  }
  std::string at(const LengthPoint& p, double value) const {
    return coordinate(x(p.length)) + " " + coordinate(y(value));
  }
};

// Neighbouring lengths with a value, in stretches: what was not run lies between them.
std::vector<std::vector<LengthPoint>> stretches(const Plot& plot, const LengthCurve& curve) {
  std::vector<std::vector<LengthPoint>> out(1);
  for (const int64_t length : plot.lengths) {
    const auto it = std::find_if(curve.points.begin(), curve.points.end(),
                                 [&](const LengthPoint& p) { return p.length == length && p.value; });
    if (it != curve.points.end())
      out.back().push_back(*it);
    else if (!out.back().empty())
      out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

std::string tooltip(const LengthCurve& curve, const LengthPoint& p, const CurveOptions& o) {
  std::string out = fmt::format("{}, {}: {} {:.4g}", curve.title, length_label(p.length), o.metric, *p.value);
  if (p.low && p.high) out += fmt::format(" [{:.4g}, {:.4g}]", *p.low, *p.high);
  out += fmt::format(", n {}", p.n);
  if (p.n_failed > 0) out += fmt::format(", {} failed", p.n_failed);
  if (p.n_truncated > 0) out += fmt::format(", {} cut", p.n_truncated);
  return out;
}

std::string draw_band(const Plot& plot, const std::vector<LengthPoint>& points, const Look& look) {
  std::string there, back;
  for (const LengthPoint& p : points) {
    if (!p.low || !p.high) continue;
    there += (there.empty() ? "M" : "L") + plot.at(p, *p.high);
    back.insert(0, "L" + plot.at(p, *p.low));
  }
  if (there.empty()) return {};
  return fmt::format("<path fill=\"{}\" fill-opacity=\"0.16\" d=\"{}{}Z\"/>\n", look.colour, there, back);
}

std::string draw_points(const Plot& plot, const LengthCurve& curve, const std::vector<LengthPoint>& points,
                        const Look& look) {
  std::string line, out;
  for (const LengthPoint& p : points) line += (line.empty() ? "M" : "L") + plot.at(p, *p.value);
  out = fmt::format("<path fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{} d=\"{}\"/>\n", look.colour,
                    *look.dash != '\0' ? fmt::format(" stroke-dasharray=\"{}\"", look.dash) : "", line);
  for (const LengthPoint& p : points) {
    const double cx = plot.x(p.length), cy = plot.y(*p.value);
    out += "<g><title>" + xml_text(tooltip(curve, p, plot.o)) + "</title>";
    out += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"4\" stroke=\"{}\" stroke-width=\"1.6\" {}/>", coordinate(cx),
                       coordinate(cy), look.colour,
                       p.n < kFew ? "class=\"hollow\"" : fmt::format("fill=\"{}\"", look.colour));
    if (p.n_failed > 0 || p.n_truncated > 0)
      out += fmt::format("<path stroke=\"{0}\" stroke-width=\"1.6\" d=\"M{1} {3}L{2} {4}M{1} {4}L{2} {3}\"/>",
                         look.colour, coordinate(cx - 7), coordinate(cx + 7), coordinate(cy - 7), coordinate(cy + 7));
    out += "</g>\n";
  }
  return out;
}

// A triangle on the axis, and its length.
std::string draw_effective(const Plot& plot, const LengthCurve& curve, const Look& look, size_t number) {
  if (!curve.effective_length) return {};
  const double x = plot.x(*curve.effective_length), base = kTop + kPlotH, row = static_cast<double>(number % 3);
  std::string out = fmt::format(
      "<path class=\"effective\" stroke=\"{0}\" stroke-opacity=\"0.7\" stroke-dasharray=\"3 3\" d=\"M{1} {2}L{1} "
      "{3}\"/>\n"
      "<path fill=\"{0}\" d=\"M{1} {3}L{4} {5}L{6} {5}Z\"/>\n",
      look.colour, coordinate(x), coordinate(kTop), coordinate(base), coordinate(x - 6), coordinate(base + 9),
      coordinate(x + 6));
  return out + svg_text(x + 5, kTop + 12 + 14 * row, "effective " + length_label(*curve.effective_length),
                        {11, "start", "", look.colour});
}

std::string draw_axes(const Plot& plot) {
  std::string out;
  for (int i = 0; i <= 4; ++i) {
    const double v = plot.o.low + (plot.o.high - plot.o.low) * i / 4, y = plot.y(v);
    out += svg_line("grid", plot.left, y, plot.left + kPlotW, y);
    out += svg_text(plot.left - 8, y + 4, fmt::format("{:.2f}", v), {12, "end", "ink"});
  }
  const double base = kTop + kPlotH;
  out += svg_line("axis", plot.left, base, plot.left + kPlotW, base);
  double last = -100;
  for (const int64_t length : plot.lengths) {
    const double x = plot.x(length);
    if (x - last < 42) continue;
    out += svg_text(x, base + 24, length_label(length), {12, "middle", "ink"});
    last = x;
  }
  out += svg_text(plot.left + kPlotW / 2, base + 44, "context length (tokens)", {12, "middle", "soft"});
  return out + svg_text(14, kTop + kPlotH / 2, plot.o.metric, {12, "middle", "soft"}, -90);
}

std::vector<int64_t> all_lengths(std::span<const LengthCurve> curves) {
  std::set<int64_t> lengths;
  for (const LengthCurve& curve : curves)
    for (const LengthPoint& p : curve.points) lengths.insert(p.length);
  return {lengths.begin(), lengths.end()};
}

}  // namespace

std::string length_curves_svg(std::span<const LengthCurve> curves, const CurveOptions& options) {
  const Plot plot{62, all_lengths(curves), options};
  HAY_CHECK(!plot.lengths.empty() && options.high > options.low);
  double legend_w = 0;
  for (const LengthCurve& curve : curves) legend_w = std::max(legend_w, 44 + text_width(curve.title, 12));
  const double width = plot.left + kPlotW + kRight + legend_w + 8,
               height = std::max(kTop + kPlotH + kBottom, kTop + 22.0 * static_cast<double>(curves.size()) + 60);
  const std::string name = options.heading.empty() ? options.metric + " by context length" : options.heading;
  std::string description;
  for (const LengthCurve& curve : curves) {
    description += curve.title + ":";
    for (const LengthPoint& p : curve.points)
      description += p.value ? fmt::format(" {} {:.3f}", length_label(p.length), *p.value)
                             : fmt::format(" {} {}", length_label(p.length), p.n_failed > 0 ? "failed" : "not run");
    description += ". ";
  }
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "aria-labelledby=\"hay-title hay-desc\" {2}>\n<title id=\"hay-title\">{3}</title>\n<desc "
      "id=\"hay-desc\">{4}</desc>\n{5}<rect class=\"page\" width=\"{0}\" height=\"{1}\"/>\n",
      coordinate(width), coordinate(height), kSvgFont, xml_text(name), xml_text(description), kStyle);
  out += svg_text(plot.left, 24, name, {16, "start", "ink", nullptr, true}) + draw_axes(plot);
  for (size_t i = 0; i < curves.size(); ++i)
    for (const auto& points : stretches(plot, curves[i])) out += draw_band(plot, points, kLooks[i % kLooks.size()]);
  if (options.threshold) {
    const double y = plot.y(*options.threshold);
    out += svg_line("rule", plot.left, y, plot.left + kPlotW, y);
    out +=
        svg_text(plot.left + kPlotW - 4, y - 5, fmt::format("threshold {:g}", *options.threshold), {11, "end", "soft"});
  }
  for (size_t i = 0; i < curves.size(); ++i) {
    const Look& look = kLooks[i % kLooks.size()];
    out += draw_effective(plot, curves[i], look, i);
    for (const auto& points : stretches(plot, curves[i])) out += draw_points(plot, curves[i], points, look);
    const double x = plot.left + kPlotW + kRight, y = kTop + 10 + 22 * static_cast<double>(i);
    out += fmt::format("<path fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{} d=\"M{} {}L{} {}\"/>\n", look.colour,
                       *look.dash != '\0' ? fmt::format(" stroke-dasharray=\"{}\"", look.dash) : "", coordinate(x),
                       coordinate(y), coordinate(x + 30), coordinate(y));
    out += svg_text(x + 36, y + 4, curves[i].title, {12, "start", "ink"});
  }
  double note = kTop + 26 + 22 * static_cast<double>(curves.size());
  bool few = false, flawed = false;
  for (const LengthCurve& curve : curves)
    for (const LengthPoint& p : curve.points) {
      few = few || (p.value && p.n < kFew);
      flawed = flawed || p.n_failed > 0 || p.n_truncated > 0;
    }
  const double x = plot.left + kPlotW + kRight;
  if (few) out += svg_text(x, note, fmt::format("hollow: n < {}", kFew), {11, "start", "soft"});
  if (flawed) out += svg_text(x, note + (few ? 16 : 0), "crossed: some failed", {11, "start", "soft"});
  return out + "</svg>\n";
}

std::string length_curves_text(std::span<const LengthCurve> curves, const CurveOptions& options) {
  const std::vector<int64_t> lengths = all_lengths(curves);
  size_t title = options.metric.size();
  for (const LengthCurve& curve : curves) title = std::max(title, curve.title.size());
  std::string out = fmt::format("{:<{}}", options.metric, title);
  for (const int64_t length : lengths) out += fmt::format("  {:>22}", length_label(length));
  out += "  effective\n";
  for (const LengthCurve& curve : curves) {
    out += fmt::format("{:<{}}", curve.title, title);
    for (const int64_t length : lengths) {
      const auto it = std::find_if(curve.points.begin(), curve.points.end(),
                                   [&](const LengthPoint& p) { return p.length == length; });
      std::string cell = "not run";
      if (it != curve.points.end() && it->value) {
        cell = fmt::format("{:.3f}", *it->value);
        if (it->low && it->high) cell += fmt::format(" [{:.3f}, {:.3f}]", *it->low, *it->high);
        if (it->n_failed > 0 || it->n_truncated > 0)
          cell += "!";
        else if (it->n < kFew)
          cell += "*";
      } else if (it != curve.points.end() && it->n_failed > 0) {
        cell = "failed";
      }
      out += fmt::format("  {:>22}", cell);
    }
    out += "  " + (curve.effective_length ? length_label(*curve.effective_length) : "-") + "\n";
  }
  return out;
}

}  // namespace hayfork::runs
