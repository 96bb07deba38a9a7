#include "cli/sample_rows.h"

#include <algorithm>
#include <map>

#include "engine/text/tokenizer.h"

namespace hayfork::cli {
namespace {

using runs::OptInt;
using runs::OptText;

OptText known(const std::string& text) {
  return text.empty() ? OptText() : OptText(text);
}

constexpr const char* kFinish[] = {"eos", "stop", "length"};

const char* status_name(tasks::Status status) {
  switch (status) {
    case tasks::Status::ok:
      return "ok";
    case tasks::Status::failed:
      return "failed";
    case tasks::Status::skipped:
      return "skipped";
  }
  return "failed";
}

tasks::Status status_of(const std::string& name) {
  return name == "ok" ? tasks::Status::ok : name == "skipped" ? tasks::Status::skipped : tasks::Status::failed;
}

std::span<const int32_t> prompt_ids(const engine::Request& request) {
  if (const auto* score = std::get_if<engine::ScoreRequest>(&request)) return score->context;
  if (const auto* nll = std::get_if<engine::NllRequest>(&request)) return nll->tokens;
  return std::get<engine::GenerateRequest>(request).prompt;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : " | ") + text;
  return all;
}

// What was generated; of several requests the first that generates.
void take_answers(const tasks::SampleResult& result, const SampleRowOptions& options, runs::SampleRow& row) {
  int64_t n_generated = 0;
  bool generates = false;
  for (const engine::Answer& answer : result.answers) {
    if (const auto* score = std::get_if<engine::ScoreAnswer>(&answer.result); score != nullptr && !row.ctx_nll) {
      if (score->context_nll_tokens > 0) {
        row.ctx_nll = score->context_nll;
        row.ctx_tokens = score->context_nll_tokens;
      }
    }
    const auto* generated = std::get_if<engine::GenerateAnswer>(&answer.result);
    if (generated == nullptr) continue;
    n_generated += static_cast<int64_t>(generated->ids.size());
    if (generates) continue;
    generates = true;
    row.finish = kFinish[static_cast<int>(generated->finish)];
    if (generated->finish == engine::Finish::stop) row.stop = generated->stop;
    if (!options.texts) continue;
    row.response_ids = runs::pack_ids(generated->ids);
    row.response = runs::StoredText{generated->text};
  }
  if (generates) row.gen_tokens = n_generated;
}

void take_prompt(const tasks::Sample& sample, const SampleRowOptions& options, runs::SampleRow& row) {
  if (!options.texts) return;
  if (sample.prompt_text) {
    row.prompt_text = runs::StoredText{*sample.prompt_text};
  } else if (options.keep_prompts && options.tokenizer != nullptr && !sample.requests.empty()) {
    row.prompt_text = runs::StoredText{options.tokenizer->decode(prompt_ids(sample.requests.front()), false)};
  }
}

}  // namespace

runs::SampleRow sample_row(const tasks::SampleResult& result, int64_t run_task, int64_t attempt, int64_t occurrence,
                           const SampleRowOptions& options) {
  const tasks::Sample& sample = result.sample;
  runs::SampleRow row;
  row.run_task = run_task;
  row.attempt = attempt;
  row.doc_id = sample.doc_id;
  row.doc_sha256 = sample.doc_sha256;
  row.repeat = sample.repeat;
  row.occurrence = occurrence;
  row.subtask = sample.subtask;
  row.ctx_len = sample.ctx_len;
  row.depth_pct = sample.depth_pct;
  row.depth_real = sample.depth_real;
  row.cluster = sample.cluster;
  row.seed = sample.seed;
  row.prompt_sha256 = sample.prompt_sha256;
  row.ids_sha256 = known(sample.ids_sha256);
  row.recipe_json = known(sample.recipe_json);
  row.prompt_tokens = sample.prompt_tokens;
  row.kept_tokens = sample.kept_tokens;
  row.rows_base = result.effort.rows_base;
  row.rows_output = result.effort.rows_output;
  row.rows_reused = result.effort.rows_reused;
  row.needle_tok = sample.needle_tok;
  row.needle_tokens = sample.needle_tokens;
  row.needle_distance = sample.needle_distance;
  row.batch_size = result.effort.batch_size;
  row.status = status_name(result.score.status);
  if (sample.max_new_tokens > 0) row.max_new_tokens = sample.max_new_tokens;
  row.truncated = sample.truncated;
  row.answer = known(result.score.answer);
  row.target = known(joined(sample.targets));
  row.score = result.score.score;
  row.error = known(result.score.error);
  row.t_prefill_ms = result.effort.prefill_ms;
  row.t_decode_ms = result.effort.decode_ms;
  take_prompt(sample, options, row);
  take_answers(result, options, row);
  for (const tasks::MetricValue& metric : result.score.metrics) {
    row.metrics.push_back(
        {.metric = metric.metric, .filter = metric.filter, .value = metric.value, .weight = metric.weight});
  }
  for (size_t i = 0; i < result.score.choices.size(); ++i) {
    const tasks::ChoiceValue& choice = result.score.choices[i];
    runs::SampleChoiceRow out;
    out.choice = static_cast<int64_t>(i);
    out.logprob = choice.logprob;
    out.n_tokens = choice.n_tokens;
    out.n_chars = choice.n_chars;
    out.n_bytes = choice.n_bytes;
    out.uncond_logprob = choice.uncond_logprob;
    out.ctx_nll = choice.ctx_nll;
    out.ctx_tokens = choice.ctx_tokens;
    out.ids_sha256 = known(choice.ids_sha256);
    if (choice.greedy) out.greedy = *choice.greedy ? 1 : 0;
    out.gold = choice.gold;
    row.choices.push_back(std::move(out));
  }
  return row;
}

