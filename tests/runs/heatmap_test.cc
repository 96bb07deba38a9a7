#include "runs/report/heatmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "runs/pairing.h"

namespace hayfork::runs {
namespace {

using testing::HasSubstr;
using testing::Not;

// 2 depths × 2 lengths: a full cell, one with few samples and a failure, one that failed, one that was not run.
HeatGrid small() {
  HeatGrid g{"model <a>", "SWA-64", {0, 50}, {1024, 5000}, {}};
  g.cells = {{1.0, 10, 0, 0, 0.5, 992}, {0.25, 4, 1, 0, 0.0, 4968}, {std::nullopt, 0, 3}, {}};
  return g;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

TEST(Colours, EveryStepCarriesReadableText) {
  for (int i = 0; i < 10; ++i) {
    const Colour c = sequential(i / 10.0 + 0.05, Theme::cividis);
    EXPECT_GE(contrast(c, text_on(c)), i < 5 ? 4.88 : 5.7) << i;
    EXPECT_EQ(css(text_on(c)), i < 5 ? "#ffffff" : "#000000");
  }
  for (int i = -10; i <= 10; ++i) EXPECT_GE(contrast(diverging(i / 10.0), text_on(diverging(i / 10.0))), 4.5);
  for (int i = 0; i <= 20; ++i) {
    const Colour c = sequential(i / 20.0, Theme::classic);
    EXPECT_GE(contrast(c, text_on(c)), 4.5);
  }
}

TEST(Colours, LimitsAreFixed) {
  EXPECT_EQ(css(sequential(0, Theme::cividis)), "#00224e");
  EXPECT_EQ(css(sequential(0.3, Theme::cividis)), "#575d6d");
  EXPECT_EQ(css(sequential(1, Theme::cividis)), "#fee838");
  EXPECT_EQ(css(sequential(7, Theme::cividis)), "#fee838");
  EXPECT_EQ(css(sequential(0, Theme::classic)), "#f0496e");
  EXPECT_EQ(css(sequential(0.5, Theme::classic)), "#ebb839");
  EXPECT_EQ(css(sequential(1, Theme::classic)), "#0cd79f");
  EXPECT_EQ(css(diverging(0)), "#f7f7f7");
  EXPECT_EQ(css(diverging(-1)), "#b2182b");
  EXPECT_EQ(css(diverging(1)), "#2166ac");
}

TEST(Heatmap, MissingAndFailedCellsAreNeverColouredAsZero) {
  HeatGrid g = small();
  g.cells[1].value.reset();
  g.cells[1].n = 0;
  g.cells[1].n_failed = 0;
  g.cells[0].value = 0.95;
  const std::string svg = heatmap_svg(std::vector{g}, {});
  EXPECT_THAT(svg, Not(HasSubstr("#00224e\" width")));
  EXPECT_THAT(svg, HasSubstr("depth 50 %: not run"));
  EXPECT_THAT(svg, HasSubstr("n 0, 3 failed"));
  EXPECT_EQ(count(svg.substr(svg.find("class=\"page\"")), "fill=\"#00224e\""), 1u);  // the colour bar's lowest step
}

TEST(Heatmap, CellsSayWhatTheyRestOn) {
  const std::string svg = heatmap_svg(std::vector{small()}, {});
  EXPECT_THAT(svg, HasSubstr("role=\"img\""));
  EXPECT_THAT(svg,
              HasSubstr("<title id=\"hay-title\">model &lt;a&gt;, acc by context length and needle depth</title>"));
  EXPECT_THAT(svg, HasSubstr("Mean acc 0.786 over 2 cells; lowest 0.250 at length 5,000 and depth 0 %. 1 cells were "
                             "not run. 4 samples failed."));
  EXPECT_THAT(
      svg,
      HasSubstr(
          "model &lt;a&gt;: length 5000, depth 0 %: acc 0.25, n 4, 1 failed, reached depth 0.0 %, 4968 prompt tokens"));
  EXPECT_THAT(svg, HasSubstr(">n10</text>"));
  EXPECT_THAT(svg, HasSubstr(">n4</text>"));
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray"));
  EXPECT_THAT(svg, HasSubstr("url(#hay-cross)"));
  EXPECT_THAT(svg, Not(HasSubstr("model <a>")));
}

TEST(Heatmap, OneCommonSampleCountIsSaidOnce) {
  HeatGrid g = small();
  for (HeatCell& c : g.cells) c = {0.5, 20};
  const std::string svg = heatmap_svg(std::vector{g}, {});
  EXPECT_THAT(svg, HasSubstr("n = 20 per cell"));
  EXPECT_THAT(svg, Not(HasSubstr(">n20</text>")));
  EXPECT_THAT(svg, Not(HasSubstr("fewer than")));
}

TEST(Heatmap, DepthZeroIsAtTheTop) {
  const std::string svg = heatmap_svg(std::vector{small()}, {});
  EXPECT_LT(svg.find("depth 0 %"), svg.find("depth 50 %"));
}

TEST(Heatmap, SeveralGridsShareTheirAxes) {
  HeatGrid a = small(), b = small();
  b.title = "other";
  b.lengths = {1024, 8192};
  const std::string svg = heatmap_svg(std::vector{a, b}, {.heading = "both"});
  EXPECT_EQ(count(svg, ">8K</text>"), 2u);
  EXPECT_EQ(count(svg, ">5,000</text>"), 2u);
  EXPECT_THAT(svg, HasSubstr("other: length 5000, depth 0 %: not run"));
}

TEST(Heatmap, IsTheSameBytesEveryTime) {
  EXPECT_EQ(heatmap_svg(std::vector{small()}, {}), heatmap_svg(std::vector{small()}, {}));
}

TEST(Heatmap, NoTextIsSmallerThanTwelve) {
  const std::string svg = heatmap_svg(std::vector{small(), small()}, {.heading = "x"});
  const std::regex size("font-size=\"([0-9.]+)\"");
  int n = 0;
  for (std::sregex_iterator it(svg.begin(), svg.end(), size), end; it != end; ++it, ++n)
    EXPECT_GE(std::stod((*it)[1]), 12);
  EXPECT_GT(n, 20);
}

TEST(Heatmap, FortyDepthsByThirteenLengthsStaySmall) {
  HeatGrid g{"m", "", {}, {}, {}};
  for (int i = 0; i < 40; ++i) g.depths.push_back(i * 2.5);
  for (int i = 0; i < 13; ++i) g.lengths.push_back(int64_t{512} << i);
  g.cells.assign(40 * 13, {0.5, 10, 0, 0, 50, 1000});
  EXPECT_LT(heatmap_svg(std::vector{g}, {}).size(), 170000u);
}

TEST(Heatmap, MeansWeighCellsByTheirSamples) {
  const HeatGrid g = small();
  EXPECT_DOUBLE_EQ(*grid_mean(g), (10 * 1.0 + 4 * 0.25) / 14);
  EXPECT_DOUBLE_EQ(*column_mean(g, 1), 0.25);
  EXPECT_FALSE(row_mean(g, 1));
}

TEST(Difference, HasValuesWhereBothHave) {
  HeatGrid a = small(), b = small();
  b.cells[0].value = 0.75;
  b.depths = {0, 100};
  const HeatGrid d = difference(a, b);
  EXPECT_EQ(d.depths, (std::vector<double>{0, 50, 100}));
  EXPECT_EQ(*d.at(0, 0).value, -0.25);
  EXPECT_EQ(*d.at(0, 1).value, 0);
  EXPECT_FALSE(d.at(1, 0).value);
  EXPECT_FALSE(d.at(2, 0).value);
  const std::string svg = heatmap_svg(std::vector{d}, {.is_difference = true});
  EXPECT_THAT(svg, HasSubstr(">\u22120.25</text>"));
  EXPECT_THAT(svg, HasSubstr("fill=\"#fddbc7\""));
}

ScoreRow answered(const std::string& doc, double depth, std::optional<double> value) {
  ScoreRow row;
  row.doc_sha256 = doc;
  row.ctx_len = 1024;
  row.depth_pct = depth;
  row.ok = value.has_value();
  row.value = value;
  return row;
}

// The cells' means would say that the candidate is better: it has answered the easy document alone.
TEST(Difference, IsOverTheSamplesThatBothHave) {
  const HeatGrid a{"a", "", {0, 50}, {1024}, {{0.5, 2}, {1.0, 1}}}, b{"b", "", {0, 50}, {1024}, {{1.0, 1}, {0.0, 1}}};
  const TaskPairs pairs = pair_rows({answered("d1", 0, 0.0), answered("d2", 0, 1.0), answered("d3", 50, 1.0)},
                                    {answered("d1", 0, {}), answered("d2", 0, 1.0), answered("d4", 50, 0.0)}, true);
  const HeatGrid d = difference(a, b, pairs);
  EXPECT_EQ(*d.at(0, 0).value, 0);
  EXPECT_EQ(d.at(0, 0).n, 1);
  EXPECT_FALSE(d.at(1, 0).value);
  EXPECT_EQ(*difference(a, b).at(0, 0).value, 0.5);
}

TEST(MakeGrid, LeavesOutWhatHasNoPlace) {
  std::vector<GridCell> cells(3);
  cells[0].ctx_len = 1024;
  cells[0].depth_pct = 50;
  cells[0].n = 2;
  cells[0].mean = 0.5;
  cells[1].ctx_len = 2048;
  const HeatGrid g = make_grid("t", "", cells);
  EXPECT_EQ(g.lengths, std::vector<int64_t>{1024});
  EXPECT_EQ(*g.at(0, 0).value, 0.5);
  EXPECT_THROW(make_grid("t", "", std::span(cells).subspan(1)), Error);
}

TEST(HeatmapText, PlainFormHasNoEscapesAndOnlyAscii) {
  const std::string text = heatmap_text(std::vector{small()}, {}, {.colour = false, .unicode = false});
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int{c};
  EXPECT_THAT(text, HasSubstr("1.00"));
  EXPECT_THAT(text, HasSubstr("0.25!"));
  EXPECT_THAT(text, HasSubstr("x all failed"));
  EXPECT_THAT(text, HasSubstr("- not run"));
}

TEST(HeatmapText, ColouredFormEndsEveryColour) {
  const std::string text = heatmap_text(std::vector{small()}, {}, {});
  EXPECT_EQ(count(text, "\x1b[48;2;"), count(text, "\x1b[0m"));
  EXPECT_THAT(text, HasSubstr("\x1b[48;2;254;232;56m\x1b[38;2;0;0;0m"));
}

TEST(HeatmapText, TitlesCannotSteerTheTerminal) {
  HeatGrid g = small();
  g.title = "bad\x1b[2Jname";
  EXPECT_THAT(heatmap_text(std::vector{g}, {}, {.colour = false}), Not(HasSubstr("\x1b")));
}

TEST(SvgToPng, DrawsAtTheAskedScale) {
  const std::string svg = heatmap_svg(std::vector{small()}, {});
  const std::string png = svg_to_png(svg, 1);
  ASSERT_TRUE(png.starts_with("\x89PNG\r\n\x1a\n"));
  EXPECT_EQ(png, svg_to_png(svg, 1));
  const auto big_endian = [&](size_t at) {
    uint32_t v = 0;
    for (size_t i = 0; i < 4; ++i) v = v << 8 | static_cast<unsigned char>(png[at + i]);
    return v;
  };
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex("width=\"([0-9.]+)\" height=\"([0-9.]+)\"")));
  EXPECT_NEAR(big_endian(16), std::stod(size[1]), 1);
  EXPECT_NEAR(big_endian(20), std::stod(size[2]), 1);
}

TEST(SvgToPng, RefusesWhatIsNoPicture) {
  EXPECT_THROW(svg_to_png("not an svg"), Error);
  EXPECT_THROW(svg_to_png(heatmap_svg(std::vector{small()}, {}), 1000), Error);
}

}  // namespace
}  // namespace hayfork::runs
