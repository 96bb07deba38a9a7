// Two runs' answers to the same documents of one task, and whether they may be compared at all. Nothing
// here knows SQL: rows come from the Store.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runs/store.h"

namespace hayfork::runs {

// The keys that samples may be sliced by.
enum class SliceKey { length, depth, subtask };
SliceKey parse_slice_key(std::string_view name);  // length, depth, subtask. Throws: usage
// "ctx_len=4096;subtask=qa_1": keys sorted, as aggregates are named.
std::string slice_of(const ScoreRow& row, std::span<const SliceKey> keys);
// A slice as a rule of a policy gives it, in the same form, keys in any order. Throws: usage, naming the keys.
std::string parse_slice(std::string_view text, std::vector<SliceKey>& keys);

struct Pair {
  const ScoreRow* base = nullptr;
  const ScoreRow* cand = nullptr;
  double gain = 0;    // positive: better
  size_t member = 0;  // of a group: which of TaskPairs::members
};

// One task of two runs. Owns the rows that the pairs point at.
struct TaskPairs {
  std::string task, metric;
  bool higher_is_better = true;
  std::vector<std::vector<ScoreRow>> rows;   // base, candidate; of a group once a member
  std::vector<Pair> pairs;                   // answered in both, in the order of documents
  std::vector<std::string> members;          // names, when it is a group
  int64_t n_only_base = 0, n_only_cand = 0;  // documents of one run alone
  int64_t n_failed = 0;                      // pairs left out: failed or without a value in either run
  int64_t n_other_prompt = 0;                // pairs whose prompts differ, which was allowed: other tokenizers
};

// A column of what two runs are, for people: which of them differ.
struct IdentityColumn {
  std::string name, base, cand;  // "unknown" for what no one knows
  bool same = true;              // false also when neither is known
};
// model, arch, weights, config, tokenizer, template, sparse, engine, dtype, kv_dtype, numerics, seed, data, version.
std::vector<IdentityColumn> identity_columns(const RunView& base, const RunView& cand);

// The task of a run by name; among several of that name the one that agrees with `like` in few-shot and chat.
const RunTaskView* find_run_task(const RunView& run, const std::string& task, const RunTaskView* like = nullptr);

struct PairOptions {
  OptText metric;              // empty: the task's primary one
  bool allow_partial = false;  // documents of one run alone are left out instead of refused
};

// Throws: usage when the tasks are not comparable (protocol, version, few-shot, chat, system text, settings other than
// which documents were chosen, prompts under one tokenizer), naming the identity columns that differ; when documents
// are missing and that is not allowed; when the metric is unknown.
TaskPairs pair_task(Store& store, const RunView& base, const RunView& cand, const std::string& task,
                    const PairOptions& options);
// The same for rows at hand. Requires: both sorted as Store::scores gives them.
TaskPairs pair_rows(std::vector<ScoreRow> base, std::vector<ScoreRow> cand, bool higher_is_better);
// Members put together; each counts the same whatever its size. Requires: at least one, all of one metric.
TaskPairs pool(const std::string& group, std::vector<TaskPairs> members);

// What a statistic wants of some pairs: gains, and clusters when samples have them. Of a group every member counts the
// same: a gain is weighted with (mean size of a member) ÷ (size of its own).
struct PairValues {
  std::vector<double> gains;
  std::vector<std::string> clusters;
  bool binary = true;
  double base_mean = 0, cand_mean = 0;  // weighted
};
PairValues values_of(const TaskPairs& all, std::span<const Pair> pairs);  // Requires: pairs of `all`

}  // namespace hayfork::runs
