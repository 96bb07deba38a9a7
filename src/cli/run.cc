#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/dry_run.h"
#include "cli/execute.h"
#include "cli/grid_view.h"
#include "cli/results.h"
#include "cli/verbs.h"
#include "datasets/yaml_config.h"

namespace hayfork::cli {
namespace {

struct RunOptions {
  RunConfig config;
  ExecuteOptions execute;
  OutputOptions output;
  bool dry_run = false;
};

void print_outcome(const RunOutcome& outcome, runs::Store& store, const OutputOptions& output, Console& console) {
  const bool people = output.format == "table" || output.format == "md" || output.format == "latex";
  const runs::RunView view = store.show_run(outcome.run);
  runs::Section section = results_section(view, {}, !people);
  print(console, {"run", {std::move(section)}}, output);
  if (output.format == "table" && !console.quiet()) print_grids(view, store, console);
}

// A name ending in .yaml is a file with a list of names, or with one under "tasks".
std::vector<std::string> task_names(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    if (!word.ends_with(".yaml") && !word.ends_with(".yml")) {
      names.push_back(word);
      continue;
    }
    nlohmann::ordered_json list = datasets::load_yaml(word, {.typed = false});
    if (list.is_object() && list.contains("task")) {  // a task of its own (tasks/custom.h)
      names.push_back(word);
      continue;
    }
    if (list.is_object() && list.size() == 1 && list.contains("tasks")) list = nlohmann::ordered_json(list["tasks"]);
    const bool sound =
        list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& item) { return item.is_string(); });
    if (!sound) {
      throw Error(ErrorCode::usage, ErrorSubject::general, "a task file is a list of task names",
                  {.where = word, .next = "tasks: [niah]"});
    }
    for (const auto& item : list) names.push_back(item.get<std::string>());
  }
  return names;
}

int run(const RunOptions& options, Console& console) {
  RunConfig config = options.config;
  config.tasks = task_names(config.tasks);
  config.model = options.execute.engine.model;
  config.tokenizer = options.execute.engine.tokenizer;
  config.ignored_config_keys = options.execute.engine.ignored_config_keys;
  EventLog events(console);
  // The database first: a run of hours must not end at a file that cannot be written.
  std::optional<runs::Store> store;
  if (!options.dry_run) store = open_early(options.execute.db, console);
  const Plan plan = make_plan(std::move(config), options.execute.engine, !options.dry_run, console, events.sink());
  if (options.dry_run) {
    print_dry_run(plan, options.output, console);
    return plan.n_samples() > 0 ? 0 : 5;
  }
  require_samples(plan);
  if (!store) store.emplace(open_to_write(options.execute.db, console));
  const RunOutcome outcome = begin_and_execute(plan, *store, options.execute, events, console);
  print_outcome(outcome, *store, options.output, console);
  store->close();
  return outcome.status;
}

struct ResumeVerb {
  std::string run = "@last";
  ExecuteOptions execute;
  OutputOptions output;
};

int resume(const ResumeVerb& options, Console& console) {
  runs::Store store = open_to_change(options.execute.db, console);
  const runs::RunRow row = store.find_run(options.run);
  if (store.shown_status(row) == "running") {
    throw Error(ErrorCode::resource, ErrorSubject::database, fmt::format("run {} is still running", row.run_id),
                {.where = options.execute.db.db, .next = "wait for it, or stop it and resume again"});
  }
  RunConfig config = config_of(row);
  EngineFlags engine = options.execute.engine;
  if (engine.model.empty()) engine.model = config.model;
  if (engine.tokenizer.empty()) engine.tokenizer = config.tokenizer;
  if (engine.dtype == "auto") engine.dtype = config.dtype;
  if (engine.kv_dtype == "auto") engine.kv_dtype = config.kv_dtype;
  engine.ignored_config_keys = config.ignored_config_keys;
  config.model = engine.model;
  config.tokenizer = engine.tokenizer;
  EventLog events(console);
  const Plan plan = make_plan(std::move(config), engine, true, console, events.sink());
  ExecuteOptions execute = options.execute;
  execute.engine = engine;
  const RunOutcome outcome = resume_and_execute(plan, row, store, execute, events, console);
  print_outcome(outcome, store, options.output, console);
  store.close();
  return outcome.status;
}

}  // namespace

Action declare_run(Flags& flags) {
  auto options = std::make_shared<RunOptions>();
  flags.group("What to run");
  FlagInfo& tasks = flags.list("tasks", options->config.tasks, "A,B",
                               "Tasks, suites or files of names: niah, @ruler, tasks.yaml. See hayfork list tasks.");
  tasks.required = true;
  tasks.kind = "task";
  declare_plan(flags, options->config);
  flags.group("Plan");
  flags.toggle("dry-run", options->dry_run, "Print what the plan would take, and run nothing.").configurable = false;
  flags.toggle("allow-beyond-window", options->config.allow_beyond_window,
               "Also lengths past the model's own maximum; recorded with the run.");
  declare_engine(flags, options->execute.engine);
  declare_execution(flags, options->execute);
  flags.group("Storage");
  flags.text("name", options->execute.name, "NAME", "A name for the run; it can be used instead of its id.")
      .configurable = false;
  flags.list("tag", options->execute.tags, "TAG", "A tag; @tag:TAG finds the newest run that has it.");
  flags.text("note", options->execute.note, "TEXT", "A note for people.").configurable = false;
  flags.text("series", options->execute.series, "NAME", "Which series of checkpoints the model belongs to.");
  flags.count("train-tokens", options->execute.train_tokens, "N", "Tokens the model was trained on.");
  flags.count("train-step", options->execute.train_step, "N", "Training step of the checkpoint.");
  declare_db(flags, options->execute.db);
  declare_output(flags, options->output);
  return [options](Console& console) { return run(*options, console); };
}

Action declare_resume(Flags& flags) {
  auto options = std::make_shared<ResumeVerb>();
  FlagInfo& run_argument = flags.argument("RUN", options->run, "Which run.");
  run_argument.kind = "run";
  declare_engine(flags, options->execute.engine, false);
  flags.toggle("allow-mixed-numerics", options->execute.allow_mixed_numerics,
               "Go on under another backend or library version; marks the run.");
  declare_execution(flags, options->execute);
  declare_db(flags, options->execute.db);
  declare_output(flags, options->output);
  return [options](Console& console) { return resume(*options, console); };
}

}  // namespace hayfork::cli
