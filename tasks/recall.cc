#include "tasks/recall.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/utf8.h"
#include "engine/text/tokenizer.h"
#include "metrics/stats.h"
#include "metrics/text.h"
#include "tasks/choice.h"
#include "tasks/extras.h"
#include "tasks/generate.h"
#include "tasks/text_ids.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kAnswerLength = 50, kNewTokens = 48;

struct RecallTask {
  const char* name;
  const char* field;  // that holds the context
  std::vector<const char*> search;
  const char* answer;  // field of the label or labels
};

const std::vector<RecallTask>& based_table() {
  static const std::vector<RecallTask> kTable = {{"based_drop", "context", {}, "answers"},
                                                 {"based_nq_512", "context", {"answers"}, "answers"},
                                                 {"based_nq_1024", "context", {"answers"}, "answers"},
                                                 {"based_nq_2048", "context", {"answers"}, "answers"},
                                                 {"based_swde", "text", {"key", "value"}, "value"},
                                                 {"based_triviaqa", "context", {}, "answers"},
                                                 {"based_fda", "text", {"key", "value"}, "value"},
                                                 {"based_squad", "text", {"value"}, "value"}};
  return kTable;
}

const RecallTask& based(const std::string& name) {
  for (const RecallTask& task : based_table())
    if (task.name == name) return task;
  HAY_CHECK(false, name);
}

// str.strip(characters) for one ASCII character.
std::string strip_of(std::string text, char c) {
  const size_t first = text.find_first_not_of(c);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(c) - first + 1);
}

// Drops `tail` from the end, again and again when `all`, compared in lower case when `ignoring_case`.
std::string without_tail(std::string text, const std::string& tail, bool all, bool ignoring_case, const Fields& row) {
  if (tail.empty()) row.fail("the question is empty");
  const size_t n = count_code_points(tail);
  const auto ends = [&] {
    return ignoring_case ? metrics::lower(text).ends_with(metrics::lower(tail)) : text.ends_with(tail);
  };
  while (ends()) {
    std::u32string points = to_code_points(text);
    points.resize(points.size() - std::min(n, points.size()));
    text = to_utf8(points);
    if (!all) break;
  }
  return text;
}

std::string first_upper(const std::string& text) {
  if (text.empty()) return text;
  const auto n = static_cast<size_t>(decode_utf8(text, 0).length);
  return metrics::upper(text.substr(0, n)) + text.substr(n);
}

std::string without(std::string text, std::string_view part) {
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
  return text;
}

std::string question_after(const Fields& row, std::string context, bool all, bool ignoring_case) {
  const std::string question = strip(row.text("question"));
  context = without_tail(strip(context), question, all, ignoring_case, row);
  return strip_of(strip(context), '.') + ". " + question;
}

std::string fda_prompt(const Fields& row, std::string text) {
  const std::string key = row.text("key");
  text = without_tail(std::move(text), key + ":", true, true, row);
  return strip_of(strip_of(text, '\n'), '.') + ". " + first_upper(key) + ":";
}

std::string swde_prompt(const Fields& row, std::string text) {
  static constexpr std::string_view kSummary = "Summary of information above...";
  const size_t at = text.find(kSummary);
  if (at == std::string::npos) row.fail(fmt::format("field \"text\" holds no \"{}\"", kSummary));
  const std::string key = row.text("key");
  text = without_tail(text.substr(0, at), key + ":", true, true, row);
  text = strip_of(strip(strip_of(strip(strip_of(text, '\n')), '\n')), '.');
  return text + ". " + first_upper(key) + ":";
}

std::vector<std::string> labels(const Fields& row, const char* key) {
  const ordered_json& value = row.at(key);
  if (value.is_string()) return {value.get<std::string>()};
  std::vector<std::string> out = row.texts(key);
  if (out.empty()) row.fail(key, "at least one answer", value);
  return out;
}

std::string first_label(const Fields& row, const char* key) {
  const std::vector<std::string> all = labels(row, key);
  return all.front();
}

