// Overview: models × tasks, gates, warnings, runs.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "runs/report/site/pages.h"

namespace hayfork::runs {
namespace {

constexpr int64_t kGates = 12;
constexpr int64_t kMostSamples = 200'000;  // read for the tests behind the best marks; a page comes in about a second

int64_t n_samples(const std::vector<CrossSource>& models) {
  int64_t n = 0;
  for (const CrossSource& model : models) {
    for (const RunView& run : model.runs) {
      for (const RunTaskView& task : run.tasks) n += task.row.n_done;
    }
  }
  return n;
}

void find_tool(Html& html, const std::string& table, const std::string& label) {
  html.open("label");
  html.text(label + " ");
  html.single("input", {{"type", "search"}, {"data-find", table}});
  html.close();
}

void arch_tool(Html& html, const std::string& table, const std::vector<std::string>& archs) {
  if (archs.size() < 2) return;
  html.open("label");
  html.text("Architecture ");
  html.open("select", {{"data-pick", table}});
  html.element("option", {{"value", ""}}, "all");
  for (const std::string& arch : archs) html.element("option", {{"value", arch}}, arch);
  html.close();
  html.close();
}

template <typename Rows, typename Arch>
std::vector<std::string> archs_of(const Rows& rows, Arch arch) {
  std::set<std::string> seen;
  for (const auto& row : rows) {
    if (const OptText name = arch(row)) seen.insert(*name);
  }
  return {seen.begin(), seen.end()};
}

void score(Html& html, const CrossCell& cell, const LayoutColumn& column) {
  if (!cell.value) return html.element("td", {{"class", "num none"}, {"title", "not run"}}, "–");
  html.open("td", {{"class", cell.best ? "num best" : "num"},
                   {"data-v", fmt::format("{:.9g}", *cell.value)},
                   {"title", fmt::format("{}, n = {}", cell.run_id, cell.n)}});
  html.element("span", {{"class", "value"}},
               column_text(*cell.value, column) + (cell.best ? "*" : "") + (cell.comparable ? "" : "†"));
  if (cell.ci_low && cell.ci_high) {
    html.element("span", {{"class", "ci"}},
                 fmt::format("{}–{}", column_text(*cell.ci_low, column), column_text(*cell.ci_high, column)));
  }
  html.element("span", {{"class", "n"}}, fmt::format("n {}", format_count(cell.n)));
  html.close();
}

void models_by_tasks(PageContext& page, Html& html) {
  html.element("h2", "Models × tasks");
  CrossOptions options;
  options.groups = page.options.groups;
  options.best = n_samples(page.models) <= kMostSamples;
  CrossTable table = cross_table(page.store, page.models, task_columns(page.models, {}, options.groups), options);
  if (table.columns.empty())
    return empty_state(html, "No run has finished yet.", "hayfork run --model DIR --tasks niah");
  html.open("div", {{"class", "tools"}});
  arch_tool(html, "models", archs_of(table.rows, [](const CrossRow& row) { return row.arch; }));
  find_tool(html, "models", "Model");
  html.close();
  html.open("div", {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", "Models by tasks"}});
  html.open("table", {{"id", "models"}, {"class", "sortable cross"}});
  html.open("thead");
  html.open("tr");
  html.element("th", {{"scope", "col"}}, "model");
  html.element("th", {{"scope", "col"}}, "architecture");
  html.element("th", {{"scope", "col"}, {"class", "num"}, {"title", "parameters without embeddings"}}, "N");
  html.element("th", {{"scope", "col"}, {"class", "num"}, {"title", "training tokens"}}, "D");
  for (const LayoutColumn& column : table.columns)
    html.element("th", {{"scope", "col"}, {"class", "num"}}, column.title + (column.higher_is_better ? " ↑" : " ↓"));
  html.close();
  html.close();
  html.open("tbody");
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const CrossRow& row = table.rows[r];
    html.open("tr", {{"data-arch", row.arch.value_or("")}});
    html.open("th", {{"scope", "row"}});
    html.link(page.href("run-" + page_stem(page.models[r].runs.front().run.run_id)), row.label);
    if (row.other_input) html.text(" ‡");
    html.close();
    html.element("td", row.arch.value_or("–"));
    const auto count = [&](const OptInt& n) {
      html.element("td", {{"class", "num"}, {"data-v", std::to_string(n.value_or(0))}}, n ? count_text(n) : "–");
    };
    count(row.n_params);
    count(row.train_tokens);
    for (size_t c = 0; c < row.cells.size(); ++c) score(html, row.cells[c], table.columns[c]);
    html.close();
  }
  html.close();
  html.close();
  html.close();
  if (!options.best)
    html.element("p", {{"class", "note"}},
                 fmt::format("The best of a column is not marked here: more than {} samples. hayfork table does it.",
                             format_count(kMostSamples)));
  for (const std::string& note : table.notes) html.element("p", {{"class", "note"}}, note);
  html.element("p", {{"class", "note"}},
               "Shares in percent; below each its 95 % interval and number of samples. – not run.");
}

void gates(PageContext& page, Html& html) {
  const std::vector<GateListRow> rows = page.reader.gates(kGates);
  if (rows.empty()) return;
  html.element("h2", "Gates");
  html.open("div", {{"class", "scroll"}});
  html.open("table");
  html.open("thead");
  html.open("tr");
  for (const char* name : {"verdict", "candidate", "baseline", "judged", "worse", "better", "when"})
    html.element("th", {{"scope", "col"}}, name);
  html.close();
  html.close();
  html.open("tbody");
  for (const GateListRow& row : rows) {
    html.open("tr");
    html.open("td");
    badge(html, row.verdict);
    html.close();
    html.open("td");
    page.run_link(html, row.cand);
    html.close();
    html.open("td");
    page.run_link(html, row.base);
    if (row.baseline_name) html.text(" " + *row.baseline_name);
    html.close();
    html.element("td", fmt::format("{} rules", row.n_rules));
    html.element("td", std::to_string(row.n_worse));
    html.element("td", std::to_string(row.n_better));
    html.element("td", short_time(row.made_at));
    html.close();
  }
  html.close();
  html.close();
  html.close();
}

void warnings(PageContext& page, Html& html) {
  struct Group {
    std::string level, message, run_id;
    int64_t n = 0;
  };
  std::map<std::string, Group> groups;
  for (const RunView& run : page.runs) {
    for (const EventRow& event : run.events) {
      if (event.level == "info") continue;
      Group& group = groups[event.code];
      if (group.n++ == 0) group = {event.level, event.message, run.run.run_id, 1};
    }
  }
  if (groups.empty()) return;
  html.element("h2", "Warnings");
  html.open("ul", {{"class", "events"}});
  for (const auto& [code, group] : groups) {
    html.open("li");
    badge(html, group.level);
    html.text(" ");
    html.element("code", code);
    html.text(fmt::format(" {} (", group.message));
    page.run_link(html, group.run_id);
    html.text(group.n > 1 ? fmt::format(" and {} more)", group.n - 1) : ")");
    html.close();
  }
  html.close();
}

std::string task_names(const RunView& run) {
  std::string out;
  for (size_t i = 0; i < run.tasks.size() && i < 4; ++i) out += (i > 0 ? ", " : "") + run.tasks[i].task.name;
  if (run.tasks.size() > 4) out += fmt::format(", … ({})", run.tasks.size());
  return out;
}

void runs_table(PageContext& page, Html& html) {
  html.open("h2", {{"id", "runs"}});
  html.text("Runs");
  html.close();
  if (page.runs.empty()) return empty_state(html, "No run is selected.", "hayfork list runs");
  html.open("div", {{"class", "tools"}});
  arch_tool(html, "run-list", archs_of(page.runs, [](const RunView& run) {
              return run.model.arch_label ? run.model.arch_label : run.model.arch;
            }));
  find_tool(html, "run-list", "Find");
  html.close();
  html.open("div", {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", "Runs"}});
  html.open("table", {{"id", "run-list"}, {"class", "sortable"}});
  html.open("thead");
  html.open("tr");
  for (const char* name : {"run", "when", "model", "architecture", "tasks"})
    html.element("th", {{"scope", "col"}}, name);
  for (const char* name : {"samples", "failed", "time"}) html.element("th", {{"scope", "col"}, {"class", "num"}}, name);
  for (const char* name : {"status", "tags"}) html.element("th", {{"scope", "col"}}, name);
  html.close();
  html.close();
  html.open("tbody");
  for (const RunView& run : page.runs) {
    int64_t n_done = 0, n_failed = 0;
    for (const RunTaskView& task : run.tasks) {
      n_done += task.row.n_done;
      n_failed += task.row.n_failed;
    }
    const std::string arch = run.model.arch_label.value_or(run.model.arch.value_or(""));
    html.open("tr", {{"data-arch", arch}});
    html.open("td");
    page.run_link(html, run.run.run_id);
    if (run.run.name) html.element("span", {{"class", "soft"}}, " " + *run.run.name);
    html.close();
    html.element("td", {{"class", "nowrap"}}, short_time(run.run.created_at));
    html.element("td", run.model.name);
    html.element("td", arch.empty() ? "–" : arch);
    html.element("td", task_names(run));
    html.element("td", {{"class", "num"}, {"data-v", std::to_string(n_done)}}, format_count(n_done));
    html.element("td", {{"class", "num"}, {"data-v", std::to_string(n_failed)}}, format_count(n_failed));
    html.element("td", {{"class", "num"}, {"data-v", fmt::format("{}", run.run.wall_s.value_or(0))}},
                 run.run.wall_s ? format_duration(*run.run.wall_s) : "–");
    html.open("td");
    badge(html, run.status);
    html.close();
    std::string tags;
    for (const std::string& tag : run.tags) tags += (tags.empty() ? "" : ", ") + tag;
    html.element("td", tags);
    html.close();
  }
  html.close();
  html.close();
  html.close();
}

}  // namespace

void index_page(PageContext& page, Html& html) {
  std::string lead = fmt::format("{} run{} of {} model{}", page.runs.size(), page.runs.size() == 1 ? "" : "s",
                                 page.models.size(), page.models.size() == 1 ? "" : "s");
  const auto n_shown = static_cast<int64_t>(page.runs.size());
  if (page.options.n_runs_all > n_shown)
    lead = fmt::format("{} of the database's {} runs, {} models", n_shown, format_count(page.options.n_runs_all),
                       page.models.size());
  if (!page.runs.empty()) lead += ", newest " + short_time(page.runs.front().run.created_at) + " UTC";
  page_title(html, "Results", lead + ".");
  models_by_tasks(page, html);
  gates(page, html);
  warnings(page, html);
  runs_table(page, html);
}

}  // namespace hayfork::runs
