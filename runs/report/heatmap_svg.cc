#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/utf8.h"
#include "runs/report/heatmap.h"
#include "runs/report/svg.h"

namespace hayfork::runs {
namespace {

constexpr double kGap = 6;          // between the cells and their means
constexpr double kBand = 8;         // the cross-hatched strip of a cell with some failed samples
constexpr double kMaxWidth = 1600;  // panels go on in the next row
constexpr int64_t kFew = 5;         // samples below which a cell is outlined

constexpr std::string_view kStyle =
    R"(<style>.page{fill:#ffffff}.ink{fill:#1b1b1b}.soft{fill:#555555}.none{fill:#f1f1f1}.line{stroke:#b4b4b4;fill:none}.dark{stroke:#6a6a6a;fill:none}.edge{stroke:#c4c4c4;fill:none}.mark{stroke:#000000;fill:none}
@media (prefers-color-scheme:dark){.page{fill:#15181d}.ink{fill:#e8e8e8}.soft{fill:#b0b0b0}.none{fill:#262a31}.line{stroke:#555b66}.dark{stroke:#9aa0aa}.edge{stroke:#444a54}.mark{stroke:#ffffff}}</style>
)";

std::string id_of(const HeatOptions& o, const char* what) {
  return (o.page_id.empty() ? "hay" : o.page_id) + "-" + what;
}

std::string pattern_fill(const HeatOptions& o, const char* what) {
  return "fill=\"url(#" + id_of(o, what) + ")\"";
}

std::string definitions(const HeatOptions& o) {
  return fmt::format(
      "<defs>\n<pattern id=\"{}\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\"><rect class=\"none\" "
      "width=\"7\" height=\"7\"/><path class=\"line\" d=\"M-1 1L1 -1M0 7L7 0M6 8L8 6\"/></pattern>\n"
      "<pattern id=\"{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect class=\"none\" width=\"6\" "
      "height=\"6\"/><path class=\"dark\" d=\"M0 6L6 0M0 0L6 6\"/></pattern>\n</defs>\n{}",
      id_of(o, "hatch"), id_of(o, "cross"), o.page_id.empty() ? kStyle : "");
}

// What all panels share: axes, sizes, colours.
struct Layout {
  std::vector<double> depths;
  std::vector<int64_t> lengths;
  double cell_w = 0, cell_h = 0;
  double left = 0;     // room for depth labels and the axis title
  double top = 0;      // for titles
  double bottom = 46;  // for length labels and the axis title
  double panel_w = 0, panel_h = 0;
  bool varying_n = false;  // then every cell shows its own

  double grid_w() const { return cell_w * static_cast<double>(lengths.size()); }
  double grid_h() const { return cell_h * static_cast<double>(depths.size()); }
};

const HeatCell* find_cell(const HeatGrid& grid, double depth, int64_t length) {
  const auto r = std::lower_bound(grid.depths.begin(), grid.depths.end(), depth);
  const auto c = std::lower_bound(grid.lengths.begin(), grid.lengths.end(), length);
  if (r == grid.depths.end() || *r != depth || c == grid.lengths.end() || *c != length) return nullptr;
  return &grid.at(static_cast<size_t>(r - grid.depths.begin()), static_cast<size_t>(c - grid.lengths.begin()));
}

// The one n of all cells that were run, or nothing when they differ.
std::optional<int64_t> common_n(const HeatGrid& grid) {
  std::optional<int64_t> n;
  for (const HeatCell& c : grid.cells) {
    if (c.n == 0) continue;
    if (n && *n != c.n) return std::nullopt;
    n = c.n;
  }
  return n;
}

// "n = 10 per cell"; where cells differ and do not say it themselves, "n = 5 to 6 per cell".
std::string count_label(const HeatGrid& grid, bool always) {
  if (const auto n = common_n(grid)) return fmt::format("n = {} per cell", *n);
  int64_t least = 0, most = 0;
  for (const HeatCell& c : grid.cells) {
    if (c.n > 0) least = least == 0 ? c.n : std::min(least, c.n);
    most = std::max(most, c.n);
  }
  return always && most > 0 ? fmt::format("n = {} to {} per cell", least, most) : "";
}

std::string depth_label(double depth) {
  return fmt::format("{:g}", depth);
}

std::string value_label(double v, const HeatOptions& o) {
  if (o.is_difference) {
    const std::string digits = fmt::format("{:.{}f}", std::abs(v), o.high - o.low > 2 ? 1 : 2);
    if (digits.find_first_not_of("0.") == std::string::npos) return "0";
    return (v > 0 ? "+" : "\u2212") + digits;
  }
  return fmt::format("{:.{}f}", v, o.high - o.low > 2 ? 1 : 2);
}

Colour cell_colour(double v, const HeatOptions& o) {
  if (o.is_difference) return diverging(v / (o.high - o.low));
  return sequential((v - o.low) / (o.high - o.low), o.theme);
}

Layout make_layout(std::span<const HeatGrid> grids, bool in_page) {
  Layout l;
  std::set<double> depths;
  std::set<int64_t> lengths;
  bool subtitle = false;
  for (const HeatGrid& g : grids) {
    depths.insert(g.depths.begin(), g.depths.end());
    lengths.insert(g.lengths.begin(), g.lengths.end());
    l.varying_n |= !common_n(g) && grid_mean(g);
    subtitle |= !g.subtitle.empty();
  }
  l.depths.assign(depths.begin(), depths.end());
  l.lengths.assign(lengths.begin(), lengths.end());
  l.cell_h = l.depths.size() <= 12 ? 30 : l.depths.size() <= 22 ? 25 : 22;
  l.cell_w = l.varying_n ? 88 : l.lengths.size() <= 6 ? 72 : l.lengths.size() <= 10 ? 62 : 56;
  if (in_page) {
    l.cell_w = 46;
    l.varying_n = false;  // no room: the panel's title says from where to where
  }
  double label = text_width("mean", 12);
  for (const double d : l.depths) label = std::max(label, text_width(depth_label(d), 12));
  l.left = label + 34;
  l.top = subtitle ? 66 : 50;
  l.panel_w = std::max(l.left + l.grid_w() + kGap + l.cell_w + 16, 300.0);
  l.panel_h = l.top + l.grid_h() + kGap + l.cell_h + l.bottom;
  return l;
}

// Cut with an ellipsis where the line would be wider.
std::string shorten(const std::string& text, double width, double size) {
  if (text_width(text, size) <= width) return text;
  std::u32string characters = to_code_points(text);
  characters.resize(std::min(characters.size(), static_cast<size_t>(std::max(1.0, width / (0.62 * size) - 1))));
  return to_utf8(characters) + "\u2026";
}

std::string tooltip(const HeatGrid& grid, const HeatCell* c, double depth, int64_t length, const HeatOptions& o) {
  std::string out = fmt::format("{}: length {}, depth {:g} %", grid.title, length, depth);
  if (c == nullptr || (c->n == 0 && c->n_failed == 0)) return out + ": not run";
  if (c->value) out += fmt::format(": {} {}{:.4g}", o.metric, o.is_difference && *c->value > 0 ? "+" : "", *c->value);
  out += fmt::format(", n {}", c->n);
  if (c->n_failed > 0) out += fmt::format(", {} failed", c->n_failed);
  if (c->n_truncated > 0) out += fmt::format(", {} cut", c->n_truncated);
  if (c->depth_real) out += fmt::format(", reached depth {:.1f} %", *c->depth_real);
  if (c->prompt_tokens) out += fmt::format(", {:.0f} prompt tokens", *c->prompt_tokens);
  return out;
}

std::string rect(double x, double y, double w, double h, std::string_view rest) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}/>\n", coordinate(x), coordinate(y),
                     coordinate(w), coordinate(h), rest);
}

