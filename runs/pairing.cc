#include "runs/pairing.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/numbers.h"
#include "base/units.h"
#include "base/utf8.h"

namespace hayfork::runs {
namespace {

using nlohmann::json;

constexpr const char* kSliceNames[] = {"length", "depth", "subtask"};
constexpr const char* kSliceColumns[] = {"ctx_len", "depth_pct", "subtask"};
// Settings that only choose which documents there are, or follow from the model: pairing takes care of them.
const std::set<std::string, std::less<>> kChoosing = {"lengths", "depths",        "samples",  "seed",    "limit",
                                                      "add_bos", "template_text", "template", "haystack"};
constexpr size_t kMaxValue = 60;
constexpr const char* kUnknown = "unknown";

std::string known(const OptText& text) {
  return text && !text->empty() ? *text : kUnknown;
}
std::string known(const OptInt& n) {
  return n ? std::to_string(*n) : kUnknown;
}
std::string value_of(const ScoreRow& row, SliceKey key) {
  switch (key) {
    case SliceKey::length:
      return row.ctx_len ? std::to_string(*row.ctx_len) : "none";
    case SliceKey::depth:
      return row.depth_pct ? format_number(*row.depth_pct) : "none";
    case SliceKey::subtask:
      return row.subtask.value_or("none");
  }
  return "none";
}

std::string shortened(std::string text) {
  text = printable(text);
  return text.size() <= kMaxValue ? text : text.substr(0, kMaxValue) + "…";
}

class Comparability {
 public:
  Comparability(const RunView& base, const RunView& cand, const std::string& task)
      : base_(base), cand_(cand), task_(task) {}

  template <typename T>
  void want_same(const std::string& name, const T& base, const T& cand) {
    if (base == cand) return;
    if constexpr (std::is_same_v<T, std::string>) {
      differing_.push_back(fmt::format("{} ({} → {})", name, shortened(base), shortened(cand)));
    } else {
      differing_.push_back(fmt::format("{} ({} → {})", name, base, cand));
    }
  }
  void add(std::string difference) { differing_.push_back(std::move(difference)); }
  void want_same_settings(const TaskRow& base, const TaskRow& cand) {
    if (base.config_sha256 == cand.config_sha256) return;
    const json a = parse_json(base.config_json, "task settings of " + base_.run.run_id, ErrorSubject::database);
    const json b = parse_json(cand.config_json, "task settings of " + cand_.run.run_id, ErrorSubject::database);
    if (!a.is_object() || !b.is_object()) return;
    std::set<std::string> keys;
    for (const auto& [key, value] : a.items()) keys.insert(key);
    for (const auto& [key, value] : b.items()) keys.insert(key);
    for (const std::string& key : keys) {
      if (kChoosing.contains(key)) continue;
      const json left = a.value(key, json()), right = b.value(key, json());
      if (left != right) want_same("config." + key, left.dump(), right.dump());
    }
  }
  void refuse_if_any() const {
    if (differing_.empty()) return;
    std::string columns;
    for (const std::string& one : differing_) columns += (columns.empty() ? "" : ", ") + one;
    throw Error(
        ErrorCode::usage, ErrorSubject::database,
        fmt::format("runs {} and {} cannot be compared on {}", base_.run.run_id, cand_.run.run_id, printable(task_)),
        {.where = "task " + printable(task_),
         .why = "what differs: " + columns,
         .next = "compare runs of one protocol and one set of prompts, or other tasks with --tasks"});
  }

