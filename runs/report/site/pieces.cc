#include <fmt/format.h>

#include <cmath>

#include "runs/report/site/pages.h"

namespace hayfork::runs {

void page_title(Html& html, const std::string& title, const std::string& below) {
  html.element("h1", title);
  if (!below.empty()) html.element("p", {{"class", "lead"}}, below);
}

void empty_state(Html& html, const std::string& what, const std::string& how) {
  html.open("div", {{"class", "empty"}});
  html.element("p", what);
  if (!how.empty()) html.element("code", how);
  html.close();
}

void plain_table(Html& html, const PlainTable& table) {
  const auto side = [&](size_t c) { return c < table.right.size() && table.right[c] ? "num" : "txt"; };
  html.open("div", {{"class", "scroll"}});
  html.open("table");
  html.open("thead");
  html.open("tr");
  for (size_t c = 0; c < table.columns.size(); ++c)
    html.element("th", {{"class", side(c)}, {"scope", "col"}}, table.columns[c]);
  html.close();
  html.close();
  html.open("tbody");
  for (const auto& row : table.rows) {
    html.open("tr");
    for (size_t c = 0; c < row.size(); ++c) html.element("td", {{"class", side(c)}}, row[c]);
    html.close();
  }
  html.close();
  html.close();
  html.close();
}

void details_table(Html& html, const PlainTable& table) {
  html.open("details", {{"class", "numbers"}});
  html.element("summary", table.caption);
  plain_table(html, table);
  html.close();
}

void badge(Html& html, const std::string& word) {
  const char* kind = "plain";
  if (word == "pass" || word == "done" || word == "better" || word == "same") kind = "good";
  if (word == "fail" || word == "failed" || word == "worse" || word == "error" || word == "scoring_failed")
    kind = "bad";
  if (word == "inconclusive" || word == "partial" || word == "interrupted" || word == "warn" || word == "too few")
    kind = "unsure";
  html.element("span", {{"class", std::string("badge ") + kind}}, word);
}

void legend(Html& html, const std::vector<LegendEntry>& entries) {
  html.open("ul", {{"class", "legend"}});
  for (const LegendEntry& entry : entries) {
    html.open("li");
    html.graphic(legend_marker(entry.mark));
    html.text(" " + entry.label);
    html.close();
  }
  html.close();
}

void model_legend(PageContext& page, Html& html, const std::set<std::string>& labels) {
  std::vector<LegendEntry> entries;
  for (const CrossSource& model : page.models) {
    if (labels.contains(model.label))
      entries.push_back({model.label, page.marks.of(model.label, model.runs.front().model.arch.value_or(""))});
  }
  legend(html, entries);
}

std::string signed_number(double value, int digits) {
  const std::string text = fmt::format("{:.{}f}", std::abs(value), digits);
  if (text.find_first_not_of("0.") == std::string::npos) return "0";
  return (value > 0 ? "+" : "\u2212") + text;
}

std::string short_time(const std::string& iso) {
  if (iso.size() < 16) return iso;
  std::string out = iso.substr(0, 16);
  if (out[10] == 'T') out[10] = ' ';
  return out;
}

}  // namespace hayfork::runs
