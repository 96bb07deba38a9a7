#include "cli/plan.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/json.h"
#include "runs/provenance.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;

// The first word of "hayfork/1 cpu x86-64-v4+bf16": the version of our own arithmetic.
std::string numerics_version(const std::string& numerics_id) {
  return numerics_id.substr(0, numerics_id.find(' '));
}

// SHA-256 over the keys of all samples, in order: which samples the plan holds, whatever options led to them.
std::string samples_digest(const tasks::Task& task) {
  Sha256Stream stream;
  for (int64_t i = 0; i < task.n_samples(); ++i) {
    const tasks::SampleKey key = task.key(i);
    stream.update(fmt::format("{}\t{}\t{}\n", key.doc_id, key.doc_sha256, key.repeat));
  }
  return hex(stream.finish());
}

json task_identity(const tasks::Task& task) {
  const tasks::TaskInfo& info = task.info();
  return {{"name", info.name},
          {"version", info.version},
          {"protocol", info.protocol},
          {"config", parse_json(info.config_json, "task configuration", ErrorSubject::general)},
          {"dataset", info.dataset ? json(info.dataset->sha256) : json()},
          {"num_fewshot", info.num_fewshot},
          {"fewshot_seed", info.fewshot_seed},
          {"samples", samples_digest(task)}};
}

runs::OptText known(const std::string& text) {
  return text.empty() ? runs::OptText() : runs::OptText(text);
}
runs::OptInt known(int64_t n) {
  return n == 0 ? runs::OptInt() : runs::OptInt(n);
}

}  // namespace

int64_t Plan::n_samples() const {
  int64_t n = 0;
  for (const auto& task : tasks) n += task->n_samples();
  return n;
}

void require_samples(const Plan& plan) {
  if (plan.n_samples() > 0) return;
  throw Error(ErrorCode::usage, ErrorSubject::general, "the plan holds no samples",
              {.next = "name tasks with --tasks, and look at --limit and --samples"});
}

void check_window(const std::vector<std::unique_ptr<tasks::Task>>& tasks, const engine::ModelInfo& info) {
  if (info.max_length <= 0) return;
  int64_t longest = 0, n_cells = 0, n_affected = 0;
  std::string where, first;
  for (const auto& task : tasks) {
    int64_t affected_here = 0;
    for (const tasks::PlanRow& row : task->plan()) {
      ++n_cells;
      if (!row.ctx_len || *row.ctx_len <= info.max_length) continue;
      longest = std::max(longest, *row.ctx_len);
      if (first.empty()) first = fmt::format("{}@{}", task->info().name, *row.ctx_len);
      affected_here += row.n_samples;
      ++n_affected;
    }
    if (affected_here > 0) {
      where += fmt::format("{}{}: {} of {} samples", where.empty() ? "" : ", ", task->info().name, affected_here,
                           task->n_samples());
    }
  }
  if (longest == 0) return;
  throw Error(
      ErrorCode::usage, ErrorSubject::general,
      fmt::format("model window is {} tokens but {} needs {}", info.max_length, first, longest),
      {.where = fmt::format("{} ({} of {} lengths)", where, n_affected, n_cells),
       .why = fmt::format("config.json has max_position_embeddings={}", info.max_length),
       .next = fmt::format("drop lengths above {} from --lengths, or pass --allow-beyond-window", info.max_length)});
}

Plan make_plan(RunConfig config, const EngineFlags& flags, bool digest, Console& console, const EventSink& events) {
  engine::EngineOptions options = engine_options(flags, console);
  options.weights_digest = digest;
  options.allow_beyond_window = config.allow_beyond_window;
  options.events = events;
  for (const std::string& name : config.tasks)
    tasks::expand_tasks(std::vector{name.starts_with("@") ? name.substr(1) : name});
  Plan plan;
  plan.engine = open_engine(flags, std::move(options));
  const engine::ModelInfo& info = plan.engine->info();
  config.dtype = info.dtype;
  config.kv_dtype = info.kv_dtype;
  plan.text = text_side(config, plan.engine->tokenizer(), config.allow_beyond_window ? 0 : info.max_length, events);
  if (!config.allow_beyond_window) plan.text.context.window = info.max_length;
  // Tasks are made unchecked, so that one error can name every length that does not fit.
  TextSide unchecked = plan.text;
  unchecked.context.max_length = 0;
  plan.tasks = make_tasks(config, unchecked, events);
  if (!config.allow_beyond_window) check_window(plan.tasks, info);
  plan.config = std::move(config);
  return plan;
}

std::string plan_sha256(const Plan& plan) {
  const engine::ModelInfo& info = plan.engine->info();
  json tasks = json::array();
  for (const auto& task : plan.tasks) tasks.push_back(task_identity(*task));
  const RunConfig& config = plan.config;
  json identity = {
      {"model", runs::model_identity(model_row(info))},
      {"tasks", tasks},
      {"chat", config.chat_template ? json(config.chat_template_name) : json()},
      {"system", config.system},
      {"clock", config.clock},
      {"add_bos", plan.text.context.add_bos},
      {"parse_special", config.parse_special},
      {"dtype", info.dtype},
      {"kv_dtype", info.kv_dtype},
      {"numerics", numerics_version(info.numerics_id)},
      {"ignored_config_keys", config.ignored_config_keys},
  };
  if (config.chat_turns != "multi") identity["chat_turns"] = config.chat_turns;
  return sha256_hex(canonical_json(identity));
}

