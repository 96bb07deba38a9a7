#include "runs/report/heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "runs/pairing.h"

namespace hayfork::runs {
namespace {

template <typename Take>
std::optional<double> mean(size_t n, Take cell) {
  double sum = 0;
  int64_t count = 0;
  for (size_t i = 0; i < n; ++i)
    if (const HeatCell& c = cell(i); c.value) {
      sum += *c.value * static_cast<double>(c.n);
      count += c.n;
    }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace

HeatGrid make_grid(std::string title, std::string subtitle, std::span<const GridCell> cells) {
  std::set<double> depths;
  std::set<int64_t> lengths;
  for (const GridCell& c : cells)
    if (c.ctx_len && c.depth_pct) {
      depths.insert(*c.depth_pct);
      lengths.insert(*c.ctx_len);
    }
  if (depths.empty())
    throw Error(ErrorCode::usage, ErrorSubject::general, "nothing to draw a heatmap of",
                {title, "no sample has both a length and a depth", "choose a needle task, as RUN:TASK"});
  HeatGrid grid{
      std::move(title), std::move(subtitle), {depths.begin(), depths.end()}, {lengths.begin(), lengths.end()}, {}};
  grid.cells.resize(depths.size() * lengths.size());
  for (const GridCell& c : cells) {
    if (!c.ctx_len || !c.depth_pct) continue;
    const auto row = std::distance(depths.begin(), depths.find(*c.depth_pct));
    const auto column = std::distance(lengths.begin(), lengths.find(*c.ctx_len));
    grid.at(static_cast<size_t>(row), static_cast<size_t>(column)) = {
        c.mean, c.n, c.n_failed, c.n_truncated, c.depth_real, c.prompt_tokens, false};
  }
  return grid;
}

void align_axes(std::vector<HeatGrid>& grids) {
  std::set<double> depths;
  std::set<int64_t> lengths;
  for (const HeatGrid& g : grids) {
    depths.insert(g.depths.begin(), g.depths.end());
    lengths.insert(g.lengths.begin(), g.lengths.end());
  }
  for (HeatGrid& g : grids) {
    HeatGrid all{g.title, g.subtitle, {depths.begin(), depths.end()}, {lengths.begin(), lengths.end()}, {}};
    all.cells.resize(all.depths.size() * all.lengths.size());
    for (size_t r = 0; r < g.depths.size(); ++r) {
      const auto row = std::lower_bound(all.depths.begin(), all.depths.end(), g.depths[r]) - all.depths.begin();
      for (size_t c = 0; c < g.lengths.size(); ++c) {
        const auto column =
            std::lower_bound(all.lengths.begin(), all.lengths.end(), g.lengths[c]) - all.lengths.begin();
        all.at(static_cast<size_t>(row), static_cast<size_t>(column)) = g.at(r, c);
      }
    }
    g = std::move(all);
  }
}

HeatGrid difference(const HeatGrid& base, const HeatGrid& candidate) {
  HeatGrid out{candidate.title + " \u2212 " + base.title, "", {}, {}, {}};
  std::set<double> depths(base.depths.begin(), base.depths.end());
  std::set<int64_t> lengths(base.lengths.begin(), base.lengths.end());
  depths.insert(candidate.depths.begin(), candidate.depths.end());
  lengths.insert(candidate.lengths.begin(), candidate.lengths.end());
  out.depths.assign(depths.begin(), depths.end());
  out.lengths.assign(lengths.begin(), lengths.end());
  const auto find = [](const HeatGrid& grid, double depth, int64_t length) -> const HeatCell* {
    const auto r = std::find(grid.depths.begin(), grid.depths.end(), depth);
    const auto c = std::find(grid.lengths.begin(), grid.lengths.end(), length);
    if (r == grid.depths.end() || c == grid.lengths.end()) return nullptr;
    return &grid.at(static_cast<size_t>(r - grid.depths.begin()), static_cast<size_t>(c - grid.lengths.begin()));
  };
  for (const double depth : out.depths)
    for (const int64_t length : out.lengths) {
      HeatCell cell;
      const HeatCell *b = find(base, depth, length), *c = find(candidate, depth, length);
      if (b != nullptr && c != nullptr) {
        if (b->value && c->value) cell.value = *c->value - *b->value;
        cell.n = std::min(b->n, c->n);
        cell.n_failed = b->n_failed + c->n_failed;
        cell.n_truncated = b->n_truncated + c->n_truncated;
      }
      out.cells.push_back(cell);
    }
  return out;
}

HeatGrid difference(const HeatGrid& base, const HeatGrid& candidate, const TaskPairs& pairs) {
  HeatGrid out = difference(base, candidate);
  for (HeatCell& cell : out.cells) {
    cell.value.reset();
    cell.n = 0;
  }
  for (const Pair& pair : pairs.pairs) {
    if (!pair.cand->depth_pct || !pair.cand->ctx_len) continue;
    const auto r = std::lower_bound(out.depths.begin(), out.depths.end(), *pair.cand->depth_pct) - out.depths.begin();
    const auto c = std::lower_bound(out.lengths.begin(), out.lengths.end(), *pair.cand->ctx_len) - out.lengths.begin();
    HeatCell& cell = out.at(static_cast<size_t>(r), static_cast<size_t>(c));
    cell.value = cell.value.value_or(0) + *pair.cand->value - *pair.base->value;
    ++cell.n;
  }
  for (HeatCell& cell : out.cells)
    if (cell.value) *cell.value /= static_cast<double>(cell.n);
  return out;
}

std::optional<double> grid_mean(const HeatGrid& grid) {
  return mean(grid.cells.size(), [&](size_t i) -> const HeatCell& { return grid.cells[i]; });
}

std::optional<double> row_mean(const HeatGrid& grid, size_t row) {
  return mean(grid.lengths.size(), [&](size_t i) -> const HeatCell& { return grid.at(row, i); });
}

std::optional<double> column_mean(const HeatGrid& grid, size_t column) {
  return mean(grid.depths.size(), [&](size_t i) -> const HeatCell& { return grid.at(i, column); });
}

std::string length_label(int64_t tokens) {
  if (tokens >= 1048576 && tokens % 1048576 == 0) return fmt::format("{}M", tokens / 1048576);
  if (tokens >= 1024 && tokens % 1024 == 0) return fmt::format("{}K", tokens / 1024);
  std::string digits = std::to_string(tokens);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string finding(const HeatGrid& grid, const std::string& metric) {
  const std::optional<double> overall = grid_mean(grid);
  int64_t n_missing = 0, n_failed = 0, n_truncated = 0;
  size_t weakest = grid.cells.size();
  for (size_t i = 0; i < grid.cells.size(); ++i) {
    const HeatCell& c = grid.cells[i];
    n_missing += c.n == 0 && c.n_failed == 0;
    n_failed += c.n_failed;
    n_truncated += c.n_truncated;
    if (c.value && (weakest == grid.cells.size() || *c.value < *grid.cells[weakest].value)) weakest = i;
  }
  std::string out;
  if (!overall) {
    out = fmt::format("No cell has a value for {}.", metric);
  } else {
    out =
        fmt::format("Mean {} {:.3f} over {} cells; lowest {:.3f} at length {} and depth {:g} %.", metric, *overall,
                    grid.cells.size() - static_cast<size_t>(std::count_if(grid.cells.begin(), grid.cells.end(),
                                                                          [](const HeatCell& c) { return !c.value; })),
                    *grid.cells[weakest].value, length_label(grid.lengths[weakest % grid.lengths.size()]),
                    grid.depths[weakest / grid.lengths.size()]);
  }
  if (n_missing > 0) out += fmt::format(" {} cells were not run.", n_missing);
  if (n_failed > 0) out += fmt::format(" {} samples failed.", n_failed);
  if (n_truncated > 0) out += fmt::format(" {} prompts were cut.", n_truncated);
  return out;
}

}  // namespace hayfork::runs
