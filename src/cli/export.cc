#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/lm_eval_files.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "runs/report/row_table.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using runs::Cell;
using runs::CellType;

struct ExportVerb {
  std::string run = "@last", folder;
  std::vector<std::string> filters, runs;
  bool texts = true;
  DbOptions db;
  OutputOptions output;
};

int export_runs(const ExportVerb& verb, Console& console) {
  runs::Store store = open_to_read(verb.db, console);
  runs::Section section{.name = "runs", .table = runs::table_of(store.list_runs(runs::parse_run_filter(verb.filters)))};
  print(console, {"export-runs", {std::move(section)}}, verb.output);
  return 0;
}

std::vector<runs::RunTaskView> chosen_tasks(runs::Store& store, const ExportVerb& verb, runs::RunView& run) {
  const runs::RunSelection selection = store.select(verb.run);
  run = store.show_run(selection.run.id);
  std::vector<runs::RunTaskView> tasks;
  for (const runs::RunTaskView& task : run.tasks) {
    if (!selection.task || task.task.name == *selection.task) tasks.push_back(task);
  }
  if (!tasks.empty()) return tasks;
  throw Error(ErrorCode::usage, ErrorSubject::general,
              fmt::format("run {} has no task \"{}\"", run.run.run_id, printable(selection.task.value_or(""))),
              {.next = fmt::format("hayfork show {} lists them", run.run.run_id)});
}

Cell json_cell(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// The best of the options by log-prob, and by log-prob a character; how far ahead the first is.
struct Prediction {
  Cell gold, pred, pred_norm, margin;
};
Prediction prediction_of(const runs::SampleRow& row) {
  Prediction out;
  std::vector<double> plain, normed;
  for (const runs::SampleChoiceRow& choice : row.choices) {
    if (!choice.logprob) return out;
    plain.push_back(*choice.logprob);
    normed.push_back(choice.n_chars && *choice.n_chars > 0 ? *choice.logprob / static_cast<double>(*choice.n_chars)
                                                           : *choice.logprob);
    if (choice.gold) out.gold = choice.choice;
  }
  if (plain.empty()) return out;
  const auto best = [](const std::vector<double>& v) {
    return static_cast<int64_t>(std::max_element(v.begin(), v.end()) - v.begin());
  };
  out.pred = best(plain);
  out.pred_norm = best(normed);
  std::sort(plain.rbegin(), plain.rend());
  if (plain.size() > 1) out.margin = plain[0] - plain[1];
  return out;
}

// Columns of a sample: where it is from, all of its own, and what hangs on it; choice tasks also under the names that
// lm-evaluation-harness's goldens have.
runs::Table samples_table(const runs::RunView& run, const runs::RunTaskView& task,
                          const std::vector<runs::SampleRow>& rows) {
  runs::Table table = runs::table_of(rows);
  std::vector<runs::Column> columns = {{.name = "run"}, {.name = "task"}};
  columns.insert(columns.end(), table.columns.begin(), table.columns.end());
  for (const char* name : {"gold", "pred", "pred_norm"}) columns.push_back({.name = name, .type = CellType::integer});
  columns.push_back({.name = "margin", .type = CellType::real});
  columns.push_back({.name = "prompt_hash"});
  columns.push_back({.name = "metrics", .type = CellType::json});
  columns.push_back({.name = "requests", .type = CellType::json});
  for (size_t i = 0; i < rows.size(); ++i) {
    const runs::SampleRow& row = rows[i];
    auto& cells = table.rows[i];
    cells.insert(cells.begin(), {run.run.run_id, task.task.name});
    Prediction prediction = prediction_of(row);
    cells.insert(cells.end(), {prediction.gold, prediction.pred, prediction.pred_norm, prediction.margin});
    cells.emplace_back(row.prompt_sha256);
    json metrics = json::object(), requests = json::array();
    for (const runs::SampleMetricRow& metric : row.metrics) {
      const std::string name = metric.filter == "none" ? metric.metric : metric.metric + "," + metric.filter;
      metrics[name] = metric.value ? json(*metric.value) : json();
    }
    for (const runs::SampleChoiceRow& choice : row.choices) {
      requests.push_back({{"loglikelihood", choice.logprob ? json(*choice.logprob) : json()},
                          {"is_greedy", choice.greedy ? json(*choice.greedy != 0) : json()},
                          {"n_tokens", choice.n_tokens ? json(*choice.n_tokens) : json()},
                          {"n_chars", choice.n_chars ? json(*choice.n_chars) : json()}});
    }
    cells.push_back(json_cell(metrics));
    cells.push_back(json_cell(requests));
  }
  table.columns = std::move(columns);
  return table;
}

// Lines and rows are printed as they are read, a thousand at a time; the other formats need them all.
int export_samples(const ExportVerb& verb, Console& console) {
  runs::Store store = open_to_read(verb.db, console);
  runs::RunView run;
  const auto tasks = chosen_tasks(store, verb, run);
  const bool stream = verb.output.format == "jsonl" || verb.output.format == "csv";
  const runs::Format format = runs::parse_format(verb.output.format);
  constexpr size_t kChunk = 1000;
  runs::Table all;
  bool first = true;
  for (const runs::RunTaskView& task : tasks) {
    std::vector<runs::SampleRow> rows;
    const auto take = [&] {
      runs::Table table = samples_table(run, task, rows);
      rows.clear();
      if (!stream) {
        all.columns = table.columns;
        std::move(table.rows.begin(), table.rows.end(), std::back_inserter(all.rows));
        return;
      }
      std::string text = runs::render("export-samples", "samples", std::move(table), format);
      if (verb.output.format == "csv" && !first) text.erase(0, text.find('\n') + 1);
      first = false;
      console.out(text);
    };
    store.for_each_sample(task.row.id, {.texts = verb.texts}, [&](const runs::SampleRow& row) {
      rows.push_back(row);
      if (rows.size() == kChunk) take();
    });
    if (!rows.empty() || !stream) take();
  }
  if (!stream) {
    runs::Section section{.name = "samples", .table = std::move(all)};
    print(console, {"export-samples", {std::move(section)}}, verb.output);
  }
  return 0;
}

int export_metrics(const ExportVerb& verb, Console& console) {
  runs::Store store = open_to_read(verb.db, console);
  runs::Table table{{{.name = "run"},
                     {.name = "model"},
                     {.name = "task"},
                     {.name = "protocol"},
                     {.name = "num_fewshot", .type = CellType::integer},
                     {.name = "slice"},
                     {.name = "metric"},
                     {.name = "filter"},
                     {.name = "value", .align = runs::Align::right, .type = CellType::real},
                     {.name = "n", .align = runs::Align::right, .type = CellType::integer},
                     {.name = "stderr", .align = runs::Align::right, .type = CellType::real},
                     {.name = "ci_low", .align = runs::Align::right, .type = CellType::real},
                     {.name = "ci_high", .align = runs::Align::right, .type = CellType::real},
                     {.name = "ci_method"}},
                    {}};
  for (const std::string& reference : verb.runs.empty() ? std::vector<std::string>{"@last"} : verb.runs) {
    ExportVerb one = verb;
    one.run = reference;
    runs::RunView run;
    for (const runs::RunTaskView& task : chosen_tasks(store, one, run)) {
      for (const runs::MetricRow& row : task.metrics) {
        table.rows.push_back({run.run.run_id, run.model.name, task.task.name, task.task.protocol, task.row.num_fewshot,
                              row.slice, row.metric, row.filter, cell(row.value), row.n, cell(row.stderr_value),
                              cell(row.ci_low), cell(row.ci_high), cell(row.ci_method)});
      }
    }
  }
  runs::Section section{.name = "metrics", .table = std::move(table)};
  print(console, {"export-metrics", {std::move(section)}}, verb.output);
  return 0;
}

int export_niah(const ExportVerb& verb, Console& console) {
  runs::Store store = open_to_read(verb.db, console);
  runs::RunView run;
  runs::Table table;
  for (const runs::RunTaskView& task : chosen_tasks(store, verb, run)) {
    if (task.task.family != "niah") continue;
    runs::Table cells = runs::table_of(store.grid(task.row.id));
    if (table.columns.empty()) {
      table.columns = {{.name = "run"}, {.name = "task"}};
      table.columns.insert(table.columns.end(), cells.columns.begin(), cells.columns.end());
    }
    for (auto& row : cells.rows) {
      row.insert(row.begin(), {run.run.run_id, task.task.name});
      table.rows.push_back(std::move(row));
    }
  }
  if (table.columns.empty()) {
    console.error(Error(ErrorCode::not_found, ErrorSubject::database,
                        fmt::format("run {} has no needle task", run.run.run_id), {.where = verb.db.db}));
    return 5;
  }
  runs::Section section{.name = "niah", .table = std::move(table)};
  print(console, {"export-niah", {std::move(section)}}, verb.output);
  return 0;
}

int export_lm_eval(const ExportVerb& verb, Console& console) {
  runs::Store store = open_to_read(verb.db, console);
  const runs::RunView run = store.show_run(store.find_run(verb.run).id);
  for (const std::filesystem::path& path : write_lm_eval_files(store, run, verb.folder))
    console.out(path.string() + "\n");
  return 0;
}

std::shared_ptr<ExportVerb> declare(Flags& flags, bool one_run) {
  auto options = std::make_shared<ExportVerb>();
  if (one_run) flags.argument("RUN", options->run, "Which run, or RUN:TASK.").kind = "run";
  declare_db(flags, options->db);
  return options;
}

}  // namespace

