// lm-evaluation-harness, version 0.4: results_<date>.json as EvaluationTracker writes it (lm_eval/loggers/
// evaluation_tracker.py) and samples_<task>_<date>.jsonl, whose values are texts ("-1.25", "True": sanitize_list).
// Protocols are lm-eval's own, never those of the benchmark's authors.
#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/import/importer.h"
#include "cli/import/lm_eval_sample.h"
#include "datasets/jsonl.h"
#include "runs/main_filter.h"

namespace hayfork::cli {
namespace {

using json = lm_eval::Json;
using lm_eval::find;
using lm_eval::is_special_float;
using lm_eval::number;
using lm_eval::text_at;
using lm_eval::text_of;
namespace fs = std::filesystem;

// "torch.bfloat16" → "bf16".
runs::OptText dtype_of(const runs::OptText& text) {
  if (!text) return text;
  if (text->find("bfloat16") != std::string::npos) return "bf16";
  if (text->find("float16") != std::string::npos || text->find("half") != std::string::npos) return "f16";
  if (text->find("float32") != std::string::npos) return "f32";
  return text;
}

class LmEval {
 public:
  LmEval(const ImportOptions& options) : options_(options) {}

  ImportReport run(const OpenStore& open) {
    static constexpr const char* kFacts[] = {"model", "series", "arch", "train_tokens", "train_step", "dtype"};
    check_facts(options_, kFacts);
    split_files();
    read_results();
    for (const fs::path& file : sample_files_) read_samples(file);
    ImportReport report;
    runs::Store& store = open();
    store_imported(store, make_run(store), report);
    return report;
  }

 private:
  void split_files() {
    for (const fs::path& file : options_.files) {
      if (file.extension() == ".jsonl") {
        sample_files_.push_back(file);
      } else if (results_file_.empty()) {
        results_file_ = file;
      } else {
        throw Error(ErrorCode::usage, ErrorSubject::general, "import lm-eval takes one results file at a time",
                    {.where = file.string(), .why = "there is already " + results_file_.string()});
      }
    }
    if (results_file_.empty()) {
      throw Error(ErrorCode::usage, ErrorSubject::general, "import lm-eval needs a results file",
                  {.next = "hayfork import lm-eval results_….json samples_….jsonl"});
    }
  }

  [[noreturn]] void refuse(const std::string& why) const { refuse_import(results_file_.string(), why); }

  void read_results() {
    text_ = read_file(results_file_, ErrorSubject::data);
    results_ = parse_ordered_json(text_, results_file_.string(), ErrorSubject::data, {.python_literals = true});
    const json* all = find(results_, "results");
    if (all == nullptr || !all->is_object() || all->empty()) refuse("there is no object \"results\" with tasks in it");
    hash_.update(text_);
    for (const auto& [name, values] : all->items()) {
      if (!values.is_object()) refuse("results of \"" + printable(name.substr(0, 80)) + "\" are no object");
      if (name.size() > 300 || find_invalid_utf8(name)) refuse("a task's name is longer than 300 bytes or no UTF-8");
      add_task(name, values);
    }
  }

  bool is_group(const std::string& name) const {
    if (const json* groups = find(results_, "group_subtasks")) {
      const json* members = find(*groups, name);
      return members != nullptr && members->is_array() && !members->empty();
    }
    return false;
  }

  void add_task(const std::string& name, const json& values) {
    ImportedTask task;
    runs::PlannedTask& planned = task.planned;
    const json* configs = find(results_, "configs");
    const json* config = configs == nullptr ? nullptr : find(*configs, name);
    planned.task.name = name;
    planned.task.family = "lm-eval";
    planned.task.version = version_of(name);
    planned.task.protocol = "lm-eval/" + name + "/" + planned.task.version;
    planned.task.kind = is_group(name) ? "group" : kind_of(config);
    planned.task.config_json = canonical_config(config);
    read_metrics(name, values, config, task);
    if (const json* shots = find(results_, "n-shot")) {
      if (const json* n = find(*shots, name); n != nullptr && n->is_number_integer())
        planned.num_fewshot = n->get<int64_t>();
    }
    planned.chat = text_at(results_, "chat_template").has_value();
    planned.system_sha256 = text_at(results_, "system_instruction_sha");
    if (const json* counts = find(results_, "n-samples")) {
      if (const json* own = find(*counts, name)) {
        if (const json* n = find(*own, "effective"); n != nullptr && n->is_number_integer())
          planned.n_planned = std::clamp<int64_t>(n->get<int64_t>(), 0, int64_t{1} << 40);
      }
    }
    by_name_[name] = tasks_.size();
    tasks_.push_back(std::move(task));
  }