 private:
  const RunView& base_;
  const RunView& cand_;
  const std::string& task_;
  std::vector<std::string> differing_;
};

bool imported(const RunView& run) {
  return run.run.origin != "hayfork";
}

bool direction_of(const RunTaskView& task, const std::string& metric) {
  for (const MetricDefRow& def : task.metric_defs) {
    if (def.metric == metric) return def.higher_is_better;
  }
  return task.task.higher_is_better;
}

bool has_metric(const RunTaskView& task, const std::string& metric) {
  if (task.task.primary_metric == metric) return true;
  return std::any_of(task.metric_defs.begin(), task.metric_defs.end(),
                     [&](const MetricDefRow& def) { return def.metric == metric; });
}

std::vector<ScoreRow> rows_of(Store& store, const RunTaskView& task, const std::string& metric) {
  return store.scores(task.row.id, task.task.primary_metric == metric ? "" : metric);
}

auto key(const ScoreRow& row) {
  return std::tie(row.doc_sha256, row.occurrence, row.repeat);
}

bool usable(const ScoreRow& row) {
  return row.ok && row.value && std::isfinite(*row.value);
}

// Merges two sorted lists.
void join(TaskPairs& out) {
  const auto& base = out.rows[0];
  const auto& cand = out.rows[1];
  for (size_t i = 0, j = 0; i < base.size() || j < cand.size();) {
    if (j == cand.size() || (i < base.size() && key(base[i]) < key(cand[j]))) {
      ++out.n_only_base;
      ++i;
    } else if (i == base.size() || key(cand[j]) < key(base[i])) {
      ++out.n_only_cand;
      ++j;
    } else {
      out.n_other_prompt += base[i].prompt_sha256 != cand[j].prompt_sha256;
      if (usable(base[i]) && usable(cand[j])) {
        const double difference = *cand[j].value - *base[i].value;
        out.pairs.push_back({&base[i], &cand[j], out.higher_is_better ? difference : -difference});
      } else {
        ++out.n_failed;
      }
      ++i;
      ++j;
    }
  }
}

// Prompts may differ only because the tokenizers do, and only where the text is cut or built to a length in tokens.
bool prompts_may_differ(const TaskPairs& pairs, const RunView& base, const RunView& cand) {
  const OptText &a = base.model.tokenizer_sha256, &b = cand.model.tokenizer_sha256;
  if (!a || !b || *a == *b) return false;
  return std::all_of(pairs.pairs.begin(), pairs.pairs.end(), [](const Pair& pair) {
    return pair.base->prompt_sha256 == pair.cand->prompt_sha256 || pair.base->ctx_len || pair.base->truncated ||
           pair.cand->truncated;
  });
}

void check_documents(const TaskPairs& pairs, const RunView& base, const RunView& cand, const PairOptions& options) {
  if (options.allow_partial || pairs.n_only_base + pairs.n_only_cand == 0) return;
  if (pairs.rows[0].empty() || pairs.rows[1].empty()) return;  // the caller tells of a run without samples
  throw Error(ErrorCode::usage, ErrorSubject::database,
              fmt::format("runs {} and {} hold different documents of {}", base.run.run_id, cand.run.run_id,
                          printable(pairs.task)),
              {.where = "task " + printable(pairs.task),
               .why = fmt::format("{} in both, {} only in {}, {} only in {}",
                                  pairs.pairs.size() + static_cast<size_t>(pairs.n_failed), pairs.n_only_base,
                                  base.run.run_id, pairs.n_only_cand, cand.run.run_id),
               .next = "--allow-partial compares those that are in both"});
}

}  // namespace

SliceKey parse_slice_key(std::string_view name) {
  for (size_t i = 0; i < std::size(kSliceNames); ++i) {
    if (name == kSliceNames[i] || name == kSliceColumns[i]) return static_cast<SliceKey>(i);
  }
  throw Error(ErrorCode::usage, ErrorSubject::general,
              fmt::format("there is no slice \"{}\"", printable(name.substr(0, 40))),
              {.next = "known: length, depth, subtask"});
}

std::string slice_of(const ScoreRow& row, std::span<const SliceKey> keys) {
  std::vector<std::string> parts;
  for (const SliceKey key : keys)
    parts.push_back(std::string(kSliceColumns[static_cast<int>(key)]) + "=" + value_of(row, key));
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ";") + part;
  return out;
}

