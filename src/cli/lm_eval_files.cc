#include "cli/lm_eval_files.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/utf8.h"
#include "cli/compare_flags.h"

namespace hayfork::cli {
namespace {

using json = nlohmann::ordered_json;
namespace fs = std::filesystem;

std::string dump(const json& value, int indent = -1) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

// lm_eval/utils.py, sanitize_model_name: what is no part of a file's name becomes "_".
std::string file_name(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 150))
    out += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' ? c : '_';
  return out.empty() || out == "." || out == ".." ? "_" : out;
}
// A task's name keeps its underscores: they are how a reader finds it again.
std::string task_file_name(const std::string& task) {
  return file_name(task);
}

const char* output_type(const std::string& kind) {
  if (kind == "choice") return "multiple_choice";
  if (kind == "rolling" || kind == "longppl") return "loglikelihood_rolling";
  return "generate_until";
}

bool is_default_slice(const runs::MetricRow& row) {
  return row.slice.empty() && row.value.has_value();
}

class Files {
 public:
  Files(runs::Store& store, const runs::RunView& run) : store_(store), run_(run) {
    date_ = run.run.created_at;
    std::replace(date_.begin(), date_.end(), ':', '-');
    if (date_.ends_with('Z')) date_.pop_back();
  }

  std::vector<fs::path> write(const fs::path& folder) {
    const fs::path here = folder / file_name(run_.model.name);
    std::error_code error;
    fs::create_directories(here, error);
    if (error) {
      throw Error(ErrorCode::resource, ErrorSubject::disk, "the folder cannot be made",
                  {.where = here.string(), .why = error.message()});
    }
    std::vector<fs::path> paths = {here / ("results_" + date_ + ".json")};
    json hashes = json::object();
    for (const runs::RunTaskView& task : run_.tasks) {
      if (task.task.kind == "group") continue;
      std::string hash;
      const std::string lines = samples(task, hash);
      if (lines.empty()) continue;
      paths.push_back(here / ("samples_" + task_file_name(task.task.name) + "_" + date_ + ".jsonl"));
      write_file_atomically(paths.back(), lines);
      hashes[task.task.name] = sha256_hex(hash);
    }
    write_file_atomically(paths.front(), dump(results(hashes), 2) + "\n");
    return paths;
  }

 private:
  json results(const json& hashes) const {
    json out = {{"results", json::object()},  {"group_subtasks", json::object()}, {"configs", json::object()},
                {"versions", json::object()}, {"n-shot", json::object()},         {"higher_is_better", json::object()},
                {"n-samples", json::object()}};
    for (const runs::RunTaskView& view : run_.tasks) add_task(view, out);
    const runs::ModelRow& model = run_.model;
    out["config"] = {{"model", "hayfork"},
                     {"model_args", model.path ? "pretrained=" + *model.path : ""},
                     {"model_num_parameters", model.n_params.value_or(-1)},
                     {"model_dtype", run_.run.dtype.value_or("")},
                     {"model_sha", model.weights_sha256.value_or("")},
                     {"batch_size", nullptr},
                     {"device", run_.run.engine},
                     {"limit", nullptr},
                     {"random_seed", run_.run.seed ? json(*run_.run.seed) : json()},
                     {"hayfork_run", run_.run.run_id},
                     {"hayfork_version", run_.run.hayfork_version}};
    out["git_hash"] = run_.run.git_commit.value_or("");
    out["date"] = run_.run.created_at;
    out["tokenizer_sha"] = model.tokenizer_sha256.value_or("");
    out["max_length"] = model.max_len ? json(*model.max_len) : json();
    out["task_hashes"] = hashes;
    out["model_source"] = "hayfork";
    out["model_name"] = model.name;
    out["model_name_sanitized"] = file_name(model.name);
    out["system_instruction"] = nullptr;
    out["system_instruction_sha"] =
        run_.tasks.empty() || !run_.tasks[0].row.system_sha256 ? json() : json(*run_.tasks[0].row.system_sha256);
    out["fewshot_as_multiturn"] = false;
    const bool chat = !run_.tasks.empty() && run_.tasks[0].row.chat;
    out["chat_template"] = chat ? json("see chat_template_sha") : json();
    out["chat_template_sha"] = chat ? json(model.template_sha256.value_or("")) : json();
    out["total_evaluation_time_seconds"] = fmt::format("{}", run_.run.wall_s.value_or(0));
    return out;
  }