  std::string version_of(const std::string& name) const {
    const json* versions = find(results_, "versions");
    const json* version = versions == nullptr ? nullptr : find(*versions, name);
    return version == nullptr ? "unknown" : text_of(*version);
  }

  static std::string kind_of(const json* config) {
    const auto type = config == nullptr ? runs::OptText() : text_at(*config, "output_type");
    if (type == "generate_until") return "generate";
    if (type == "loglikelihood_rolling") return "rolling";
    return "choice";
  }

  // A task's configuration holds functions as text and paths: what identifies it is its digest.
  static std::string canonical_config(const json* config) {
    return canonical_json(
        nlohmann::json{{"lm_eval_config", config == nullptr ? nlohmann::json() : nlohmann::json(*config)}});
  }

  void read_metrics(const std::string& name, const json& values, const json* config, ImportedTask& task) {
    const json* directions = find(results_, "higher_is_better");
    const json* own = directions == nullptr ? nullptr : find(*directions, name);
    std::vector<std::string> order;
    for (const auto& [key, value] : values.items()) {
      const size_t comma = key.rfind(',');
      if (comma == std::string::npos || key.find("_stderr,") != std::string::npos) continue;
      const std::string metric = key.substr(0, comma), filter = key.substr(comma + 1);
      if (is_special_float(value)) refuse(fmt::format("{}: {} is not finite", printable(name), printable(key)));
      runs::MetricRow row;
      row.metric = metric;
      row.filter = filter;
      row.value = number(value);
      if (!row.value) continue;  // " " and lists: nothing a table could show
      read_stderr(values, metric, filter, row);
      if (std::find(order.begin(), order.end(), metric) == order.end()) {
        order.push_back(metric);
        runs::MetricDefRow def;
        def.metric = metric;
        const json* better = own == nullptr ? nullptr : find(*own, metric);
        def.higher_is_better =
            better == nullptr || !better->is_boolean() ? !lower_is_better(metric) : better->get<bool>();
        def.agg = "mean";
        task.planned.metric_defs.push_back(std::move(def));
      }
      row.n = task.planned.n_planned;
      task.metrics.push_back(std::move(row));
    }
    if (order.empty()) refuse("results of \"" + printable(name) + "\" hold no number");
    task.planned.task.primary_metric = primary_of(config, order);
    for (const runs::MetricDefRow& def : task.planned.metric_defs) {
      if (def.metric == task.planned.task.primary_metric) task.planned.task.higher_is_better = def.higher_is_better;
    }
  }

  void read_stderr(const json& values, const std::string& metric, const std::string& filter, runs::MetricRow& row) {
    const json* error = find(values, metric + "_stderr," + filter);
    if (error == nullptr || is_special_float(*error)) return;
    row.stderr_value = number(*error);
    if (row.stderr_value && *row.stderr_value < 0) row.stderr_value.reset();
    if (row.stderr_value == 0.0) {
      row.stderr_value.reset();
      ++n_zero_stderr_;
    }
  }

  static bool lower_is_better(const std::string& metric) {
    return metric.find("perplexity") != std::string::npos || metric == "bits_per_byte" || metric == "brier_score" ||
           metric == "ter";
  }

  // The first of the task's own list that has a value.
  static std::string primary_of(const json* config, const std::vector<std::string>& order) {
    const json* list = config == nullptr ? nullptr : find(*config, "metric_list");
    if (list != nullptr && list->is_array()) {
      for (const json& one : *list) {
        const auto metric = text_at(one, "metric");
        if (metric && std::find(order.begin(), order.end(), *metric) != order.end()) return *metric;
      }
    }
    return order.front();
  }