std::string parse_slice(std::string_view text, std::vector<SliceKey>& keys) {
  ScoreRow row;  // filled in with what is asked for, so that the name comes out as slice_of gives it
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find(';', from), text.size());
    const std::string_view part = text.substr(from, end - from);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos || equals + 1 == part.size()) {
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  fmt::format("cannot read the slice \"{}\"", printable(text.substr(0, 80))),
                  {.next = "write length=4k, depth=50, subtask=NAME, joined by ;"});
    }
    const SliceKey key = parse_slice_key(part.substr(0, equals));
    const std::string_view value = part.substr(equals + 1);
    if (key == SliceKey::length) row.ctx_len = parse_count(value, "slice");
    if (key == SliceKey::depth) row.depth_pct = parse_numbers(value, "slice").at(0);
    if (key == SliceKey::subtask) row.subtask = std::string(value);
    keys.push_back(key);
    from = end + 1;
  }
  return slice_of(row, keys);
}

std::vector<IdentityColumn> identity_columns(const RunView& base, const RunView& cand) {
  std::vector<IdentityColumn> out;
  const auto add = [&](const char* name, const std::string& a, const std::string& b) {
    out.push_back({name, a, b, a == b && a != kUnknown});
  };
  const auto data = [](const RunView& run) {
    std::string all;
    for (const RunTaskView& task : run.tasks)
      all += task.task.name + " " + task.task.config_sha256.substr(0, 12) + "\n";
    return all;
  };
  add("model", base.model.name, cand.model.name);
  add("arch", known(base.model.arch_label ? base.model.arch_label : base.model.arch),
      known(cand.model.arch_label ? cand.model.arch_label : cand.model.arch));
  add("weights", known(base.model.weights_sha256), known(cand.model.weights_sha256));
  add("config", known(base.model.config_sha256), known(cand.model.config_sha256));
  add("tokenizer", known(base.model.tokenizer_sha256), known(cand.model.tokenizer_sha256));
  add("template", known(base.model.template_sha256), known(cand.model.template_sha256));
  add("train_tokens", known(base.model.train_tokens), known(cand.model.train_tokens));
  add("sparse", base.sparse ? base.sparse->label : "none", cand.sparse ? cand.sparse->label : "none");
  add("engine", base.run.engine, cand.run.engine);
  add("dtype", known(base.run.dtype), known(cand.run.dtype));
  add("kv_dtype", known(base.run.kv_dtype), known(cand.run.kv_dtype));
  add("numerics", known(base.run.numerics_id), known(cand.run.numerics_id));
  add("seed", known(base.run.seed), known(cand.run.seed));
  add("tasks", data(base), data(cand));
  add("hayfork", base.run.hayfork_version, cand.run.hayfork_version);
  return out;
}

const RunTaskView* find_run_task(const RunView& run, const std::string& task, const RunTaskView* like) {
  const RunTaskView* found = nullptr;
  for (const RunTaskView& view : run.tasks) {
    if (view.task.name != task) continue;
    if (like != nullptr && view.row.num_fewshot == like->row.num_fewshot && view.row.chat == like->row.chat)
      return &view;
    if (found == nullptr) found = &view;
  }
  return found;
}

