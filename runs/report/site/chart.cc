#include "runs/report/site/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runs/report/cross_table.h"
#include "runs/report/heatmap.h"
#include "runs/report/svg.h"

namespace hayfork::runs {
namespace {

constexpr double kText = 12;

double place(double v, const Axis& axis) {
  const auto f = [&](double t) { return axis.logarithmic ? std::log(t) : t; };
  return (f(v) - f(axis.low)) / (f(axis.high) - f(axis.low));
}

std::string number(double v, double step) {
  const int digits = step >= 1 ? 0 : std::min(6, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return fmt::format("{:.{}f}", v + 0.0, digits);
}

std::string path(std::span<const ChartPoint> points, bool first) {
  std::string out;
  for (const ChartPoint& p : points) {
    out += fmt::format("{}{} {}", first ? "M" : "L", coordinate(p.x), coordinate(p.y));
    first = false;
  }
  return out;
}

std::string polygon(double x, double y, std::initializer_list<ChartPoint> corners, double size) {
  std::string out = "<polygon points=\"";
  for (const ChartPoint& c : corners) out += coordinate(x + c.x * size) + "," + coordinate(y + c.y * size) + " ";
  out.back() = '"';
  return out;
}

}  // namespace

std::string unit_label(double v) {
  if (v < 1000) return fmt::format("{:g}", v);
  std::string text = count_text(static_cast<int64_t>(std::llround(v)));
  const char unit = text.back();
  text.pop_back();
  if (text.find('.') != std::string::npos) text.erase(text.find_last_not_of("0") + 1);
  if (text.back() == '.') text.pop_back();
  return text + unit;
}

Axis linear_axis(std::string title, double low, double high, bool share) {
  constexpr double kMost = 1e300;  // a figure may be infinite: the axis is not
  low = std::isfinite(low) ? std::clamp(low, -kMost, kMost) : 0;
  high = std::isfinite(high) ? std::clamp(high, -kMost, kMost) : low;
  if (share) return {std::move(title), 0, 1, false, {{0, "0"}, {0.25, "0.25"}, {0.5, "0.5"}, {0.75, "0.75"}, {1, "1"}}};
  if (!(high > low)) {
    const double room = std::max(std::abs(low) * 0.1, 0.01);
    low -= room;
    high += room;
  }
  const double raw = (high - low) / 4, power = std::pow(10, std::floor(std::log10(raw)));
  const double step = power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10);
  Axis axis{std::move(title), std::floor(low / step) * step, std::ceil(high / step) * step, false, {}};
  const auto n = static_cast<int>(std::lround((axis.high - axis.low) / step));
  for (int i = 0; i <= n; ++i) {
    const double v = axis.low + i * step;
    axis.ticks.push_back({v, number(std::abs(v) < step / 2 ? 0 : v, step)});
  }
  return axis;
}

Axis log_axis(std::string title, double low, double high) {
  Axis axis{std::move(title), low / 1.15, high * 1.15, true, {}};
  const bool wide = high / low > 50;
  for (double power = std::pow(10, std::floor(std::log10(axis.low))); power <= axis.high; power *= 10) {
    for (const double m : {1.0, 1.5, 2.0, 3.0, 5.0, 7.0}) {
      if (wide && m != 1 && m != 3) continue;
      if (!wide && high / low > 8 && m != 1 && m != 2 && m != 5) continue;
      if (!wide && high / low > 4 && (m == 1.5 || m == 7)) continue;
      if (m * power >= axis.low && m * power <= axis.high) axis.ticks.push_back({m * power, unit_label(m * power)});
    }
  }
  return axis;
}

Axis length_axis(std::string title, std::span<const int64_t> lengths) {
  Axis axis{std::move(title), 1, 2, true, {}};
  if (lengths.empty()) return axis;
  axis.low = static_cast<double>(lengths.front()) / 1.12;
  axis.high = static_cast<double>(lengths.back()) * 1.12;
  double last = -1;
  for (const int64_t length : lengths) {  // labels closer than 40 pixels of a small chart are left out
    const double at = place(static_cast<double>(length), axis);
    if (last >= 0 && at - last < 0.12) continue;
    axis.ticks.push_back({static_cast<double>(length), length_label(length)});
    last = at;
  }
  return axis;
}

Axis index_axis(std::string title, std::vector<std::string> labels) {
  const size_t n = labels.size(), each = std::max<size_t>(1, (n + 3) / 4);
  Axis axis{std::move(title), -0.5, static_cast<double>(n) - 0.5, false, {}};
  for (size_t i = 0; i < n; i += each) axis.ticks.push_back({static_cast<double>(i), labels[i]});
  return axis;
}

Chart::Chart(double width, double height, Axis x, Axis y)
    : width_(width), height_(height), left_(24), right_(14), top_(14), bottom_(48), x_(std::move(x)), y_(std::move(y)) {
  double label = 0;
  for (const Tick& tick : y_.ticks) label = std::max(label, text_width(tick.label, kText));
  left_ += label + 8;
}

double Chart::px(double x) const {
  return left_ + place(x, x_) * (width_ - left_ - right_);
}
double Chart::py(double y) const {
  return height_ - bottom_ - std::clamp(place(y, y_), -0.02, 1.02) * (height_ - top_ - bottom_);
}

void Chart::band(std::span<const ChartPoint> low, std::span<const ChartPoint> high, int colour) {
  if (low.size() < 2 || high.size() < 2) return;
  std::vector<ChartPoint> there, back;
  for (const ChartPoint& p : low) there.push_back({px(p.x), py(p.y)});
  for (const ChartPoint& p : high) back.push_back({px(p.x), py(p.y)});
  std::reverse(back.begin(), back.end());
  bands_ += fmt::format("<path class=\"band k{}\" d=\"{}{}Z\"/>\n", colour, path(there, true), path(back, false));
}

void Chart::line(std::span<const ChartPoint> points, const Mark& mark) {
  if (points.size() < 2) return;
  std::vector<ChartPoint> placed;
  for (const ChartPoint& p : points) placed.push_back({px(p.x), py(p.y)});
  lines_ +=
      fmt::format("<path class=\"curve k{}\"{} d=\"{}\"/>\n", mark.colour,
                  *mark.dash != '\0' ? fmt::format(" stroke-dasharray=\"{}\"", mark.dash) : "", path(placed, true));
}

void Chart::whisker(double x, double low, double high, int colour) {
  points_ += svg_line(fmt::format("whisker k{}", colour), px(x), py(low), px(x), py(high));
}

void Chart::point(double x, double y, const Mark& mark, const std::string& tip, const std::string& href) {
  const std::string shape = "<title>" + xml_text(tip) + "</title>" + marker(px(x), py(y), mark);
  if (href.empty())
    points_ += "<g class=\"pt\" tabindex=\"0\" role=\"img\" aria-label=\"" + xml_text(tip) + "\">" + shape + "</g>\n";
  else
    points_ +=
        "<a class=\"pt\" href=\"" + xml_text(href) + "\" aria-label=\"" + xml_text(tip) + "\">" + shape + "</a>\n";
}

void Chart::bar(int64_t i, double from, double to, double y, bool key, const std::string& tip) {
  const double x = px(from), width = std::max(0.75, px(to) - x), base = py(y_.low);
  const auto box = [&](const char* kind, double top, double height) {
    return fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>", kind, coordinate(x),
                       coordinate(top), coordinate(width), coordinate(height));
  };
  points_ += fmt::format("<g class=\"cell\" data-r=\"0\" data-c=\"{}\"><title>{}</title>", i, xml_text(tip));
  points_ += box(key ? "fill1" : "fill0", py(y), base - py(y));
  if (key) points_ += box("fill1", base + 2, 3);
  points_ += "</g>\n";
}