runs::ModelRow model_row(const engine::ModelInfo& info) {
  runs::ModelRow row;
  row.name = info.name;
  row.arch = known(info.arch);
  row.arch_label = known(info.arch_label);
  json layers = json::array();
  for (const engine::LayerInfo& layer : info.layers) layers.push_back(layer.kind);
  row.layers_json = layers.dump();
  row.n_params = known(info.n_params);
  row.n_params_noemb = known(info.n_params_no_embedding);
  row.weights_sha256 = known(info.weights_sha256);
  row.weights_provenance = known(info.weights_provenance);
  row.train_tokens = known(info.train_tokens);
  row.config_sha256 = known(info.config_sha256);
  row.tokenizer_sha256 = known(info.tokenizer_sha256);
  row.template_sha256 = known(info.template_sha256);
  row.max_len = known(info.max_length);
  row.path = known(info.path);
  return row;
}

std::vector<runs::ModelLayerRow> layer_rows(const engine::ModelInfo& info) {
  std::vector<runs::ModelLayerRow> rows;
  for (size_t i = 0; i < info.layers.size(); ++i) {
    const engine::LayerInfo& layer = info.layers[i];
    runs::ModelLayerRow row;
    row.layer = static_cast<int64_t>(i);
    row.kind = layer.kind;
    row.window = known(layer.window);
    row.pos = known(layer.position);
    row.n_heads = known(layer.n_heads);
    row.n_kv = known(layer.n_kv_heads);
    row.head_dim = known(layer.head_dim);
    rows.push_back(std::move(row));
  }
  return rows;
}

runs::PlannedTask planned_task(const tasks::Task& task, const RunConfig& config) {
  const tasks::TaskInfo& info = task.info();
  runs::PlannedTask planned;
  planned.task.name = info.name;
  planned.task.family = info.family;
  planned.task.version = info.version;
  planned.task.kind = info.kind;
  planned.task.primary_metric = info.primary_metric;
  planned.task.higher_is_better = info.higher_is_better;
  planned.task.config_json = info.config_json;
  planned.task.protocol = info.protocol;
  for (const tasks::MetricDef& metric : info.metrics) {
    planned.metric_defs.push_back({.metric = metric.name,
                                   .higher_is_better = metric.higher_is_better,
                                   .agg = metric.agg,
                                   .unit = known(metric.unit)});
  }
  if (info.dataset) {
    planned.dataset = runs::DatasetRow{.name = info.dataset->name,
                                       .version = info.dataset->version,
                                       .sha256 = info.dataset->sha256,
                                       .n_docs = info.dataset->n_docs,
                                       .license = known(info.dataset->license)};
  }
  planned.num_fewshot = info.num_fewshot;
  planned.fewshot_seed = info.fewshot_seed;
  planned.chat = config.chat_template;
  if (!config.system.empty()) planned.system_sha256 = sha256_hex(config.system);
  planned.seeds_json = known(info.seeds_json);
  planned.n_planned = task.n_samples();
  return planned;
}

std::vector<runs::PlannedTask> planned_groups(const Plan& plan) {
  std::vector<runs::PlannedTask> groups;
  for (const std::string& asked : plan.config.tasks) {
    const tasks::TaskEntry& entry = tasks::find_task(asked.starts_with("@") ? asked.substr(1) : asked);
    if (entry.fold_group == nullptr) continue;
    runs::PlannedTask planned;
    planned.task = {.name = entry.name,
                    .family = entry.family,
                    .version = entry.version,
                    .kind = entry.kind,
                    .primary_metric = entry.primary_metric,
                    .protocol = entry.protocol};
    json members = json::object();
    for (const auto& task : plan.tasks) {
      const tasks::TaskInfo& info = task->info();
      if (std::find(entry.members.begin(), entry.members.end(), info.name) == entry.members.end()) continue;
      members[info.name] = sha256_hex(info.config_json);
      // A group whose members know several protocols is of theirs.
      planned.task.protocol = json::parse(info.config_json).value("group", planned.task.protocol);
      planned.num_fewshot = info.num_fewshot;
      planned.fewshot_seed = info.fewshot_seed;
    }
    planned.task.config_json = canonical_json(json{{"protocol", planned.task.protocol}, {"members", members}});
    for (const tasks::MetricDef& metric : entry.metrics) {
      planned.metric_defs.push_back({.metric = metric.name,
                                     .higher_is_better = metric.higher_is_better,
                                     .agg = metric.agg,
                                     .unit = known(metric.unit)});
    }
    planned.chat = plan.config.chat_template;
    groups.push_back(std::move(planned));
  }
  return groups;
}

runs::HostRow host_row() {
  return runs::this_host();
}

std::vector<int64_t> occurrences(const tasks::Task& task) {
  std::map<std::pair<std::string, int64_t>, int64_t> seen;
  std::vector<int64_t> list;
  for (int64_t i = 0; i < task.n_samples(); ++i) {
    const tasks::SampleKey key = task.key(i);
    list.push_back(seen[{key.doc_sha256, key.repeat}]++);
  }
  return list;
}

}  // namespace hayfork::cli
