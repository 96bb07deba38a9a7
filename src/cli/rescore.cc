// rescore: stored answers scored again. Only the tokenizer of the model is needed.
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/engine_flags.h"
#include "cli/execute.h"
#include "cli/results.h"
#include "cli/run_config.h"
#include "cli/sample_rows.h"
#include "cli/verbs.h"
#include "engine/text/tokenizer.h"

namespace hayfork::cli {
namespace {

struct RescoreOptions {
  std::string run = "@last", data;
  DbOptions db;
  OutputOptions output;
};

std::vector<tasks::ChoiceValue> choices_of(const runs::SampleRow& row) {
  std::vector<tasks::ChoiceValue> out;
  for (const runs::SampleChoiceRow& choice : row.choices) {
    tasks::ChoiceValue value;
    value.logprob = choice.logprob;
    value.n_tokens = choice.n_tokens;
    value.n_chars = choice.n_chars;
    value.n_bytes = choice.n_bytes;
    value.uncond_logprob = choice.uncond_logprob;
    value.ctx_nll = choice.ctx_nll;
    value.ctx_tokens = choice.ctx_tokens;
    if (choice.greedy) value.greedy = *choice.greedy != 0;
    value.gold = choice.gold;
    out.push_back(std::move(value));
  }
  return out;
}

struct Counts {
  int64_t n_scored = 0, n_changed = 0, n_left = 0;
};

// New scores of one task's samples.
std::vector<runs::SampleRow> rescored(runs::Store& store, const tasks::Task& task, int64_t run_task, Counts& counts) {
  std::map<std::string, tasks::SampleKey> keys;
  for (int64_t i = 0; i < task.n_samples(); ++i) {
    tasks::SampleKey key = task.key(i);
    std::string id = key.doc_id;
    keys.emplace(std::move(id), std::move(key));
  }
  std::vector<runs::SampleRow> changed;
  store.for_each_sample(run_task, {.texts = true}, [&](const runs::SampleRow& row) {
    const auto key = keys.find(row.doc_id);
    const bool kept = !row.choices.empty() || row.response;
    if (key == keys.end() || key->second.doc_sha256 != row.doc_sha256 || !kept) {
      ++counts.n_left;
      return;
    }
    const auto score = task.rescore(key->second, choices_of(row), row.response ? row.response->text : "");
    if (!score) {
      ++counts.n_left;
      return;
    }
    ++counts.n_scored;
    runs::SampleRow out;
    out.id = row.id;
    out.status = score->status == tasks::Status::ok ? "ok" : "failed";
    out.score = score->score;
    if (!score->answer.empty()) out.answer = score->answer;
    if (!score->error.empty()) out.error = score->error;
    for (const tasks::MetricValue& m : score->metrics)
      out.metrics.push_back({.metric = m.metric, .filter = m.filter, .value = m.value, .weight = m.weight});
    counts.n_changed += out.score != row.score || out.status != row.status ? 1 : 0;
    changed.push_back(std::move(out));
  });
  return changed;
}

int run(const RescoreOptions& options, Console& console) {
  runs::Store store = open_to_change(options.db, console);
  const runs::RunRow row = store.find_run(options.run);
  RunConfig config = config_of(row);
  if (!options.data.empty()) config.data_dir = options.data;
  const auto tokenizer = engine::Tokenizer::load(config.tokenizer.empty() ? model_folder(config.model)
                                                                          : std::filesystem::path(config.tokenizer));
  const TextSide text = text_side(config, tokenizer.get(), 0, {});
  const auto tasks = make_tasks(config, text, console.events());
  Counts counts;
  for (const runs::RunTaskView& view : store.run_tasks(row.id)) {
    for (const auto& task : tasks) {
      if (task->info().name != view.task.name) continue;
      const std::vector<runs::SampleRow> samples = rescored(store, *task, view.row.id, counts);
      store.rescore(samples);
      fold_task(store, *task, view.row.id);
    }
  }
  fold_groups(store, row.id, row.status == "done");
  store.flush();
  console.note(fmt::format("{}: {} samples scored again, {} scores changed, {} left as they are", row.run_id,
                           counts.n_scored, counts.n_changed, counts.n_left));
  const bool people = options.output.format == "table" || options.output.format == "md";
  print(console, {"rescore", {results_section(store.show_run(row.id), {}, !people)}}, options.output);
  store.close();
  return counts.n_scored > 0 ? 0 : 5;
}

}  // namespace

Action declare_rescore(Flags& flags) {
  auto options = std::make_shared<RescoreOptions>();
  flags.argument("RUN", options->run, "Which run.").kind = "run";
  flags.text("data", options->data, "DIR", "Folder of data sets. Default: the run's own.").kind = "dir";
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
