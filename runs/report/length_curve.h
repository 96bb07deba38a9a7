// Scores over context length: a curve a model with the band of its intervals, a marker at the effective length, a line
// at the threshold; as SVG (and PNG through svg_to_png) and terminal text. A length without samples has no point and
// breaks the curve: it is never drawn as 0. Output is a function of the input alone, byte for byte.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hayfork::runs {

struct LengthPoint {
  int64_t length = 0;
  std::optional<double> value, low, high;  // the interval, where there is one
  int64_t n = 0;                           // samples that count
  int64_t n_failed = 0, n_truncated = 0;
};

struct LengthCurve {
  std::string title;                // of the legend
  std::vector<LengthPoint> points;  // by length, ascending
  std::optional<int64_t> effective_length;
};

struct CurveOptions {
  std::string metric = "score", heading = {};
  double low = 0, high = 1;
  std::optional<double> threshold = {};
};

// Requires: at least one curve with at least one point.
std::string length_curves_svg(std::span<const LengthCurve> curves, const CurveOptions& options);
// A line a curve, a column a length: value, interval and marks.
std::string length_curves_text(std::span<const LengthCurve> curves, const CurveOptions& options);

}  // namespace hayfork::runs
