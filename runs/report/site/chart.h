// Charts of points over two axes as inline SVG: lines with bands, points with whiskers, rules. Sizes are pixels, 12 the
// smallest text; a chart is at most 360 wide unless it is given more, so that it fits a telephone. Colours are classes
// of the page's style sheet. Points can be reached by keyboard and say what they are.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runs/report/site/arch_mark.h"
#include "runs/report/site/html.h"

namespace hayfork::runs {

struct Tick {
  double at = 0;
  std::string label;
};

struct Axis {
  std::string title;
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<Tick> ticks;
};

// Round steps that cover the values, with a little room; from 0 to 1 when `share`.
Axis linear_axis(std::string title, double low, double high, bool share = false);
Axis log_axis(std::string title, double low, double high);              // ticks at 1, 2, 5 × 10^k, shown with units
Axis length_axis(std::string title, std::span<const int64_t> lengths);  // a tick each, in steps of log2
Axis index_axis(std::string title, std::vector<std::string> labels);    // 0, 1, 2, …; labels thinned out

struct ChartPoint {
  double x = 0, y = 0;
};

std::string unit_label(double v);  // 3.2e9 → "3.2B", 10000 → "10K"; what is below a thousand as it is

class Chart {
 public:
  Chart(double width, double height, Axis x, Axis y);
  void band(std::span<const ChartPoint> low, std::span<const ChartPoint> high, int colour);
  void line(std::span<const ChartPoint> points, const Mark& mark);
  void whisker(double x, double low, double high, int colour);
  void point(double x, double y, const Mark& mark, const std::string& tip, const std::string& href = "");
  // A bar of a histogram over [from, to), number `i` of its row for the arrow keys; underlined on the axis when `key`.
  void bar(int64_t i, double from, double to, double y, bool key, const std::string& tip);
  void vertical(double x, const std::string& label);
  void horizontal(double y, const std::string& label);
  void label(double x, double y, const std::string& text);  // beside a point
  // `title` names the chart, `finding` says what it shows.
  Graphic draw(const std::string& id, const std::string& title, const std::string& finding) const;

 private:
  double px(double x) const;
  double py(double y) const;
  std::string axes() const;
  double width_, height_, left_, right_, top_, bottom_;
  Axis x_, y_;
  std::string rules_, bands_, lines_, points_, labels_;
};

std::string marker(double x, double y, const Mark& mark, double size = 5);
Graphic legend_marker(const Mark& mark);

}  // namespace hayfork::runs