Action declare_export_runs(Flags& flags) {
  auto options = declare(flags, false);
  flags.group("Selection");
  flags
      .list("filter", options->filters, "KEY=VALUE",
            "Only these: arch, status, tag, model, task, series, dtype, name, since.")
      .configurable = false;
  declare_output(flags, options->output);
  return [options](Console& console) { return export_runs(*options, console); };
}

Action declare_export_samples(Flags& flags) {
  auto options = declare(flags, true);
  flags.on_off("texts", options->texts, "Also prompts and responses.").configurable = false;
  declare_output(flags, options->output);
  return [options](Console& console) { return export_samples(*options, console); };
}

Action declare_export_metrics(Flags& flags) {
  auto options = declare(flags, false);
  flags.arguments("RUN", options->runs, "Runs, or RUN:TASK. Default: the newest.").kind = "run";
  declare_output(flags, options->output);
  return [options](Console& console) { return export_metrics(*options, console); };
}

Action declare_export_niah(Flags& flags) {
  auto options = declare(flags, true);
  declare_output(flags, options->output);
  return [options](Console& console) { return export_niah(*options, console); };
}

Action declare_export_lm_eval(Flags& flags) {
  auto options = declare(flags, true);
  flags.group("Export");
  FlagInfo& folder = flags.text("out", options->folder, "DIR", "Folder for the files.");
  folder.required = true;
  folder.kind = "dir";
  folder.configurable = false;
  return [options](Console& console) { return export_lm_eval(*options, console); };
}

}  // namespace hayfork::cli