void Chart::vertical(double x, const std::string& text) {
  rules_ += svg_line("rule", px(x), top_, px(x), height_ - bottom_);
  if (!text.empty()) labels_ += svg_text(px(x) + 4, top_ + 10, text, {kText, "start", "soft"});
}

void Chart::horizontal(double y, const std::string& text) {
  rules_ += svg_line("rule", left_, py(y), width_ - right_, py(y));
  if (!text.empty()) labels_ += svg_text(width_ - right_ - 4, py(y) - 4, text, {kText, "end", "soft"});
}

void Chart::label(double x, double y, const std::string& text) {
  const bool flip = px(x) + text_width(text, kText) + 10 > width_;
  labels_ += svg_text(px(x) + (flip ? -9 : 9), py(y) + 4, text, {kText, flip ? "end" : "start", "ink"});
}

std::string Chart::axes() const {
  std::string out;
  for (const Tick& tick : y_.ticks) {
    const double y = py(tick.at);
    out += svg_line("grid", left_, y, width_ - right_, y);
    out += svg_text(left_ - 7, y + 4, tick.label, {kText, "end", "soft"});
  }
  const double base = height_ - bottom_;
  out += svg_line("axis", left_, base, width_ - right_, base);
  for (const Tick& tick : x_.ticks) {
    const double x = px(tick.at), half = text_width(tick.label, kText) / 2;
    out += svg_line("axis", x, base, x, base + 4);
    out += svg_text(std::clamp(x, half, width_ - half), base + 18, tick.label, {kText, "middle", "soft"});
  }
  out += svg_text((left_ + width_ - right_) / 2, height_ - 8, x_.title, {kText, "middle", "soft"});
  out += svg_text(13, (top_ + base) / 2, y_.title, {kText, "middle", "soft"}, -90);
  return out;
}

