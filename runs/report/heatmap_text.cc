#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "runs/report/heatmap.h"

namespace hayfork::runs {
namespace {

constexpr int64_t kFew = 5;
constexpr size_t kCell = 8;  // columns a cell takes

std::string paint(const std::string& text, Colour background) {
  const Colour ink = text_on(background);
  return fmt::format("\x1b[48;2;{};{};{}m\x1b[38;2;{};{};{}m{}\x1b[0m", background.r, background.g, background.b, ink.r,
                     ink.g, ink.b, text);
}

std::string bar(double share) {  // eighths of a block: ▁ … █
  const int eighth = std::clamp(static_cast<int>(std::lround(share * 8)), 0, 8);
  std::string out;
  if (eighth == 0) return " ";
  append_utf8(out, static_cast<char32_t>(0x2580 + eighth));
  return out;
}

std::string number(double v, const HeatOptions& o) {
  const int digits = o.high - o.low > 2 ? 1 : 2;
  return o.is_difference ? fmt::format("{:+.{}f}", v, digits) : fmt::format("{:.{}f}", v, digits);
}

std::string value_text(std::optional<double> v, const char* flag, const HeatOptions& o, const HeatTextOptions& t) {
  if (!v) return fmt::format("{:>{}}", flag, kCell);
  const double span = o.high - o.low;
  const double share = o.is_difference ? std::abs(*v) / span : (*v - o.low) / span;
  const std::string digits = number(*v, o) + (*flag != '\0' ? flag : " ");
  if (t.colour) {
    const Colour background = o.is_difference ? diverging(*v / span) : sequential(share, o.theme);
    return paint(fmt::format("{:>{}}", digits, kCell), background);
  }
  if (!t.unicode || o.is_difference) return fmt::format("{:>{}}", digits, kCell);
  return " " + bar(share) + fmt::format("{:>{}}", digits, kCell - 2);
}

std::string cell_text(const HeatCell& c, const HeatOptions& o, const HeatTextOptions& t) {
  if (!c.value) return value_text(std::nullopt, c.n_failed > 0 ? "x " : t.unicode ? "\u00B7 " : "- ", o, t);
  return value_text(c.value, c.n_failed > 0 || c.n_truncated > 0 ? "!" : c.n < kFew ? "*" : "", o, t);
}

std::string draw(const HeatGrid& grid, const HeatOptions& o, const HeatTextOptions& t) {
  std::string out = printable(grid.title);
  if (!grid.subtitle.empty()) out += "  " + printable(grid.subtitle);
  out += "\n" + o.metric + ", depth % by context length\n";
  out += fmt::format("{:>7} ", "");
  for (const int64_t n : grid.lengths) out += fmt::format("{:>{}} ", length_label(n), kCell - 1);
  out += fmt::format("  {:>{}}\n", "mean", kCell - 1);
  bool few = false, flawed = false, failed = false, missing = false;
  for (size_t r = 0; r < grid.depths.size(); ++r) {
    out += fmt::format("{:>7g} ", grid.depths[r]);
    for (size_t c = 0; c < grid.lengths.size(); ++c) {
      const HeatCell& cell = grid.at(r, c);
      out += cell_text(cell, o, t);
      few |= cell.value && cell.n < kFew;
      flawed |= cell.value && (cell.n_failed > 0 || cell.n_truncated > 0);
      failed |= !cell.value && cell.n_failed > 0;
      missing |= !cell.value && cell.n_failed == 0;
    }
    out += "  " + value_text(row_mean(grid, r), "", o, t) + "\n";
  }
  out += fmt::format("{:>7} ", "mean");
  for (size_t c = 0; c < grid.lengths.size(); ++c) out += value_text(column_mean(grid, c), "", o, t);
  out += "  " + value_text(grid_mean(grid), "", o, t) + "\n";
  std::string legend;
  const auto add = [&](bool used, const char* text) {
    if (used) legend += (legend.empty() ? "" : ", ") + std::string(text);
  };
  add(few, "* fewer than 5 samples");
  add(flawed, "! some failed or cut");
  add(failed, "x all failed");
  add(missing, t.unicode ? "\u00B7 not run" : "- not run");
  return legend.empty() ? out : out + legend + "\n";
}

}  // namespace

std::string heatmap_text(std::span<const HeatGrid> grids, const HeatOptions& options, const HeatTextOptions& text) {
  std::string out = options.heading.empty() ? "" : printable(options.heading) + "\n\n";
  for (size_t i = 0; i < grids.size(); ++i) out += (i > 0 ? "\n" : "") + draw(grids[i], options, text);
  return out;
}

}  // namespace hayfork::runs
