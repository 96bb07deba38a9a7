// The published needle results (GPT-4, two runs; Claude 2.1): their cell means are known.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file_map.h"
#include "runs/report/heatmap.h"
#include "tests/support/paths.h"

namespace hayfork::runs {
namespace {

struct Published {
  std::map<std::pair<int64_t, double>, std::vector<double>> scores;
  size_t n = 0;

  void add(int64_t length, double depth, double score) {
    scores[{length, depth}].push_back(score);
    ++n;
  }
  HeatGrid grid() const {
    std::vector<GridCell> cells;
    for (const auto& [key, values] : scores) {
      GridCell cell;
      cell.ctx_len = key.first;
      cell.depth_pct = key.second;
      cell.n = static_cast<int64_t>(values.size());
      double sum = 0;
      for (const double v : values) sum += v;
      cell.mean = sum / static_cast<double>(values.size());
      cells.push_back(cell);
    }
    return make_grid("published", "", cells);
  }
};

Published openai(const std::filesystem::path& file) {
  Published out;
  for (const auto& row : nlohmann::json::parse(read_file(file, ErrorSubject::data)))
    out.add(row["token_limit"], row["depth_percent"], row["score"]);
  return out;
}

TEST(HeatmapData, MeansOfThePublishedRuns) {
  HAY_NEED_DATA(folder, "niah/original_results");
  const Published first = openai(folder / "OpenAI_OriginalResults.json"),
                  second = openai(folder / "OpenAI_OriginalResults_2.json");
  EXPECT_EQ(first.scores.size(), 225u);
  EXPECT_NEAR(*grid_mean(first.grid()), 9.44, 0.005);
  EXPECT_EQ(second.scores.size(), 105u);
  EXPECT_NEAR(*grid_mean(second.grid()), 8.67, 0.005);

  Published claude;
  std::istringstream csv(read_file(folder / "anthropic_claude21_original_results.csv", ErrorSubject::data));
  std::string line;
  std::getline(csv, line);
  while (std::getline(csv, line)) {
    std::istringstream fields(line);
    std::string length, depth, version, score;
    std::getline(fields, length, ',');
    std::getline(fields, depth, ',');
    std::getline(fields, version, ',');
    std::getline(fields, score, ',');
    claude.add(std::stoll(length), std::stod(depth), std::stod(score));
  }
  EXPECT_EQ(claude.n, 1376u);
  EXPECT_EQ(claude.scores.size(), 1225u);
  const HeatGrid grid = claude.grid();
  EXPECT_NEAR(*grid_mean(grid), 6.42, 0.005);
  HeatOptions options;
  options.metric = "score";
  options.low = 1;
  options.high = 10;
  const std::string svg = heatmap_svg(std::vector{grid}, options);
  EXPECT_NE(svg.find("Mean score 6.421"), std::string::npos);
  EXPECT_GT(svg_to_png(svg, 1).size(), 10000u);
}

}  // namespace
}  // namespace hayfork::runs