  void add_task(const runs::RunTaskView& view, json& out) const {
    const std::string& name = view.task.name;
    json values = {{"alias", name}};
    json better = json::object(), list = json::array();
    std::set<std::string> listed;
    for (const runs::MetricRow& row : view.metrics) {
      if (!is_default_slice(row)) continue;
      values[row.metric + "," + row.filter] = *row.value;
      values[row.metric + "_stderr," + row.filter] = row.stderr_value ? json(*row.stderr_value) : json("N/A");
    }
    // The primary metric first: readers take the first of the list for it.
    const auto add_metric = [&](const std::string& metric, bool higher) {
      if (!listed.insert(metric).second) return;
      better[metric] = higher;
      list.push_back({{"metric", metric}, {"aggregation", "mean"}, {"higher_is_better", higher}});
    };
    add_metric(view.task.primary_metric, view.task.higher_is_better);
    for (const runs::MetricDefRow& def : view.metric_defs) add_metric(def.metric, def.higher_is_better);
    if (view.task.kind == "group") {  // its members' metrics
      for (const runs::RunTaskView& member : run_.tasks) {
        for (const runs::MetricDefRow& def : member.metric_defs) {
          if (values.contains(def.metric + ",none")) add_metric(def.metric, def.higher_is_better);
        }
      }
    }
    out["versions"][name] = version_of(view.task);
    out["n-shot"][name] = view.row.num_fewshot;
    out["higher_is_better"][name] = better;
    if (view.task.kind == "group") {
      values["sample_len"] = n_of_group(view);
      out["results"][name] = out["groups"][name] = values;
      out["group_subtasks"][name] = members_of(name);
      return;
    }
    out["results"][name] = values;
    out["group_subtasks"][name] = json::array();
    out["configs"][name] = {{"task", name},
                            {"output_type", output_type(view.task.kind)},
                            {"num_fewshot", view.row.num_fewshot},
                            {"metric_list", list},
                            {"metadata", {{"version", view.task.version}, {"protocol", view.task.protocol}}}};
    out["n-samples"][name] = {{"original", view.row.n_planned}, {"effective", view.row.n_planned}};
  }

  // Those that the run has.
  json members_of(const std::string& group) const {
    const auto groups = known_groups();
    const auto found = groups.find(group);
    json out = json::array();
    for (const runs::RunTaskView& view : run_.tasks) {
      if (found != groups.end() && std::ranges::find(found->second, view.task.name) != found->second.end())
        out.push_back(view.task.name);
    }
    return out;
  }

  static int64_t n_of_group(const runs::RunTaskView& view) {
    int64_t n = 0;
    for (const runs::MetricRow& row : view.metrics) n = std::max(n, row.slice.empty() ? row.n : 0);
    return n;
  }

  // "lm-eval/arc_easy/1.0" → 1.0: a number where it is one, so that it is read back as it was.
  static json version_of(const runs::TaskRow& task) {
    const json parsed = json::parse(task.version, nullptr, false);
    return parsed.is_number() ? parsed : json(task.version);
  }

  std::string samples(const runs::RunTaskView& view, std::string& hash) {
    std::string lines;
    store_.for_each_sample(view.row.id, {.texts = true}, [&](const runs::SampleRow& row) {
      std::map<std::string, std::vector<const runs::SampleMetricRow*>> by_filter;
      for (const runs::SampleMetricRow& metric : row.metrics) by_filter[metric.filter].push_back(&metric);
      if (by_filter.empty()) return;  // failed
      for (const auto& [filter, metrics] : by_filter) lines += dump(line_of(view, row, filter, metrics)) + "\n";
      hash += row.doc_sha256 + row.prompt_sha256 + sha256_hex(row.target.value_or(""));
    });
    return lines;
  }