TaskPairs pair_task(Store& store, const RunView& base, const RunView& cand, const std::string& task,
                    const PairOptions& options) {
  const RunTaskView* a = find_run_task(base, task);
  const RunTaskView* b = find_run_task(cand, task, a);
  HAY_CHECK(a != nullptr && b != nullptr);
  Comparability same(base, cand, task);
  same.want_same("protocol", a->task.protocol, b->task.protocol);
  const bool both_ours = !imported(base) && !imported(cand);
  if (both_ours) same.want_same("version", a->task.version, b->task.version);
  same.want_same("num_fewshot", a->row.num_fewshot, b->row.num_fewshot);
  same.want_same("chat", a->row.chat, b->row.chat);
  same.want_same("system", a->row.system_sha256.value_or("none"), b->row.system_sha256.value_or("none"));
  if (both_ours) same.want_same_settings(a->task, b->task);
  same.refuse_if_any();

  TaskPairs out;
  out.task = task;
  out.metric = options.metric.value_or(a->task.primary_metric);
  for (const RunTaskView* side : {a, b}) {
    if (has_metric(*side, out.metric)) continue;
    std::string names = side->task.primary_metric;
    for (const MetricDefRow& def : side->metric_defs) names += def.metric == names ? "" : ", " + def.metric;
    throw Error(ErrorCode::usage, ErrorSubject::database,
                fmt::format("task {} has no metric \"{}\"", printable(task), printable(out.metric.substr(0, 60))),
                {.where = (side == a ? base : cand).run.run_id, .why = "it has " + printable(names)});
  }
  out.higher_is_better = direction_of(*a, out.metric);
  same.want_same("direction of " + out.metric, out.higher_is_better, direction_of(*b, out.metric));
  same.refuse_if_any();
  out.rows.push_back(rows_of(store, *a, out.metric));
  out.rows.push_back(rows_of(store, *b, out.metric));
  join(out);
  if (out.n_other_prompt > 0 && !prompts_may_differ(out, base, cand)) {
    same.add(fmt::format("prompts ({} of {} documents)", out.n_other_prompt,
                         out.pairs.size() + static_cast<size_t>(out.n_failed)));
    same.refuse_if_any();
  }
  check_documents(out, base, cand, options);
  return out;
}

TaskPairs pair_rows(std::vector<ScoreRow> base, std::vector<ScoreRow> cand, bool higher_is_better) {
  TaskPairs out;
  out.higher_is_better = higher_is_better;
  out.rows.push_back(std::move(base));
  out.rows.push_back(std::move(cand));
  join(out);
  return out;
}

TaskPairs pool(const std::string& group, std::vector<TaskPairs> members) {
  HAY_CHECK(!members.empty());
  TaskPairs out;
  out.task = group;
  out.metric = members.front().metric;
  out.higher_is_better = members.front().higher_is_better;
  for (TaskPairs& member : members) {
    for (Pair pair : member.pairs) {
      pair.member = out.members.size();
      out.pairs.push_back(pair);
    }
    out.members.push_back(member.task);
    out.n_only_base += member.n_only_base;
    out.n_only_cand += member.n_only_cand;
    out.n_failed += member.n_failed;
    out.n_other_prompt += member.n_other_prompt;
    for (auto& rows : member.rows) out.rows.push_back(std::move(rows));  // a moved vector keeps its elements' places
  }
  return out;
}

PairValues values_of(const TaskPairs& all, std::span<const Pair> pairs) {
  PairValues out;
  std::vector<double> sizes(std::max<size_t>(all.members.size(), 1), 0.0);
  for (const Pair& pair : pairs) sizes[pair.member] += 1;
  const auto present = static_cast<double>(std::count_if(sizes.begin(), sizes.end(), [](double n) { return n > 0; }));
  const auto n = static_cast<double>(pairs.size());
  bool clustered = false;
  for (const Pair& pair : pairs) {
    const double weight = n / (present * sizes[pair.member]);
    const double base = *pair.base->value, cand = *pair.cand->value;
    out.gains.push_back(pair.gain * weight);
    out.base_mean += base * weight / n;
    out.cand_mean += cand * weight / n;
    out.binary = out.binary && weight == 1 && (base == 0 || base == 1) && (cand == 0 || cand == 1);
    clustered = clustered || pair.base->cluster.has_value();
  }
  if (!clustered) return out;
  for (size_t i = 0; i < pairs.size(); ++i) {
    // Members of a group draw apart: their clusters have nothing to do with each other.
    const std::string member = all.members.empty() ? "" : all.members[pairs[i].member] + "\n";
    out.clusters.push_back(member + pairs[i].base->cluster.value_or("\n" + std::to_string(i)));
  }
  return out;
}

}  // namespace hayfork::runs
