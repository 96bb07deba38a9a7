#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "cli/results.h"
#include "cli/times.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

using runs::Align;
using runs::Cell;
using runs::CellType;
using runs::Section;

struct ShowOptions {
  std::string what;
  DbOptions db;
  OutputOptions output;
};

bool for_people(const OutputOptions& output) {
  return output.format == "table" || output.format == "md" || output.format == "latex";
}

// A record made field by field.
struct Record {
  Section section;
  explicit Record(std::string name) {
    section.name = std::move(name);
    section.record = true;
    section.table.rows.emplace_back();
  }
  void add(const std::string& name, Cell value, CellType type = CellType::text) {
    section.table.columns.push_back({.name = name, .type = type});
    section.table.rows.front().push_back(std::move(value));
  }
  void add_known(const std::string& name, Cell value, CellType type = CellType::text) {
    if (!std::holds_alternative<std::monostate>(value)) add(name, std::move(value), type);
  }
};

Section facts(const runs::RunView& view, const std::string& digest) {
  const runs::RunRow& run = view.run;
  Record record("run");
  record.add("run", run.run_id);
  record.add_known("name", cell(run.name));
  record.add("status", view.status);
  record.add("model", view.model.name);
  record.add_known("arch", cell(view.model.arch_label));
  record.add_known("weights_sha256", cell(view.model.weights_sha256));
  record.add_known("tokenizer_sha256", cell(view.model.tokenizer_sha256));
  record.add_known("config_sha256", cell(view.model.config_sha256));
  record.add_known("template_sha256", cell(view.model.template_sha256));
  record.add_known("path", cell(view.model.path));
  record.add("plan_sha256", run.plan_sha256);
  record.add("digest", digest);
  record.add_known("numerics", cell(run.numerics_id));
  record.add_known("dtype", cell(run.dtype));
  record.add_known("kv_dtype", cell(run.kv_dtype));
  if (run.n_shards > 1) record.add("shards", run.n_shards, CellType::integer);
  record.add_known("seed", cell(run.seed), CellType::integer);
  record.add("hayfork", fmt::format("{} ({}{})", run.hayfork_version, run.git_commit.value_or("?").substr(0, 7),
                                    run.git_dirty.value_or(0) != 0 ? ", changed" : ""));
  if (view.host) record.add_known("host", cell(view.host->hostname));
  if (view.host) record.add_known("cpu", cell(view.host->cpu));
  record.add("created_at", run.created_at);
  record.add_known("finished_at", cell(run.finished_at));
  record.add_known("wall_s", cell(run.wall_s), CellType::duration);
  record.add_known("peak_mem_bytes", cell(run.peak_mem_bytes), CellType::bytes);
  record.add_known("exit_code", cell(run.exit_code), CellType::integer);
  record.add("origin", run.origin);
  std::string tags;
  for (const std::string& tag : view.tags) tags += (tags.empty() ? "" : ", ") + tag;
  if (!tags.empty()) record.add("tags", tags);
  record.add_known("note", cell(run.note));
  record.add("command", run.cli_json, CellType::json);
  record.add("config", run.config_json, CellType::json);
  return record.section;
}

Section attempts(const runs::RunView& view) {
  Section section{.name = "attempts",
                  .table = {{{.name = "attempt", .align = Align::right, .type = CellType::integer},
                             {.name = "shard", .align = Align::right, .type = CellType::integer},
                             {.name = "device"},
                             {.name = "threads", .align = Align::right, .type = CellType::integer},
                             {.name = "started_at"},
                             {.name = "wall_s", .align = Align::right, .type = CellType::duration, .title = "time"},
                             {.name = "written", .align = Align::right, .type = CellType::integer},
                             {.name = "ended"}},
                            {}},
                  .title = "Attempts"};
  for (const runs::AttemptRow& row : view.attempts) {
    section.table.rows.push_back({row.attempt, row.shard, cell(row.device), cell(row.threads), row.started_at,
                                  cell(row.wall_s), row.n_written, cell(row.end_reason)});
  }
  return section;
}

Section events(const runs::RunView& view) {
  Section section{
      .name = "events",
      .table = {{{.name = "at"}, {.name = "level"}, {.name = "code"}, {.name = "task"}, {.name = "message"}}, {}},
      .title = "Warnings and events"};
  for (const runs::EventRow& row : view.events) {
    section.table.rows.push_back({row.at, row.level, row.code, cell(row.task), row.message});
  }
  return section;
}

int show_run(const ShowOptions& options, Console& console) {
  runs::Store store = open_to_read(options.db, console);
  const runs::RunSelection selection = store.select(options.what.empty() ? "@last" : options.what);
  const runs::RunView view = store.show_run(selection.run.id);
  if (selection.task && std::none_of(view.tasks.begin(), view.tasks.end(), [&](const runs::RunTaskView& task) {
        return task.task.name == *selection.task;
      })) {
    std::string known;
    for (const runs::RunTaskView& task : view.tasks) known += (known.empty() ? "" : ", ") + task.task.name;
    throw Error(ErrorCode::usage, ErrorSubject::general,
                fmt::format("run {} has no task \"{}\"", view.run.run_id, *selection.task), {.why = "it has " + known});
  }
  const bool people = for_people(options.output);
  runs::Document document{"show-run", {}};
  if (!selection.task) document.sections.push_back(facts(view, store.digest(view.run.id).sha256));
  document.sections.push_back(results_section(view, selection.task, !people || selection.task.has_value()));
  if (!selection.task && (!people || view.attempts.size() > 1)) document.sections.push_back(attempts(view));
  if (!selection.task && (!people || !view.events.empty())) document.sections.push_back(events(view));
  print(console, document, options.output);
  return 0;
}

