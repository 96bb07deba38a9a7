// Curves over length: what is not known is not drawn, marks for few and failed samples, the effective length.
#include "runs/report/length_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs/report/heatmap.h"

namespace hayfork::runs {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

LengthCurve curve(const std::string& title) {
  LengthCurve c{title, {}, 8192};
  for (const auto& [length, value] : {std::pair{4096, 0.95}, {8192, 0.9}, {16384, 0.6}, {32768, 0.2}})
    c.points.push_back({length, value, value - 0.05, std::min(1.0, value + 0.05), 100});
  return c;
}

TEST(LengthCurve, HasAPointALengthABandAndTheEffectiveLength) {
  const LengthCurve c = curve("orthros");
  const std::string svg = length_curves_svg(std::span(&c, 1), {.metric = "score", .threshold = 0.856});
  EXPECT_EQ(count(svg, "<circle"), 4u);
  EXPECT_EQ(count(svg, "fill-opacity"), 1u);
  EXPECT_THAT(svg, HasSubstr("effective 8K"));
  EXPECT_THAT(svg, HasSubstr("threshold 0.856"));
  EXPECT_THAT(svg, HasSubstr("orthros, 16K: score 0.6 [0.55, 0.65], n 100"));
  EXPECT_THAT(svg, Not(HasSubstr("hollow:")));
  EXPECT_EQ(svg, length_curves_svg(std::span(&c, 1), {.metric = "score", .threshold = 0.856}));
  EXPECT_TRUE(svg_to_png(svg).starts_with("\x89PNG"));
}

TEST(LengthCurve, WhatWasNotRunBreaksTheCurveAndIsNeverZero) {
  LengthCurve whole = curve("full"), broken = curve("swa");
  broken.points[1].value.reset();
  broken.points[1].n = 0;
  broken.points[1].n_failed = 100;
  broken.effective_length.reset();
  const std::vector<LengthCurve> curves = {whole, broken};
  const std::string svg = length_curves_svg(curves, {});
  EXPECT_EQ(count(svg, "<circle"), 7u);
  EXPECT_EQ(count(svg, "fill-opacity"), 3u);  // one band, and one on either side of the gap
  EXPECT_EQ(count(svg, "effective 8K"), 1u);
  EXPECT_THAT(svg, HasSubstr("8K failed"));
  EXPECT_THAT(svg, Not(HasSubstr("swa, 8K")));
  const std::string text = length_curves_text(curves, {});
  EXPECT_THAT(text, HasSubstr("failed"));
  EXPECT_THAT(text, HasSubstr("0.600 [0.550, 0.650]"));
}

TEST(LengthCurve, FewAndFailedSamplesAreMarked) {
  LengthCurve c = curve("hybrid");
  c.points[0].n = 2;
  c.points[2].n_failed = 3;
  const std::string svg = length_curves_svg(std::span(&c, 1), {});
  EXPECT_EQ(count(svg, "class=\"hollow\""), 1u);
  EXPECT_THAT(svg, HasSubstr("hollow: n &lt; 5"));
  EXPECT_THAT(svg, HasSubstr("3 failed"));
  EXPECT_THAT(svg, HasSubstr("crossed: some failed"));
}

TEST(LengthCurve, OneLengthAndHostileNames) {
  LengthCurve c{"<script>\x1b", {{4096, 0.5, {}, {}, 10}}, {}};
  const std::string svg = length_curves_svg(std::span(&c, 1), {.heading = "a & b"});
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("a &amp; b"));
  EXPECT_EQ(count(svg, "<circle"), 1u);
}

}  // namespace
}  // namespace hayfork::runs