  static json document_of(const runs::SampleRow& row) {
    if (!row.recipe_json) return json::object();
    const json recipe = json::parse(*row.recipe_json, nullptr, false);
    const auto doc = recipe.is_object() ? recipe.find("doc") : recipe.end();
    return doc == recipe.end() ? recipe : *doc;
  }

  static json id_of(const std::string& doc_id) {
    const bool number = !doc_id.empty() && doc_id.size() < 16 && (doc_id.size() == 1 || doc_id[0] != '0') &&
                        std::all_of(doc_id.begin(), doc_id.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    return number ? json(std::stoll(doc_id)) : json(doc_id);
  }

  // {"word_perplexity": [log-likelihood, words], …}: from what every document of a rolling task has.
  static json corpus_shares(const std::vector<const runs::SampleMetricRow*>& metrics) {
    std::map<std::string, double> values;
    for (const runs::SampleMetricRow* metric : metrics) {
      if (metric->value) values[metric->metric] = *metric->value;
    }
    json out = json::object();
    if (!values.contains("loglikelihood")) return out;
    for (const auto& [name, count] :
         {std::pair{"word_perplexity", "words"}, {"byte_perplexity", "bytes"}, {"bits_per_byte", "bytes"}}) {
      if (values.contains(count)) out[name] = {values["loglikelihood"], values[count]};
    }
    return out;
  }

  static json line_of(const runs::RunTaskView& view, const runs::SampleRow& row, const std::string& filter,
                      const std::vector<const runs::SampleMetricRow*>& metrics) {
    json arguments = json::object(), answers = json::array(), filtered = json::array(), names = json::array();
    const std::string prompt = row.prompt_text ? row.prompt_text->text : "";
    if (view.task.kind == "choice") {
      for (const runs::SampleChoiceRow& choice : row.choices) {
        arguments[fmt::format("gen_args_{}", choice.choice)] = {{"arg_0", prompt}, {"arg_1", ""}};
        const json pair = {choice.logprob ? fmt::format("{}", *choice.logprob) : "nan",
                           choice.greedy.value_or(0) != 0 ? "True" : "False"};
        answers.push_back(json::array({pair}));
        filtered.push_back(pair);
      }
    } else {
      arguments["gen_args_0"] = {{"arg_0", prompt}, {"arg_1", json::object()}};
      answers.push_back(json::array({row.response ? row.response->text : ""}));
      filtered.push_back(row.answer.value_or(""));
    }
    const json shares = view.task.kind == "rolling" ? corpus_shares(metrics) : json::object();
    if (!shares.empty()) {
      const std::string loss = fmt::format("{}", shares.front()[0].get<double>());
      arguments["gen_args_0"] = {{"arg_0", prompt}};
      answers = json::array({json::array({loss})});
      filtered = json::array({loss});
    }
    json line = {{"doc_id", id_of(row.doc_id)},
                 {"doc", document_of(row)},
                 {"target", row.target.value_or("")},
                 {"arguments", arguments},
                 {"resps", answers},
                 {"filtered_resps", filtered},
                 {"filter", filter}};
    for (const auto& [name, share] : shares.items()) names.push_back(name);
    for (const runs::SampleMetricRow* metric : metrics) {
      if (shares.empty()) names.push_back(metric->metric);
    }
    line["metrics"] = names;
    line["doc_hash"] = row.doc_sha256;
    line["prompt_hash"] = row.prompt_sha256;
    line["target_hash"] = sha256_hex(row.target.value_or(""));
    for (const runs::SampleMetricRow* metric : metrics)
      line[metric->metric] = metric->value ? json(*metric->value) : json();
    line.update(shares);
    return line;
  }

  runs::Store& store_;
  const runs::RunView& run_;
  std::string date_;
};

}  // namespace

std::vector<fs::path> write_lm_eval_files(runs::Store& store, const runs::RunView& run, const fs::path& folder) {
  return Files(store, run).write(folder);
}

}  // namespace hayfork::cli