// ---- one sample ----------------------------------------------------------------------------------------------------

Section sample_facts(const runs::SampleView& view, bool people) {
  const runs::SampleRow& row = view.sample;
  Record record("sample");
  record.add("id", row.id, CellType::integer);
  record.add("run", view.run_id);
  record.add("task", view.task);
  record.add("doc_id", row.doc_id);
  record.add("repeat", row.repeat, CellType::integer);
  record.add_known("subtask", cell(row.subtask));
  record.add_known("ctx_len", cell(row.ctx_len), CellType::integer);
  record.add_known("depth_pct", cell(row.depth_pct), CellType::real);
  record.add_known("depth_real", cell(row.depth_real), CellType::real);
  record.add_known("cluster", cell(row.cluster));
  record.add_known("seed", cell(row.seed), CellType::integer);
  record.add("status", row.status);
  record.add_known("score", cell(row.score), CellType::real);
  record.add_known("answer", cell(row.answer));
  record.add_known("target", cell(row.target));
  record.add_known("error", cell(row.error));
  record.add_known("finish", cell(row.finish));
  record.add_known("stop", cell(row.stop));
  record.add_known("prompt_tokens", cell(row.prompt_tokens), CellType::integer);
  record.add_known("gen_tokens", cell(row.gen_tokens), CellType::integer);
  record.add_known("max_new_tokens", cell(row.max_new_tokens), CellType::integer);
  record.add("truncated", row.truncated, CellType::boolean);
  record.add_known("needle_tok", cell(row.needle_tok), CellType::integer);
  record.add_known("needle_tokens", cell(row.needle_tokens), CellType::integer);
  record.add_known("needle_distance", cell(row.needle_distance), CellType::integer);
  record.add_known("rows_base", cell(row.rows_base), CellType::integer);
  record.add_known("rows_output", cell(row.rows_output), CellType::integer);
  record.add_known("rows_reused", cell(row.rows_reused), CellType::integer);
  record.add_known("batch_size", cell(row.batch_size), CellType::integer);
  record.add_known("t_prefill_ms", cell(row.t_prefill_ms), CellType::real);
  record.add_known("t_decode_ms", cell(row.t_decode_ms), CellType::real);
  record.add("prompt_sha256", row.prompt_sha256);
  record.add_known("recipe", cell(row.recipe_json), CellType::json);
  if (row.response) record.add("response", row.response->text);
  if (row.prompt_text && !people) record.add("prompt", row.prompt_text->text);
  return record.section;
}

Section sample_metrics(const runs::SampleRow& row) {
  Section section{.name = "metrics",
                  .table = {{{.name = "metric"},
                             {.name = "filter"},
                             {.name = "value", .align = Align::right, .type = CellType::real},
                             {.name = "weight", .align = Align::right, .type = CellType::real}},
                            {}}};
  for (const runs::SampleMetricRow& metric : row.metrics) {
    section.table.rows.push_back({metric.metric, metric.filter, cell(metric.value), cell(metric.weight)});
  }
  return section;
}

Section sample_choices(const runs::SampleRow& row) {
  Section section{.name = "choices",
                  .table = {{{.name = "choice", .type = CellType::integer},
                             {.name = "logprob", .align = Align::right, .type = CellType::real},
                             {.name = "n_tokens", .align = Align::right, .type = CellType::integer},
                             {.name = "n_chars", .align = Align::right, .type = CellType::integer},
                             {.name = "greedy", .type = CellType::boolean},
                             {.name = "gold", .type = CellType::boolean}},
                            {}}};
  for (const runs::SampleChoiceRow& choice : row.choices) {
    section.table.rows.push_back({choice.choice, cell(choice.logprob), cell(choice.n_tokens), cell(choice.n_chars),
                                  choice.greedy ? Cell(*choice.greedy != 0) : Cell(), choice.gold});
  }
  return section;
}

int show_sample(const ShowOptions& options, Console& console) {
  runs::Store store = open_to_read(options.db, console);
  const runs::SampleView view = store.show_sample(parse_count(options.what, "show sample"));
  const bool people = for_people(options.output);
  runs::Document document{"show-sample", {sample_facts(view, people)}};
  if (!people || !view.sample.metrics.empty()) document.sections.push_back(sample_metrics(view.sample));
  if (!people || !view.sample.choices.empty()) document.sections.push_back(sample_choices(view.sample));
  print(console, document, options.output);
  if (people && view.sample.prompt_text)
    console.out(fmt::format("\nprompt\n{}\n", printable(view.sample.prompt_text->text)));
  return 0;
}

}  // namespace

Action declare_show_run(Flags& flags) {
  auto options = std::make_shared<ShowOptions>();
  FlagInfo& run = flags.argument("RUN[:TASK]", options->what, "Which run. Default: the newest.");
  run.kind = "run";
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return show_run(*options, console); };
}

Action declare_show_sample(Flags& flags) {
  auto options = std::make_shared<ShowOptions>();
  flags.argument("ID", options->what, "A sample's number in the database.").required = true;
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return show_sample(*options, console); };
}

}  // namespace hayfork::cli