  // samples_<task>_<date>.jsonl: the longest task that fits.
  ImportedTask& task_of(const fs::path& file) {
    const std::string name = file.filename().string();
    const std::string* found = nullptr;
    for (const auto& [task, index] : by_name_) {
      if (name.starts_with("samples_" + task + "_") || name == "samples_" + task + ".jsonl") {
        if (found == nullptr || task.size() > found->size()) found = &task;
      }
    }
    if (found == nullptr) {
      refuse_import(file.string(), "its name fits no task of " + results_file_.string(),
                    "samples files are called samples_<task>_<date>.jsonl");
    }
    return tasks_[by_name_.at(*found)];
  }

  void read_samples(const fs::path& file) {
    ImportedTask& task = task_of(file);
    datasets::JsonlReader reader(file, {.python_literals = true,
                                        .duplicate_keys = datasets::DuplicateKeys::last,
                                        .invalid_utf8 = datasets::InvalidUtf8::replace});
    std::map<std::string, size_t> by_document;
    json line;
    while (reader.next(line)) {
      const json* id = find(line, "doc_id");
      if (id == nullptr || !(id->is_number_integer() || id->is_string()))
        refuse_import(reader.where(), "want a \"doc_id\" that is a number or a text");
      const std::string doc = text_of(*id);
      hash_.update(text_of(line));
      const auto [at, fresh] = by_document.try_emplace(doc, task.samples.size());
      if (fresh)
        task.samples.push_back(lm_eval::sample_of(line, doc, reader.where(), task.planned.task.kind,
                                                  delimiter_of(task.planned.task.name)));
      add_metrics(line, task, task.samples[at->second]);
    }
    hash_.update(file.filename().string());
    task.planned.n_planned = std::max(task.planned.n_planned, static_cast<int64_t>(task.samples.size()));
    if (task.samples.empty()) refuse_import(file.string(), "it holds no samples");
  }

  // Nothing stands between them under a chat template.
  std::string delimiter_of(const std::string& task) const {
    if (text_at(results_, "chat_template")) return "";
    const json* configs = find(results_, "configs");
    const json* config = configs == nullptr ? nullptr : find(*configs, task);
    const json* delimiter = config == nullptr ? nullptr : find(*config, "target_delimiter");
    return delimiter != nullptr && delimiter->is_string() ? delimiter->get<std::string>() : " ";
  }

  void add_metrics(const json& line, const ImportedTask& task, runs::SampleRow& row) const {
    const std::string filter = text_at(line, "filter").value_or("none"),
                      main_filter = runs::main_filter(task.metrics, task.planned.task.primary_metric);
    for (const runs::MetricDefRow& def : task.planned.metric_defs) {
      const json* value = find(line, def.metric);
      if (value == nullptr) continue;
      if (is_special_float(*value)) {
        row.status = "failed";
        row.error = def.metric + " is not finite";
        continue;
      }
      const auto share = task.planned.task.kind == "rolling" ? lm_eval::corpus_share(def.metric, *value) : std::nullopt;
      const auto one = share ? std::optional(share->value) : number(*value);
      if (!one) continue;  // pairs and lists: other corpus metrics have no value a sample
      if (!std::isfinite(*one)) {
        row.status = "failed";
        row.error = def.metric + " is not finite";
        continue;
      }
      if (share) {
        add_metric("loglikelihood", filter, share->loglikelihood, row);
        add_metric(share->count_name, filter, share->count, row);
      } else {
        add_metric(def.metric, filter, *one, row);
      }
      if (def.metric == task.planned.task.primary_metric && filter == main_filter && !row.score) row.score = one;
    }
    const json* answers = find(line, "filtered_resps");
    if (filter == main_filter && task.planned.task.kind == "generate" && answers != nullptr && answers->is_array() &&
        !answers->empty())
      row.answer = lm_eval::text_of(answers->front());
    if (row.status == "failed") row.score.reset();
  }

  // The first value stands.
  static void add_metric(const std::string& name, const std::string& filter, double value, runs::SampleRow& row) {
    const bool there = std::any_of(row.metrics.begin(), row.metrics.end(), [&](const runs::SampleMetricRow& m) {
      return m.metric == name && m.filter == filter;
    });
    if (!there) row.metrics.push_back({.metric = name, .filter = filter, .value = value});
  }

