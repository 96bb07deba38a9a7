// A run's plan, made and ready to be computed: the engine, the tasks, and the identity by which resume, shards and
// merge find what belongs together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/events.h"
#include "cli/engine_flags.h"
#include "cli/run_config.h"
#include "engine/engine.h"
#include "runs/store.h"
#include "tasks/tasks.h"

namespace hayfork::cli {

struct Plan {
  RunConfig config;
  std::unique_ptr<engine::Engine> engine;
  TextSide text;
  std::vector<std::unique_ptr<tasks::Task>> tasks;  // after the engine: they borrow its tokenizer

  int64_t n_samples() const;
};

// Opens the model and makes the tasks. `digest`: compute the weights' digest (a dry run needs none).
// Throws: usage when a length is past the model's window, and what opening and making throw.
Plan make_plan(RunConfig config, const EngineFlags& flags, bool digest, Console& console, const EventSink& events);
// Throws: usage when the plan holds no samples.
void require_samples(const Plan& plan);
// The check alone.
void check_window(const std::vector<std::unique_ptr<tasks::Task>>& tasks, const engine::ModelInfo& info);

std::string plan_sha256(const Plan& plan);

// Rows of the store that say what is run.
runs::ModelRow model_row(const engine::ModelInfo& info);
std::vector<runs::ModelLayerRow> layer_rows(const engine::ModelInfo& info);
runs::PlannedTask planned_task(const tasks::Task& task, const RunConfig& config);
// The groups asked for that have aggregates of their own: they stand after the tasks, without samples.
std::vector<runs::PlannedTask> planned_groups(const Plan& plan);
runs::HostRow host_row();

// How often each sample's document stood earlier in its task's plan, by plan index.
std::vector<int64_t> occurrences(const tasks::Task& task);

}  // namespace hayfork::cli
