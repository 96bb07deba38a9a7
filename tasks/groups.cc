#include "tasks/groups.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "metrics/stats.h"
#include "tasks/forms/exam_subjects.h"

namespace hayfork::tasks {
namespace {

using Members = std::map<std::string, std::vector<Aggregate>>;

// The seven of the Orthros paper's tables 1 and 7, in the order of their columns.
const std::vector<std::string>& commonsense_members() {
  static const std::vector<std::string> kNames = {"arc_challenge", "arc_easy",   "hellaswag", "openbookqa",
                                                  "piqa",          "social_iqa", "winogrande"};
  return kNames;
}

const Aggregate* find_value(const std::vector<Aggregate>& aggregates, const std::string& metric) {
  for (const Aggregate& a : aggregates)
    if (a.slice.empty() && a.metric == metric && a.value) return &a;
  return nullptr;
}

std::vector<Aggregate> having(const Members& members, const std::string& metric,
                              const std::set<std::string>& names = {}) {
  std::vector<Aggregate> out;
  for (const auto& [name, aggregates] : members)
    if (names.empty() || names.contains(name))
      if (const Aggregate* a = find_value(aggregates, metric)) out.push_back(*a);
  return out;
}

std::set<std::string> metric_names(const Members& members) {
  std::set<std::string> out;
  for (const auto& [name, aggregates] : members)
    for (const Aggregate& a : aggregates)
      if (a.slice.empty()) out.insert(a.metric);
  return out;
}

void sort(std::vector<Aggregate>& out) {
  std::sort(out.begin(), out.end(), [](const Aggregate& a, const Aggregate& b) {
    return std::tie(a.slice, a.metric, a.filter) < std::tie(b.slice, b.metric, b.filter);
  });
}

// By documents: the members' samples in one pot.
std::vector<Aggregate> fold_by_documents(const Members& members) {
  std::vector<Aggregate> out;
  for (const std::string& metric : metric_names(members)) out.push_back(pooled("", metric, having(members, metric)));
  sort(out);
  return out;
}

std::vector<Aggregate> fold_mmlu(const Members& members) {
  std::vector<Aggregate> out = fold_by_documents(members);
  std::map<std::string, std::set<std::string>> categories;
  for (const MmluSubject& subject : mmlu_subjects()) {
    categories[subject.category].insert("mmlu_" + subject.name);
    categories[subject.category].insert("mmlu_" + subject.name + "_continuation");
  }
  for (const auto& [category, names] : categories)
    for (const std::string& metric : metric_names(members))
      out.push_back(pooled("category=" + category, metric, having(members, metric, names)));
  sort(out);
  return out;
}

// The plain mean over tasks; none unless all of them are there.
Aggregate plain_mean(const std::string& metric, const std::vector<Aggregate>& parts, size_t n_wanted) {
  Aggregate out;
  out.metric = metric;
  double sum = 0, variance = 0;
  bool has_error = true;
  for (const Aggregate& part : parts) {
    out.n += part.n;
    sum += *part.value;
    has_error = has_error && part.stderr_value;
    if (has_error) variance += *part.stderr_value * *part.stderr_value;
  }
  if (parts.size() != n_wanted) return out;
  const auto n = static_cast<double>(parts.size());
  out.value = sum / n;
  if (!has_error) return out;
  out.stderr_value = std::sqrt(variance) / n;
  out.ci_low = std::max(0.0, *out.value - metrics::kZ95 * *out.stderr_value);
  out.ci_high = std::min(1.0, *out.value + metrics::kZ95 * *out.stderr_value);
  out.ci_method = "normal, standard errors of the tasks";
  return out;
}

// avg: acc_norm of ARC-C, HellaSwag and OpenBookQA, acc of the others (the reading of table 1 that fits its
// magnitudes); avg_six: acc_norm of all but WinoGrande, without Social IQa (table 7's caption).
std::vector<Aggregate> fold_commonsense(const Members& members) {
  static const std::map<std::string, std::pair<const char*, const char*>> kColumns = {
      {"arc_challenge", {"acc_norm", "acc_norm"}},
      {"arc_easy", {"acc", "acc_norm"}},
      {"hellaswag", {"acc_norm", "acc_norm"}},
      {"openbookqa", {"acc_norm", "acc_norm"}},
      {"piqa", {"acc", "acc_norm"}},
      {"social_iqa", {"acc", nullptr}},
      {"winogrande", {"acc", "acc"}}};
  std::vector<Aggregate> seven, six, acc;
  for (const auto& [name, metrics] : kColumns) {
    const auto found = members.find(name);
    if (found == members.end()) continue;
    if (const Aggregate* a = find_value(found->second, metrics.first)) seven.push_back(*a);
    if (const Aggregate* a = metrics.second ? find_value(found->second, metrics.second) : nullptr) six.push_back(*a);
    if (const Aggregate* a = find_value(found->second, "acc")) acc.push_back(*a);
  }
  return {plain_mean("acc", acc, 7), plain_mean("avg", seven, 7), plain_mean("avg_six", six, 6)};
}

TaskEntry group(const std::string& name, const std::string& summary, std::vector<std::string> members, GroupFold fold,
                const std::string& version, const std::string& protocol, const std::string& primary,
                std::vector<MetricDef> metrics) {
  TaskEntry entry;
  entry.name = name;
  entry.family = "choice";
  entry.kind = "group";
  entry.summary = summary;
  entry.members = std::move(members);
  entry.fold_group = fold;
  entry.version = version;
  entry.protocol = protocol;
  entry.primary_metric = primary;
  entry.metrics = std::move(metrics);
  return entry;
}

}  // namespace

Aggregate pooled(const std::string& slice, const std::string& metric, const std::vector<Aggregate>& members) {
  Aggregate out;
  out.slice = slice;
  out.metric = metric;
  double sum = 0, squares = 0;
  bool has_error = true;
  for (const Aggregate& a : members) {
    const auto n = static_cast<double>(a.n);
    out.n += a.n;
    sum += *a.value * n;
    has_error = has_error && (a.stderr_value || a.n > 1);  // equal values have none of ours and 0 of upstream's
    const double error = a.stderr_value.value_or(0);
    squares += (n - 1) * error * error * n;
  }
  if (out.n == 0) return out;
  const auto n = static_cast<double>(out.n);
  out.value = sum / n;
  if (has_error && out.n > static_cast<int64_t>(members.size())) {
    const double value = std::sqrt(squares / (n - static_cast<double>(members.size())) / n);
    if (value > 0) out.stderr_value = value;
  }
  if (out.stderr_value) {
    out.ci_low = *out.value - metrics::kZ95 * *out.stderr_value;
    out.ci_high = *out.value + metrics::kZ95 * *out.stderr_value;
    if (metric.starts_with("acc")) {
      out.ci_low = std::max(0.0, *out.ci_low);
      out.ci_high = std::min(1.0, *out.ci_high);
    }
    out.ci_method = "normal, pooled standard error";
  }
  return out;
}

std::vector<TaskEntry> choice_groups() {
  std::vector<TaskEntry> out;
  out.push_back(group("commonsense", "the seven commonsense tasks of the Orthros paper", commonsense_members(),
                      fold_commonsense, "1", "hayfork/commonsense/1", "avg", {{"avg"}, {"avg_six"}, {"acc"}}));
  std::vector<std::string> all, continuation;
  std::map<std::string, std::vector<std::string>> categories;
  for (const MmluSubject& subject : mmlu_subjects()) {
    all.push_back("mmlu_" + subject.name);
    continuation.push_back("mmlu_" + subject.name + "_continuation");
    categories[subject.category].push_back(all.back());
  }
  const std::vector<MetricDef> acc = {{"acc"}}, both = {{"acc"}, {"acc_norm"}};
  out.push_back(group("mmlu", "57 subjects, weighted by documents", all, fold_mmlu, "2", "lm-eval/mmlu/2", "acc", acc));
  for (const auto& [category, members] : categories)
    out.push_back(group("mmlu_" + category, "MMLU's " + category + " subjects", members, fold_by_documents, "2",
                        "lm-eval/mmlu_" + category + "/2", "acc", acc));
  out.push_back(group("mmlu_continuation", "MMLU scored by the options' texts", continuation, fold_mmlu, "2",
                      "lm-eval/mmlu_continuation/2", "acc", both));
  std::vector<std::string> members;
  for (const ChineseSubject& subject : ceval_subjects()) members.push_back("ceval-valid_" + subject.name);
  out.push_back(group("ceval-valid", "C-Eval's 52 subjects, weighted by documents", members, fold_by_documents, "2.0",
                      "lm-eval/ceval-valid/2.0", "acc", both));
  members.clear();
  for (const ChineseSubject& subject : cmmlu_subjects()) members.push_back("cmmlu_" + subject.name);
  out.push_back(group("cmmlu", "CMMLU's 67 subjects, weighted by documents", members, fold_by_documents, "1.0",
                      "lm-eval/cmmlu/1.0", "acc", both));
  return out;
}

}  // namespace hayfork::tasks
