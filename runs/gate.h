// The gate: rules of a policy applied to one candidate and its baseline (docs/gate.md). Reads the store; what it finds
// is written by its caller (Store::add_gate), which also runs what `confirm` asks for.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runs/compare.h"

namespace hayfork::runs {

enum class Tier { block, warn, info };
enum class GateRule { significant, noninferior };
enum class OnInconclusive { fail, pass };

struct PolicyDefaults {
  Tier tier = Tier::block;
  double alpha = 0.05;
  metrics::Adjust adjust = metrics::Adjust::holm;
  int64_t min_pairs = metrics::kFewPairs;
  GateRule rule = GateRule::significant;
  OnInconclusive on_inconclusive = OnInconclusive::fail;
};

struct PolicyRule {
  std::string task;  // a name, or a pattern with *
  OptText metric;
  std::string slice;  // canonical: "ctx_len=4096"; "" all
  std::vector<SliceKey> slice_keys;
  Tier tier = Tier::block;
  double alpha = 0.05;
  GateRule rule = GateRule::significant;
  metrics::PairedTest test = metrics::PairedTest::automatic;
  int64_t min_pairs = metrics::kFewPairs;
  OptReal max_drop;     // absolute
  OptReal max_rel;      // of the baseline's mean; the stricter of the two counts. Neither: 0
  int64_t confirm = 0;  // reruns with new seeds before a failure counts
};

struct Policy {
  PolicyDefaults defaults;
  std::vector<PolicyRule> rules;
  std::string text;  // as read; stored with the verdict
};

enum class GateVerdict { pass, fail, inconclusive };
std::string_view name(GateVerdict verdict);  // "pass", "fail", "inconclusive"
std::string_view name(Tier tier);

struct JudgedRule {
  PolicyRule rule;
  ComparedRow row;   // row.task is the task, not the pattern; result.n 0 when there is no pair
  double limit = 0;  // the drop that is allowed, absolute
  GateVerdict verdict = GateVerdict::pass;
  std::string why;          // "gain −0.011 (limit 0.005), p(adj) 0.002"
  int64_t n_confirmed = 0;  // reruns whose pairs are in the result
};

struct GateResult {
  std::vector<JudgedRule> rules;
  GateVerdict verdict = GateVerdict::pass;
  int exit_code = 0;               // 0, 1, 3; 5: nothing matched
  std::vector<std::string> notes;  // of the comparison
};

struct GateOptions {
  std::map<std::string, std::vector<std::string>> groups;  // as CompareOptions::groups
  std::vector<std::string> known_tasks;                    // what this program knows; the database's are added
  bool allow_partial = false;
  uint64_t seed = 0;
  // Pairs of reruns that confirm a failure, whatever their seeds: the runs of base and candidate for each.
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> reruns;  // by task
};

// Throws: usage (a rule names an unknown task, runs are not comparable).
GateResult judge(Store& store, const RunView& base, const RunView& cand, const Policy& policy,
                 const GateOptions& options);

// "ruler_*" against "ruler_vt".
bool matches(std::string_view pattern, std::string_view name);

}  // namespace hayfork::runs
