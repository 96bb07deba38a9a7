// Several runs against a baseline: what changed, and whether it is more than luck (docs/compare.md). Pure
// statistics over pairs; the store is only read.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "metrics/paired.h"
#include "runs/pairing.h"

namespace hayfork::runs {

struct CompareOptions {
  std::vector<std::string> tasks;  // tasks and groups; empty: all that the baseline has
  // Members of groups, by name. A group stands for its members unless `members`; without a metric in common it is left
  // out.
  std::map<std::string, std::vector<std::string>> groups;
  bool members = false;
  OptText metric;
  std::vector<SliceKey> by;
  metrics::PairedOptions paired;
  metrics::Adjust adjust = metrics::Adjust::holm;
  bool allow_partial = false;
  int64_t flips = 0;  // at most so many losses and as many wins a task and candidate
};

struct ComparedRow {
  size_t cand = 0;  // which of the candidates
  std::string task, slice, metric;
  bool higher_is_better = true;
  double base_mean = 0, cand_mean = 0;  // over the pairs
  metrics::PairedResult result;
  OptReal p_adj;        // empty: too few pairs, no test
  std::string verdict;  // metrics::verdict
  std::string note;     // "3 failed, prompts differ: tokenizer"
  bool best = false;    // of several candidates and the baseline: significantly better than every other

  double delta() const { return cand_mean - base_mean; }
  // Of the difference candidate − base, as the metric runs.
  std::optional<metrics::Interval> delta_interval() const;
};

struct Flip {
  size_t cand = 0;
  std::string task;
  double base_score = 0, cand_score = 0, gain = 0;
  int64_t base_sample = 0, cand_sample = 0;
  OptInt ctx_len;
  OptReal depth_pct;
  OptText subtask;
};

struct Comparison {
  std::vector<ComparedRow> rows;                      // by task as the baseline has them, slice, candidate
  std::vector<Flip> flips;                            // losses first
  std::vector<std::vector<IdentityColumn>> identity;  // one list a candidate
  std::vector<std::string> notes;                     // tasks of one run alone, and such
};

// Throws: usage (not comparable, unknown task or metric); an empty list of rows means that no pair was found.
Comparison compare_runs(Store& store, const RunView& base, std::span<const RunView> cands,
                        const CompareOptions& options);

// Of several answers to the same documents, the one that is significantly better than every other: the highest mean,
// whose p against each, adjusted by Holm, is below alpha on at least kFewPairs pairs. Empty when there is none.
std::optional<size_t> significant_best(std::span<const std::vector<ScoreRow>> runs, bool higher_is_better,
                                       const metrics::PairedOptions& options = {});

// Numbers as slices sort: "ctx_len=4096" before "ctx_len=16384".
bool slice_less(const std::string& a, const std::string& b);

}  // namespace hayfork::runs