Graphic Chart::draw(const std::string& id, const std::string& title, const std::string& finding) const {
  return Graphic(fmt::format(
      "<svg class=\"chart\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"group\" "
      "aria-labelledby=\"{2}-t "
      "{2}-d\">\n<title id=\"{2}-t\">{3}</title>\n<desc id=\"{2}-d\">{4}</desc>\n{5}{6}{7}{8}{9}{10}</svg>\n",
      coordinate(width_), coordinate(height_), id, xml_text(title), xml_text(finding), axes(), bands_, rules_, lines_,
      points_, labels_));
}

std::string marker(double x, double y, const Mark& mark, double size) {
  std::string shape;
  switch (mark.shape) {
    case Shape::circle:
      shape = fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\"", coordinate(x), coordinate(y), coordinate(size * 0.9));
      break;
    case Shape::square:
      shape = polygon(x, y, {{-.8, -.8}, {.8, -.8}, {.8, .8}, {-.8, .8}}, size);
      break;
    case Shape::triangle:
      shape = polygon(x, y, {{0, -1.1}, {1, .8}, {-1, .8}}, size);
      break;
    case Shape::down:
      shape = polygon(x, y, {{0, 1.1}, {1, -.8}, {-1, -.8}}, size);
      break;
    case Shape::diamond:
      shape = polygon(x, y, {{0, -1.15}, {1, 0}, {0, 1.15}, {-1, 0}}, size);
      break;
    case Shape::star:
      shape = polygon(x, y,
                      {{0, -1.35},
                       {.35, -.45},
                       {1.3, -.42},
                       {.55, .17},
                       {.8, 1.08},
                       {0, .55},
                       {-.8, 1.08},
                       {-.55, .17},
                       {-1.3, -.42},
                       {-.35, -.45}},
                      size);
      break;
    case Shape::cross:
      shape = polygon(x, y,
                      {{-.3, -1},
                       {.3, -1},
                       {.3, -.3},
                       {1, -.3},
                       {1, .3},
                       {.3, .3},
                       {.3, 1},
                       {-.3, 1},
                       {-.3, .3},
                       {-1, .3},
                       {-1, -.3},
                       {-.3, -.3}},
                      size);
      break;
  }
  return fmt::format("{} class=\"{} k{}\"/>", shape, mark.hollow ? "hollow" : "solid", mark.colour);
}

Graphic legend_marker(const Mark& mark) {
  const std::string dash = *mark.dash != '\0' ? fmt::format(" stroke-dasharray=\"{}\"", mark.dash) : "";
  return Graphic(
      fmt::format("<svg class=\"key\" width=\"34\" height=\"14\" viewBox=\"0 0 34 14\" aria-hidden=\"true\"><path "
                  "class=\"curve k{}\"{} d=\"M0 7L34 7\"/>{}</svg>",
                  mark.colour, dash, marker(17, 7, mark)));
}

}  // namespace hayfork::runs
