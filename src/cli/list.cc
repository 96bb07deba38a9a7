#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "cli/output.h"
#include "cli/times.h"
#include "cli/verbs.h"
#include "runs/provenance.h"
#include "tasks/tasks.h"

namespace hayfork::cli {
namespace {

using runs::Align;
using runs::Cell;
using runs::CellType;
using runs::Section;

struct ListOptions {
  DbOptions db;
  OutputOptions output;
  std::vector<std::string> filters;
  std::string status, since;
  int64_t limit = 0;
};

bool for_people(const ListOptions& options) {
  return options.output.format == "table";
}

runs::RunFilter filter_of(const ListOptions& options) {
  runs::RunFilter filter = runs::parse_run_filter(options.filters);
  if (!options.status.empty()) filter.status = options.status;
  if (!options.since.empty()) filter.since = runs::parse_since(options.since);
  filter.limit = options.limit;
  return filter;
}

int list_runs(const ListOptions& options, Console& console) {
  runs::Store store = open_to_read(options.db, console);
  Section section{.name = "runs",
                  .table = {{{.name = "run"},
                             {.name = "when"},
                             {.name = "name"},
                             {.name = "model"},
                             {.name = "arch"},
                             {.name = "dtype"},
                             {.name = "tasks"},
                             {.name = "status"},
                             {.name = "planned", .align = Align::right, .type = CellType::integer},
                             {.name = "done", .align = Align::right, .type = CellType::integer},
                             {.name = "failed", .align = Align::right, .type = CellType::integer},
                             {.name = "wall_s", .align = Align::right, .type = CellType::duration, .title = "time"},
                             {.name = "tags"},
                             {.name = "note"}},
                            {}}};
  for (const runs::RunListRow& row : store.list_runs(filter_of(options))) {
    section.table.rows.push_back({row.run_id, for_people(options) ? ago(row.when) : row.when, cell(row.name), row.model,
                                  cell(row.arch), cell(row.dtype), row.tasks, row.status, row.n_planned, row.n_done,
                                  row.n_failed, cell(row.wall_s), row.tags, cell(row.note)});
    if (row.status == "interrupted") {
      section.notes.push_back(
          fmt::format("{} stands at {} of {}: hayfork resume {}", row.run_id, row.n_done, row.n_planned, row.run_id));
    }
  }
  if (for_people(options)) drop_empty_columns(section.table, {"name", "tags", "note", "failed"});
  print(console, {"list-runs", {std::move(section)}}, options.output);
  return 0;
}

int list_models(const ListOptions& options, Console& console) {
  runs::Store store = open_to_read(options.db, console);
  Section section{.name = "models",
                  .table = {{{.name = "model"},
                             {.name = "arch"},
                             {.name = "layers"},
                             {.name = "params", .align = Align::right, .type = CellType::integer},
                             {.name = "train_tokens", .align = Align::right, .type = CellType::integer},
                             {.name = "max_length", .align = Align::right, .type = CellType::integer},
                             {.name = "runs", .align = Align::right, .type = CellType::integer},
                             {.name = "last_run"},
                             {.name = "weights_sha256"},
                             {.name = "path"}},
                            {}}};
  for (const runs::ModelListRow& row : store.list_models(filter_of(options))) {
    section.table.rows.push_back(
        {row.name, cell(row.arch), cell(row.arch_label), cell(row.n_params), cell(row.train_tokens), cell(row.max_len),
         row.n_runs, cell(row.last_run),
         for_people(options) && row.weights_sha256 ? Cell(row.weights_sha256->substr(0, 8)) : cell(row.weights_sha256),
         cell(row.path)});
  }
  if (for_people(options)) drop_empty_columns(section.table, {"train_tokens"});
  print(console, {"list-models", {std::move(section)}}, options.output);
  return 0;
}

// Subjects of exams: people see their groups.
constexpr size_t kManyMembers = 20;

std::set<std::string> members_of_large_groups() {
  std::set<std::string> names;
  for (const tasks::TaskEntry& entry : tasks::task_table())
    if (entry.members.size() > kManyMembers && entry.name != "hybrid_short")
      names.insert(entry.members.begin(), entry.members.end());
  return names;
}

int list_tasks(const ListOptions& options, Console& console) {
  const std::set<std::string> hidden = for_people(options) ? members_of_large_groups() : std::set<std::string>();
  Section section{
      .name = "tasks",
      .table = {{{.name = "task"}, {.name = "family"}, {.name = "kind"}, {.name = "summary"}, {.name = "options"}},
                {}}};
  for (const tasks::TaskEntry& entry : tasks::task_table()) {
    if (hidden.contains(entry.name)) continue;
    std::string keys;
    for (const tasks::OptionDef& option : entry.options) keys += (keys.empty() ? "" : " ") + option.key;
    section.table.rows.push_back({entry.name, entry.family, entry.kind, entry.summary, keys});
  }
  if (!hidden.empty())
    section.notes.push_back(fmt::format("{} tasks of one subject are not shown: -o csv lists them", hidden.size()));
  print(console, {"list-tasks", {std::move(section)}}, options.output);
  return 0;
}

int list_suites(const ListOptions& options, Console& console) {
  Section section{.name = "suites", .table = {{{.name = "suite"}, {.name = "members"}, {.name = "summary"}}, {}}};
  for (const tasks::TaskEntry& entry : tasks::task_table()) {
    if (entry.members.empty()) continue;
    std::string members;
    for (const std::string& member : entry.members) members += (members.empty() ? "" : ", ") + member;
    if (for_people(options) && entry.members.size() > kManyMembers)
      members = fmt::format("{} tasks", entry.members.size());
    section.table.rows.push_back({entry.name, members, entry.summary});
  }
  print(console, {"list-suites", {std::move(section)}}, options.output);
  return 0;
}

int list_baselines(const ListOptions& options, Console& console) {
  runs::Store store = open_to_read(options.db, console);
  Section section{.name = "baselines",
                  .table = {{{.name = "name"},
                             {.name = "run"},
                             {.name = "model"},
                             {.name = "status"},
                             {.name = "set_at"},
                             {.name = "set_by"}},
                            {}}};
  for (const runs::BaselineListRow& row : store.list_baselines()) {
    section.table.rows.push_back({row.name, cell(row.run_id), cell(row.model), cell(row.status),
                                  for_people(options) ? ago(row.set_at) : row.set_at, cell(row.set_by)});
  }
  print(console, {"list-baselines", {std::move(section)}}, options.output);
  return 0;
}

int list_devices(const ListOptions& options, Console& console) {
  const runs::HostRow host = runs::this_host();
  Section here{.name = "here",
               .table = {{{.name = "device"}, {.name = "name"}, {.name = "threads", .type = CellType::integer}},
                         {{std::string("cpu"), cell(host.cpu), static_cast<int64_t>(hardware_threads())}}},
               .title = "This machine"};
  runs::Document document{"list-devices", {std::move(here)}};
  std::error_code ignored;
  if (std::filesystem::exists(options.db.db, ignored)) {
    runs::Store store = open_to_read(options.db, console);
    Section used{.name = "used",
                 .table = {{{.name = "host"},
                            {.name = "device"},
                            {.name = "cpu"},
                            {.name = "runs", .align = Align::right, .type = CellType::integer},
                            {.name = "last_used"}},
                           {}},
                 .title = "Devices of the runs in " + options.db.db};
    for (const runs::DeviceListRow& row : store.list_devices()) {
      used.table.rows.push_back({cell(row.hostname), cell(row.device), cell(row.cpu), row.n_runs, cell(row.last_used)});
    }
    document.sections.push_back(std::move(used));
  }
  print(console, document, options.output);
  return 0;
}

template <int (*body)(const ListOptions&, Console&)>
Action declare(Flags& flags, bool with_db, bool with_filter) {
  auto options = std::make_shared<ListOptions>();
  if (with_filter) {
    flags.group("Selection");
    flags
        .list("filter", options->filters, "KEY=VALUE",
              "Only these: arch, status, tag, model, task, series, dtype, name, since.")
        .configurable = false;
    flags
        .text("status", options->status, "STATUS",
              "Only this status: done, partial, interrupted, running, failed, imported.")
        .configurable = false;
    flags.text("since", options->since, "TIME", "Not older than 7d, 12h, or a date.").configurable = false;
    flags.count("limit", options->limit, "N", "The newest so many. Default: all.").configurable = false;
  }
  if (with_db) declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return body(*options, console); };
}

}  // namespace

Action declare_list_runs(Flags& flags) {
  return declare<list_runs>(flags, true, true);
}
Action declare_list_models(Flags& flags) {
  return declare<list_models>(flags, true, true);
}
Action declare_list_tasks(Flags& flags) {
  return declare<list_tasks>(flags, false, false);
}
Action declare_list_suites(Flags& flags) {
  return declare<list_suites>(flags, false, false);
}
Action declare_list_baselines(Flags& flags) {
  return declare<list_baselines>(flags, true, false);
}
Action declare_list_devices(Flags& flags) {
  return declare<list_devices>(flags, true, false);
}

}  // namespace hayfork::cli