  runs::OptInt count_fact(const std::string& key) const {
    const auto found = options_.facts.find(key);
    if (found == options_.facts.end()) return {};
    const auto value = number(json(found->second));
    if (!value || *value < 0 || *value > 9e15) {
      throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--map {}: want a number", key));
    }
    return static_cast<int64_t>(*value);
  }
  runs::OptText fact(const std::string& key) const {
    const auto found = options_.facts.find(key);
    return found == options_.facts.end() ? runs::OptText() : runs::OptText(found->second);
  }

  void describe_model(runs::RunIdentity& identity) const {
    const json* config = find(results_, "config");
    const json none = json::object();
    const json& c = config == nullptr ? none : *config;
    runs::ModelRow& model = identity.model;
    model.name =
        fact("model").value_or(text_at(results_, "model_name").value_or(text_at(c, "model").value_or("unknown")));
    model.series = fact("series");
    model.arch = fact("arch");
    model.train_tokens = count_fact("train_tokens");
    model.train_step = count_fact("train_step");
    if (const json* n = find(c, "model_num_parameters");
        n != nullptr && n->is_number_integer() && n->get<int64_t>() > 0)
      model.n_params = n->get<int64_t>();
    model.template_sha256 = text_at(results_, "chat_template_sha");
    if (const auto sha = text_at(c, "model_sha")) model.weights_provenance = "Hugging Face revision " + *sha;
    if (const json* length = find(results_, "max_length"); length != nullptr && length->is_number_integer())
      model.max_len = length->get<int64_t>();
    const auto dtype = fact("dtype");
    identity.dtype = dtype ? dtype : dtype_of(text_at(c, "model_dtype"));
    if (const json* seed = find(c, "random_seed"); seed != nullptr && seed->is_number_integer())
      identity.seed = seed->get<int64_t>();
  }

  ImportedRun make_run(runs::Store& store) {
    ImportedRun run;
    const std::string config =
        canonical_json(nlohmann::json{{"importer", "lm-eval"},
                                      {"file", replace_invalid_utf8(results_file_.filename().string())},
                                      {"lm_eval_commit", text_at(results_, "git_hash").value_or("")}});
    run.identity = imported_identity(store, "lm-eval", hex(hash_.finish()), config, options_);
    describe_model(run.identity);
    run.wall_s = seconds_of();
    runs::ArtefactRow original;
    original.kind = "imported";
    original.name = results_file_.filename().string();
    original.mime = "application/json";
    original.body = runs::Blob{text_};
    run.artefacts.push_back(std::move(original));
    if (n_zero_stderr_ > 0) {
      run.events.push_back({Event::Level::warn, "HAY-W031",
                            fmt::format("{} standard errors of 0.0 are stored as unknown", n_zero_stderr_), ""});
    }
    run.events.push_back({Event::Level::warn, "HAY-W032", "the weights' digest is unknown: comparisons say so", ""});
    run.tasks = std::move(tasks_);
    for (ImportedTask& task : run.tasks) {
      const bool group = task.planned.task.kind == "group";
      for (runs::MetricRow& row : task.metrics)
        row.n = group ? n_of_group(task.planned.task.name) : task.planned.n_planned;
    }
    return run;
  }

  // Documents behind a group's figures; it has no samples of its own.
  int64_t n_of_group(const std::string& name) const {
    const json* all = find(results_, "results");
    const json* n = find(all->at(name), "sample_len");
    return n != nullptr && n->is_number_integer() ? std::clamp<int64_t>(n->get<int64_t>(), 0, int64_t{1} << 40) : 0;
  }

  runs::OptReal seconds_of() const {
    const json* seconds = find(results_, "total_evaluation_time_seconds");
    return seconds == nullptr ? std::nullopt : number(*seconds);
  }

  const ImportOptions& options_;
  fs::path results_file_;
  std::vector<fs::path> sample_files_;
  std::string text_;
  json results_;
  Sha256Stream hash_;
  std::vector<ImportedTask> tasks_;
  std::map<std::string, size_t> by_name_;
  int64_t n_zero_stderr_ = 0;
};

}  // namespace

ImportReport import_lm_eval(const OpenStore& open, const ImportOptions& options) {
  return LmEval(options).run(open);
}

}  // namespace hayfork::cli