namespace {

std::vector<runs::MetricRow> metric_rows(const std::vector<tasks::Aggregate>& aggregates, int64_t run_task) {
  std::vector<runs::MetricRow> metrics;
  for (const tasks::Aggregate& aggregate : aggregates) {
    runs::MetricRow row;
    row.run_task = run_task;
    row.slice = aggregate.slice;
    row.metric = aggregate.metric;
    row.filter = aggregate.filter;
    row.value = aggregate.value;
    row.n = aggregate.n;
    row.stderr_value = aggregate.stderr_value;
    row.ci_low = aggregate.ci_low;
    row.ci_high = aggregate.ci_high;
    row.ci_method = known(aggregate.ci_method);
    metrics.push_back(std::move(row));
  }
  return metrics;
}

tasks::Aggregate aggregate_of(const runs::MetricRow& row) {
  tasks::Aggregate out;
  out.slice = row.slice;
  out.metric = row.metric;
  out.filter = row.filter;
  out.value = row.value;
  out.n = row.n;
  out.stderr_value = row.stderr_value;
  out.ci_low = row.ci_low;
  out.ci_high = row.ci_high;
  out.ci_method = row.ci_method.value_or("");
  return out;
}

}  // namespace

Folded fold_task(runs::Store& store, const tasks::Task& task, int64_t run_task) {
  store.flush();
  std::map<std::pair<std::string, int64_t>, tasks::FoldRow> stored;
  Folded folded;
  store.for_each_sample(run_task, {}, [&](const runs::SampleRow& row) {
    tasks::FoldRow fold;
    fold.status = status_of(row.status);
    fold.score = row.score;
    for (const runs::SampleMetricRow& metric : row.metrics) {
      fold.metrics.push_back(
          {.metric = metric.metric, .value = metric.value, .filter = metric.filter, .weight = metric.weight});
    }
    ++folded.n_stored;
    folded.n_ok += fold.status == tasks::Status::ok ? 1 : 0;
    folded.n_failed += fold.status == tasks::Status::failed ? 1 : 0;
    folded.n_truncated += row.truncated ? 1 : 0;
    stored.emplace(std::pair(row.doc_id, row.repeat), std::move(fold));
  });
  std::vector<tasks::FoldRow> rows;
  for (int64_t i = 0; i < task.n_samples(); ++i) {
    tasks::SampleKey key = task.key(i);
    const auto found = stored.find({key.doc_id, key.repeat});
    if (found == stored.end()) continue;
    found->second.key = std::move(key);
    rows.push_back(std::move(found->second));
  }
  store.set_metrics(run_task, metric_rows(task.fold(rows), run_task));
  return folded;
}

void fold_groups(runs::Store& store, int64_t run, bool whole) {
  const std::vector<runs::RunTaskView> views = store.run_tasks(run);
  for (const runs::RunTaskView& group : views) {
    if (group.task.kind != "group") continue;
    const tasks::TaskEntry& entry = tasks::find_task(group.task.name);
    std::map<std::string, std::vector<tasks::Aggregate>> members;
    for (const runs::RunTaskView& view : views) {
      if (std::find(entry.members.begin(), entry.members.end(), view.task.name) == entry.members.end()) continue;
      for (const runs::MetricRow& row : view.metrics) members[view.task.name].push_back(aggregate_of(row));
    }
    store.set_metrics(group.row.id, metric_rows(entry.fold_group(members), group.row.id));
    store.finish_task(group.row.id, whole ? "done" : "partial");
  }
}

}  // namespace hayfork::cli