std::string draw_cell(const Layout& l, double x, double y, const HeatCell* c, const HeatOptions& o) {
  const double w = l.cell_w - 1, h = l.cell_h - 1;
  if (c == nullptr || !c->value) {
    const bool failed = c != nullptr && c->n_failed > 0;
    return rect(x, y, w, h, pattern_fill(o, failed ? "cross" : "hatch"));
  }
  const Colour background = cell_colour(*c->value, o), ink = text_on(background);
  const std::string ink_css = css(ink);
  std::string out = rect(x, y, w, h, fmt::format("fill=\"{}\"", css(background)));
  const bool flawed = c->n_failed > 0 || c->n_truncated > 0;
  if (flawed) out += rect(x, y, kBand, h, pattern_fill(o, "cross"));
  if (c->n < kFew)
    out += rect(x + 1.5, y + 1.5, w - 3, h - 3,
                fmt::format("fill=\"none\" stroke=\"{}\" stroke-dasharray=\"1.5 2.5\"", ink_css));
  if (c->marked)
    out += rect(x + 1, y + 1, w - 2, h - 2, fmt::format("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"", ink_css));
  const double base = y + h / 2 + 4.5, from = x + (flawed ? kBand : 0);
  if (!l.varying_n)
    return out + svg_text((from + x + w) / 2, base, value_label(*c->value, o), {13, "middle", "", ink_css.c_str()});
  out += svg_text(from + 7, base, value_label(*c->value, o), {13, "start", "", ink_css.c_str()});
  return out + svg_text(x + w - 6, base, fmt::format("n{}", c->n), {12, "end", "", ink_css.c_str()});
}

std::string draw_mean(const Layout& l, double x, double y, std::optional<double> v, const HeatOptions& o) {
  if (!v) return rect(x, y, l.cell_w - 1, l.cell_h - 1, pattern_fill(o, "hatch"));
  const Colour background = cell_colour(*v, o);
  const std::string ink = css(text_on(background));
  return rect(x, y, l.cell_w - 1, l.cell_h - 1, fmt::format("fill=\"{}\"", css(background))) +
         svg_text(x + (l.cell_w - 1) / 2, y + (l.cell_h - 1) / 2 + 4.5, value_label(*v, o),
                  {13, "middle", "", ink.c_str(), true});
}

std::string draw_titles(const Layout& l, double x, double y, const HeatGrid& grid, const HeatOptions& o) {
  const double room = l.panel_w - l.left - 8;
  std::string out = svg_text(x + l.left, y + 20, shorten(grid.title, room, 16), {16, "start", "ink", nullptr, true});
  double line = y + 38;
  if (!grid.subtitle.empty()) {
    out += svg_text(x + l.left, line, shorten(grid.subtitle, room, 12), {12, "start", "soft"});
    line += 16;
  }
  std::string facts;
  if (const auto mean = grid_mean(grid)) facts = fmt::format("mean {} {}", o.metric, value_label(*mean, o));
  if (const std::string n = count_label(grid, !o.page_id.empty()); !n.empty()) facts += (facts.empty() ? "" : ", ") + n;
  return out + svg_text(x + l.left, line, shorten(facts, room, 12), {12, "start", "soft"});
}

std::string draw_panel(const Layout& l, double x, double y, const HeatGrid& grid, const HeatOptions& o) {
  std::string out = draw_titles(l, x, y, grid, o);
  const double gx = x + l.left, gy = y + l.top, mean_x = gx + l.grid_w() + kGap, mean_y = gy + l.grid_h() + kGap;
  for (size_t r = 0; r < l.depths.size(); ++r) {
    const double cy = gy + static_cast<double>(r) * l.cell_h;
    out += svg_text(gx - 8, cy + l.cell_h / 2 + 4, depth_label(l.depths[r]), {12, "end", "ink"});
    for (size_t c = 0; c < l.lengths.size(); ++c) {
      const HeatCell* cell = find_cell(grid, l.depths[r], l.lengths[c]);
      out += (o.page_id.empty() ? "<g>" : fmt::format("<g class=\"cell\" data-r=\"{}\" data-c=\"{}\">", r, c)) +
             "<title>" + xml_text(tooltip(grid, cell, l.depths[r], l.lengths[c], o)) + "</title>" +
             draw_cell(l, gx + static_cast<double>(c) * l.cell_w, cy, cell, o) + "</g>\n";
    }
    const auto own = std::find(grid.depths.begin(), grid.depths.end(), l.depths[r]);
    out += draw_mean(
        l, mean_x, cy,
        own == grid.depths.end() ? std::nullopt : row_mean(grid, static_cast<size_t>(own - grid.depths.begin())), o);
  }
  const double label_y = mean_y + l.cell_h + 15;
  for (size_t c = 0; c < l.lengths.size(); ++c) {
    const double cx = gx + static_cast<double>(c) * l.cell_w;
    const auto own = std::find(grid.lengths.begin(), grid.lengths.end(), l.lengths[c]);
    out += draw_mean(
        l, cx, mean_y,
        own == grid.lengths.end() ? std::nullopt : column_mean(grid, static_cast<size_t>(own - grid.lengths.begin())),
        o);
    out += svg_text(cx + (l.cell_w - 1) / 2, label_y, length_label(l.lengths[c]), {12, "middle", "ink"});
  }
  out += draw_mean(l, mean_x, mean_y, grid_mean(grid), o);
  out += svg_text(gx - 8, mean_y + l.cell_h / 2 + 4, "mean", {12, "end", "soft"});
  out += svg_text(mean_x + (l.cell_w - 1) / 2, label_y, "mean", {12, "middle", "soft"});
  out += svg_text(gx + l.grid_w() / 2, label_y + 20, "context length (tokens)", {12, "middle", "soft"});
  return out +
         svg_text(x + 14, gy + (l.grid_h() + kGap + l.cell_h) / 2, "needle depth (%)", {12, "middle", "soft"}, -90);
}

std::string draw_colour_bar(double x, double y, double height, const HeatOptions& o) {
  const int steps = o.is_difference ? 9 : o.theme == Theme::cividis ? 10 : 40;
  const double span = o.high - o.low, low = o.is_difference ? -span : o.low, all = o.is_difference ? 2 * span : span;
  std::string out;
  for (int i = 0; i < steps; ++i) {
    const double h = height / steps, middle = low + all * (i + 0.5) / steps;
    // A little taller than its share, so that no seam shows between steps.
    out += rect(x, y + height - (i + 1) * h, 14, h + (i > 0 ? 0.5 : 0),
                fmt::format("fill=\"{}\"", css(cell_colour(middle, o))));
  }
  out += rect(x, y, 14, height, "class=\"edge\"");
  const int ticks = height < 110 ? 2 : o.is_difference ? 4 : 5;
  for (int i = 0; i <= ticks; ++i) {
    const double v = low + all * i / ticks, ty = y + height - height * i / ticks;
    out += svg_text(x + 20, ty + 4, value_label(v, o), {12, "start", "ink"});
  }
  return out + svg_text(x, y - 12, o.is_difference ? "\u0394 " + o.metric : o.metric, {12, "start", "soft"});
}

struct Marks {
  bool missing = false, failed = false, partly = false, few = false, marked = false;
};

Marks marks_of(std::span<const HeatGrid> grids, const Layout& l) {
  Marks m;
  for (const HeatGrid& g : grids)
    for (const double d : l.depths)
      for (const int64_t n : l.lengths) {
        const HeatCell* c = find_cell(g, d, n);
        m.missing |= c == nullptr || (!c->value && c->n_failed == 0);
        if (c == nullptr) continue;
        m.failed |= !c->value && c->n_failed > 0;
        m.partly |= c->value && (c->n_failed > 0 || c->n_truncated > 0);
        m.few |= c->value && c->n < kFew;
        m.marked |= c->marked;
      }
  return m;
}

std::string draw_legend(double x, double y, const Marks& m, const HeatOptions& o, double& width) {
  std::string out;
  const auto item = [&](bool used, std::string_view box, std::string_view text) {
    if (!used) return;
    out += rect(x, y, 24, 14, box) + svg_text(x + 30, y + 11.5, text, {12, "start", "soft"});
    x += 30 + text_width(text, 12) + 18;
  };
  item(m.missing, pattern_fill(o, "hatch"), "not run");
  item(m.failed, pattern_fill(o, "cross"), "all failed");
  if (m.partly) {
    out += rect(x, y, kBand, 14, pattern_fill(o, "cross"));
    item(true, "class=\"edge\"", "some failed or cut");
  }
  item(m.few, "class=\"mark\" stroke-dasharray=\"1.5 2.5\"", fmt::format("fewer than {} samples", kFew));
  item(m.marked, "class=\"mark\" stroke-width=\"2\"", "significant");
  width = x;
  return out;
}

}  // namespace

std::string heatmap_svg(std::span<const HeatGrid> grids, const HeatOptions& o) {
  HAY_CHECK(!grids.empty() && o.high > o.low);
  for (const HeatGrid& g : grids) HAY_CHECK(!g.cells.empty() && g.cells.size() == g.depths.size() * g.lengths.size());
  const Layout l = make_layout(grids, !o.page_id.empty());
  const auto columns = std::clamp<size_t>(static_cast<size_t>(kMaxWidth / l.panel_w), 1, grids.size());
  const size_t rows = (grids.size() + columns - 1) / columns;
  const double head = o.heading.empty() ? 8 : 40;
  const double bar_x = 8 + static_cast<double>(columns) * l.panel_w + 8;
  const double legend_y = head + static_cast<double>(rows) * l.panel_h + 4;
  const Marks m = marks_of(grids, l);
  double legend_w = 0;
  const std::string legend = o.page_id.empty() ? draw_legend(8 + l.left, legend_y, m, o, legend_w) : "";
  const double width = std::max(o.page_id.empty() ? bar_x + 20 + text_width("+0.00", 12) + 12 : bar_x, legend_w);
  const double height = legend_y + (legend.empty() ? 6 : 26);

  const std::string name = o.heading.empty() ? (grids.size() == 1 ? grids[0].title : "Heatmaps") : o.heading;
  std::string description;
  for (const HeatGrid& g : grids) description += (grids.size() > 1 ? g.title + ": " : "") + finding(g, o.metric) + " ";
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "aria-labelledby=\"{6} {7}\" {2}>\n<title id=\"{6}\">{3}</title>\n<desc id=\"{7}\">{4}</desc>\n{5}",
      coordinate(width), coordinate(height), kSvgFont,
      xml_text(name + ", " + o.metric + " by context length and needle depth"), xml_text(description), definitions(o),
      id_of(o, "title"), id_of(o, "desc"));
  out += rect(0, 0, width, height, "class=\"page\"");
  if (!o.heading.empty())
    out += svg_text(8 + l.left, 27, shorten(o.heading, width - l.left - 16, 18), {18, "start", "ink", nullptr, true});
  for (size_t i = 0; i < grids.size(); ++i)
    out += draw_panel(l, 8 + static_cast<double>(i % columns) * l.panel_w,
                      head + static_cast<double>(i / columns) * l.panel_h, grids[i], o);
  if (o.page_id.empty()) out += draw_colour_bar(bar_x, head + l.top, std::max(l.grid_h(), 60.0), o);
  return out + legend + "</svg>\n";
}

std::string heatmap_details(const HeatGrid& grid, const HeatOptions& o) {
  std::string out =
      "<details><summary>" + xml_text(grid.title) + " as a table</summary>\n<table>\n<tr><th>depth %</th>";
  for (const int64_t n : grid.lengths) out += "<th>" + length_label(n) + "</th>";
  out += "</tr>\n";
  for (size_t r = 0; r < grid.depths.size(); ++r) {
    out += "<tr><th>" + depth_label(grid.depths[r]) + "</th>";
    for (size_t c = 0; c < grid.lengths.size(); ++c) {
      const HeatCell& cell = grid.at(r, c);
      std::string text = cell.value          ? fmt::format("{} (n {})", value_label(*cell.value, o), cell.n)
                         : cell.n_failed > 0 ? "failed"
                                             : "not run";
      if (cell.value && cell.n_failed > 0) text += fmt::format(", {} failed", cell.n_failed);
      out += "<td>" + xml_text(text) + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</table></details>\n";
}

}  // namespace hayfork::runs