std::vector<OptionDef> recall_options() {
  std::vector<OptionDef> out = {
      {"context", "N",
       "tokens a context is cut to around the answer, 50 of them for it, as the suite's scripts do; 0: whole contexts",
       "1000", "recall-context"}};
  for (OptionDef& option : choice_options())
    if (option.key == "truncate") out.push_back(option);
  return out;
}

// Rows the suite drops are no part of the task: their texts say so before anything is tokenized.
DocumentForm based_form(const std::string& name, const TaskOptions& options, const TextContext& text) {
  DocumentForm form;
  form.name = name;
  form.version = "1";
  form.protocol = "hazyresearch/" + name + "/1";
  form.family = "recall";
  form.data.sets = {name};
  form.validation_split = "validation";
  form.output = Output::text;
  form.metrics = {"contains"};
  form.primary = "contains";
  form.stops = {"\n"};
  form.max_new_tokens = kNewTokens;
  const int64_t length = extra_count(options, "context", 1000, 0, int64_t{1} << 24);
  if (length > 0 && length <= kAnswerLength)
    throw Error(ErrorCode::usage, ErrorSubject::general, "--recall-context is too short",
                {.why = fmt::format("{} tokens are kept for the answer", kAnswerLength)});
  form.config_json = canonical_json(json{{"context_length", length}, {"answer_length", kAnswerLength}});
  if (length > 0) form.keep = [name](const Fields& row) { return is_asked(name, row); };
  form.document = [name, length, tokenizer = text.tokenizer](const Fields& row) {
    const RecallTask& task = based(name);
    Document out;
    std::string context = row.text(task.field);
    if (length > 0) {
      CutContext cut = cut_context(name, row, *tokenizer, length);
      context = std::move(cut.text);
      out.kept_tokens = cut.n_tokens;
    }
    out.text = recall_prompt(name, row, context);
    out.targets = labels(row, task.answer);
    out.target = out.answer = out.targets.front();
    return out;
  };
  return form;
}

// Version 1 strips text and value, version 0 took them as they are (lm-evaluation-harness PR 3795). fda and swde stop
// at a line end or 48 tokens; squad_completion does not: upstream copies the defaults of task files, an empty line and
// 256, over them (0.4.13; version 0 began with those of its siblings).
DocumentForm lm_eval_recall(const std::string& name) {
  const bool old = name.ends_with("_v0");
  const std::string base = old ? name.substr(0, name.size() - 3) : name;
  DocumentForm form;
  form.name = name;
  form.version = old ? "0" : "1";
  form.protocol = "lm-eval/" + base + "/" + form.version;
  form.family = "recall";
  form.data.sets = {base, base == "squad_completion" ? "based_squad" : "based_" + base};
  form.validation_split = "validation";
  form.output = Output::text;
  form.metrics = {"contains"};
  form.primary = "contains";
  const bool defaults = name == "squad_completion";
  form.stops = {defaults ? "\n\n" : "\n"};
  form.max_new_tokens = defaults ? 256 : kNewTokens;
  form.document = [old](const Fields& row) {
    Document out;
    out.text = old ? row.text("text") : strip(row.text("text"));
    out.targets = {old ? row.text("value") : strip(row.text("value"))};
    out.target = out.answer = out.targets.front();
    return out;
  };
  return form;
}

std::unique_ptr<Task> make_based(const std::string& name, const TaskOptions& options, const TextContext& text) {
  check_extras(options, recall_options(), name);
  return make_generate_task(based_form(name, options, text), options, text);
}

std::unique_ptr<Task> make_lm_eval_recall(const std::string& name, const TaskOptions& options,
                                          const TextContext& text) {
  check_extras(options, recall_options(), name);
  return make_generate_task(lm_eval_recall(name), options, text);
}

const std::vector<std::string>& six() {
  static const std::vector<std::string> kNames = {"based_drop",     "based_nq_2048", "based_swde",
                                                  "based_triviaqa", "based_fda",     "based_squad"};
  return kNames;
}

