// Heatmaps of length × depth: one grid, several side by side on common axes, or the difference of two; as SVG, PNG and
// terminal text. A grid is plain numbers: it knows no run and no database. A cell that was not run is hatched, one
// where samples failed is cross-hatched; neither is ever coloured like a low score. Output is a function of the input
// alone, byte for byte.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runs/report/colours.h"
#include "runs/views.h"

namespace hayfork::runs {

struct TaskPairs;  // runs/pairing.h

struct HeatCell {
  std::optional<double> value;  // mean of the samples that count; empty when there are none
  int64_t n = 0;                // those samples
  int64_t n_failed = 0, n_truncated = 0;
  std::optional<double> depth_real, prompt_tokens;  // means of what was reached
  bool marked = false;                              // a thick outline: a significant difference
};

struct HeatGrid {
  std::string title, subtitle;   // model, its architecture
  std::vector<double> depths;    // rows, percent, ascending: 0 is at the top
  std::vector<int64_t> lengths;  // columns, tokens, ascending
  std::vector<HeatCell> cells;   // depths × lengths, row by row

  const HeatCell& at(size_t row, size_t column) const { return cells[row * lengths.size() + column]; }
  HeatCell& at(size_t row, size_t column) { return cells[row * lengths.size() + column]; }
};

// Cells without a length or depth are left out. Throws: usage when none is left (the task has no such grid).
HeatGrid make_grid(std::string title, std::string subtitle, std::span<const GridCell> cells);
// Gives all the same lengths and depths; cells that a grid lacks are empty.
void align_axes(std::vector<HeatGrid>& grids);
// candidate − base, on the cells that both have: of their means.
HeatGrid difference(const HeatGrid& base, const HeatGrid& candidate);
// The same over the samples that both runs answered, n counting them: what one run alone has answered moves no cell.
HeatGrid difference(const HeatGrid& base, const HeatGrid& candidate, const TaskPairs& pairs);
// Means over samples (cells weighted by n), so that they equal the task's aggregates; empty where no cell has a value.
std::optional<double> grid_mean(const HeatGrid& grid);
std::optional<double> row_mean(const HeatGrid& grid, size_t row);
std::optional<double> column_mean(const HeatGrid& grid, size_t column);
// One or two sentences: the mean, the weakest cell, what is missing or failed.
std::string finding(const HeatGrid& grid, const std::string& metric);

struct HeatOptions {
  std::string metric = "acc";
  double low = 0, high = 1;  // the colours' fixed limits; a difference runs from −(high − low) to +(high − low)
  Theme theme = Theme::cividis;
  bool is_difference = false;
  std::string heading = {};  // over several grids
  // Not empty: a part of a page, which has the style sheet. Ids begin with it, cells are smaller and can be walked
  // through by keyboard (g.cell with data-r and data-c), and there is no bar of colours and no legend: the page says
  // once what cells mean.
  std::string page_id = {};
};

// Requires: at least one grid with at least one cell.
std::string heatmap_svg(std::span<const HeatGrid> grids, const HeatOptions& options);
// The same numbers as a table inside <details>, for pages.
std::string heatmap_details(const HeatGrid& grid, const HeatOptions& options);

struct HeatTextOptions {
  bool colour = true;   // 24-bit terminal colours; false for NO_COLOR and pipes
  bool unicode = true;  // block characters; false: ASCII only
};
std::string heatmap_text(std::span<const HeatGrid> grids, const HeatOptions& options, const HeatTextOptions& text);

// Bytes of a PNG, `scale` pixels a unit. Throws: corrupt for what is no SVG, resource above 100 million pixels.
std::string svg_to_png(const std::string& svg, double scale = 2);

// 4096 → "4K", 1048576 → "1M", 5000 → "5,000".
std::string length_label(int64_t tokens);

}  // namespace hayfork::runs
