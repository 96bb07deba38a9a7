// Aggregates of stored runs, from what a run keeps of its own settings.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/execute.h"
#include "cli/sample_rows.h"

namespace hayfork::cli {

RunConfig config_of(const runs::RunRow& run) {
  if (run.origin == "hayfork") return run_config_from_json(run.config_json);
  throw Error(ErrorCode::usage, ErrorSubject::general,
              fmt::format("run {} was imported: its model and its requests are not here", run.run_id),
              {.why = "origin " + run.origin, .next = "hayfork run asks a checkpoint itself"});
}

void refold_runs(runs::Store& store, const std::vector<int64_t>& runs, Console& console) {
  for (const int64_t run : runs) {
    const runs::RunView view = store.show_run(run);
    try {
      const RunConfig config = config_of(view.run);
      const auto tokenizer = engine::Tokenizer::load(
          config.tokenizer.empty() ? model_folder(config.model) : std::filesystem::path(config.tokenizer));
      const TextSide text = text_side(config, tokenizer.get(), 0, {});
      const auto tasks = make_tasks(config, text, {});
      for (size_t i = 0; i < tasks.size() && i < view.tasks.size(); ++i) {
        fold_task(store, *tasks[i], view.tasks[i].row.id);
      }
      fold_groups(store, run, false);
    } catch (const Error& error) {
      console.warn("HAY-W013", fmt::format("{}: its aggregates could not be made again ({}); hayfork resume {} does it",
                                           view.run.run_id, error.what(), view.run.run_id));
    }
  }
}

}  // namespace hayfork::cli