std::vector<Aggregate> fold_recall(const std::map<std::string, std::vector<Aggregate>>& members) {
  Aggregate out;
  out.metric = "contains";
  double sum = 0, variance = 0;
  size_t n = 0;
  for (const std::string& name : six()) {
    const auto found = members.find(name);
    if (found == members.end()) continue;
    for (const Aggregate& a : found->second) {
      if (!a.slice.empty() || a.metric != "contains" || !a.value) continue;
      ++n;
      out.n += a.n;
      sum += *a.value;
      variance += a.stderr_value ? *a.stderr_value * *a.stderr_value : 0;
    }
  }
  if (n < six().size()) return {out};
  out.value = sum / static_cast<double>(n);
  if (variance > 0) {
    out.stderr_value = std::sqrt(variance) / static_cast<double>(n);
    out.ci_low = std::max(0.0, *out.value - metrics::kZ95 * *out.stderr_value);
    out.ci_high = std::min(1.0, *out.value + metrics::kZ95 * *out.stderr_value);
    out.ci_method = "normal, standard errors of the tasks";
  }
  return {out};
}

}  // namespace

std::string recall_prompt(const std::string& task, const Fields& row, const std::string& context) {
  if (task == "based_squad") return strip(context);
  if (task == "based_fda") return fda_prompt(row, context);
  if (task == "based_swde") return swde_prompt(row, context);
  if (task == "based_drop") return question_after(row, context, true, true);
  if (task.starts_with("based_nq")) return question_after(row, context, false, false);
  HAY_CHECK(task == "based_triviaqa");
  return question_after(row, without(without(without(context, "[PAR]"), "[DOC]"), "[TLE]"), true, true);
}

bool is_asked(const std::string& task, const Fields& row) {
  for (const char* key : based(task).search)
    if (count_code_points(first_label(row, key)) <= 1) return false;
  return true;
}

CutContext cut_context(const std::string& task, const Fields& row, const engine::Tokenizer& tokenizer,
                       int64_t context_length) {
  const RecallTask& form = based(task);
  const std::string context = strip(row.text(form.field));
  const int64_t budget = context_length - kAnswerLength, half = budget / 2;
  const Ids ids = tokenizer.encode(context);
  std::optional<size_t> position;
  for (const char* key : form.search)
    if (const auto found = metrics::find_ignoring_case(context, first_label(row, key)))
      position = std::min(position.value_or(*found), *found);
  if (!position && row.has("alt_answers"))
    for (const std::string& other : row.texts("alt_answers"))
      if (!position) position = metrics::find_ignoring_case(context, other);
  if (form.search.empty()) position = 0;
  int64_t before = 0;
  if (position) {
    before = static_cast<int64_t>(tokenizer.encode(context.substr(0, *position)).size());
  } else {  // upstream's index −1: all but the last character
    std::u32string points = to_code_points(context);
    if (!points.empty()) points.pop_back();
    before = static_cast<int64_t>(tokenizer.encode(to_utf8(points)).size());
    if (row.has("tok_pos") && before > budget) before = row.integer("tok_pos");
  }
  const auto n = static_cast<int64_t>(ids.size());
  const int64_t start = std::min(n, std::max<int64_t>(0, before - half));
  const int64_t end = std::clamp<int64_t>(before + budget - (before - start), start, n);
  const Ids kept(ids.begin() + start, ids.begin() + end);
  return {tokenizer.decode(kept, true), end - start};
}

std::vector<TaskEntry> recall_tasks() {
  std::vector<TaskEntry> out;
  TaskEntry group{"recall", "recall", "group", "the six recall-intensive tasks of the Orthros paper", six()};
  group.fold_group = fold_recall;
  group.version = "1";
  group.protocol = "hayfork/recall/1";
  group.primary_metric = "contains";
  group.metrics = {{"contains"}};
  out.push_back(std::move(group));
  for (const RecallTask& task : based_table())
    out.push_back(
        {task.name, "recall", "generate", "recall from a context, cloze form", {}, recall_options(), make_based});
  for (const char* name : {"fda", "fda_v0", "swde", "swde_v0", "squad_completion", "squad_completion_v0"})
    out.push_back({name,
                   "recall",
                   "generate",
                   "recall as lm-evaluation-harness asks it",
                   {},
                   recall_options(),
                   make_lm_eval_recall});
  return out;
}

}  // namespace hayfork::tasks
