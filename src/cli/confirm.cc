#include "cli/confirm.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "runs/pairing.h"

namespace hayfork::cli {
namespace {

// The seed that a task's documents were drawn with, or nothing.
std::optional<int64_t> seed_of(const runs::RunView& run, const std::string& task) {
  const runs::RunTaskView* view = runs::find_run_task(run, task);
  if (view == nullptr || !view->row.seeds_json) return std::nullopt;
  const nlohmann::json seeds = parse_json(*view->row.seeds_json, "seeds of " + task, ErrorSubject::database);
  const auto seed = seeds.find("seed");
  if (!seeds.is_object() || seed == seeds.end() || !seed->is_number_integer()) return std::nullopt;
  return seed->get<int64_t>();
}

int64_t rerun(runs::Store& store, const runs::RunView& run, const std::vector<std::string>& tasks, int64_t seed,
              const ExecuteOptions& options, Console& console) {
  RunConfig config = config_of(run.run);
  config.tasks = tasks;
  config.seed = seed;
  ExecuteOptions execute = options;
  execute.engine.model = config.model;
  execute.engine.tokenizer = config.tokenizer;
  execute.engine.dtype = config.dtype;
  execute.engine.kv_dtype = config.kv_dtype;
  execute.engine.ignored_config_keys = config.ignored_config_keys;
  execute.tags = {"confirm"};
  execute.note = fmt::format("gate: {} again with seed {}", run.run.run_id, seed);
  EventLog events(console);
  const Plan plan = make_plan(std::move(config), execute.engine, true, console, events.sink());
  return begin_and_execute(plan, store, execute, events, console).run;
}

}  // namespace

std::vector<std::pair<int64_t, int64_t>> confirm_runs(runs::Store& store, const runs::RunView& base,
                                                      const runs::RunView& cand, const std::vector<std::string>& tasks,
                                                      int64_t rounds, const ExecuteOptions& options, Console& console) {
  std::optional<int64_t> seed;
  for (const std::string& task : tasks) {
    const auto own = seed_of(cand, task);
    if (!own) return {};
    seed = std::max(seed.value_or(*own), *own);
  }
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t round = 1; seed && round <= rounds; ++round) {
    const int64_t first = rerun(store, base, tasks, *seed + round, options, console);
    out.emplace_back(first, rerun(store, cand, tasks, *seed + round, options, console));
  }
  return out;
}

}  // namespace hayfork::cli
