#include "runs/gate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/units.h"
#include "base/utf8.h"

namespace hayfork::runs {
namespace {

class Judge {
 public:
  Judge(Store& store, const RunView& base, const RunView& cand, const Policy& policy, const GateOptions& options)
      : store_(store), base_(base), cand_(cand), policy_(policy), options_(options) {}

  GateResult run() {
    for (const PolicyRule& rule : policy_.rules) {
      for (const std::string& task : tasks_of(rule)) add(rule, task);
    }
    adjust_and_decide();
    return std::move(out_);
  }

 private:
  std::set<std::string> held() const {
    std::set<std::string> names;
    for (const RunView* run : {&base_, &cand_}) {
      for (const RunTaskView& view : run->tasks) names.insert(view.task.name);
    }
    for (const auto& [group, members] : options_.groups) {  // also groups that only stand for their members
      if (std::any_of(members.begin(), members.end(), [&](const std::string& m) { return names.contains(m); }))
        names.insert(group);
    }
    return names;
  }

  // Tasks of the two runs that a rule means. A rule whose task neither has stays as it is: without pairs.
  std::vector<std::string> tasks_of(const PolicyRule& rule) {
    std::vector<std::string> out;
    for (const std::string& name : held()) {
      if (matches(rule.task, name)) out.push_back(name);
    }
    if (!out.empty()) return out;
    std::vector<std::string> known = options_.known_tasks;
    for (const TaskListRow& row : store_.list_tasks()) known.push_back(row.name);
    for (const auto& [group, members] : options_.groups) known.push_back(group);
    if (std::none_of(known.begin(), known.end(), [&](const std::string& name) { return matches(rule.task, name); })) {
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  fmt::format("the policy names a task that is unknown: \"{}\"", printable(rule.task.substr(0, 80))),
                  {.why = "neither this program nor the database has it", .next = "hayfork list tasks"});
    }
    return {rule.task};
  }

  void add(const PolicyRule& rule, const std::string& task) {
    JudgedRule judged;
    judged.rule = rule;
    judged.row.task = task;
    judged.row.slice = rule.slice;
    if (auto pairs = all_pairs(rule, task)) {
      std::vector<Pair> chosen;
      for (const Pair& pair : pairs->pairs) {
        if (rule.slice.empty() || slice_of(*pair.base, rule.slice_keys) == rule.slice) chosen.push_back(pair);
      }
      judged.row.metric = pairs->metric;
      judged.row.higher_is_better = pairs->higher_is_better;
      if (!chosen.empty()) fill(judged, *pairs, chosen);
      const auto found = options_.reruns.find(task);
      if (rule.confirm > 0 && found != options_.reruns.end())
        judged.n_confirmed = static_cast<int64_t>(found->second.size());
    }
    out_.rules.push_back(std::move(judged));
  }

  // The pairs of base and candidate, and those of the reruns that confirm them.
  std::optional<TaskPairs> all_pairs(const PolicyRule& rule, const std::string& task) {
    auto pairs = pairs_between(base_, cand_, rule, task);
    const auto reruns = options_.reruns.find(task);
    if (!pairs || rule.confirm == 0 || reruns == options_.reruns.end()) return pairs;
    size_t round = 0;
    for (const auto& [base, cand] : reruns->second) {
      auto more = pairs_between(store_.show_run(base), store_.show_run(cand), rule, task);
      ++round;
      if (!more) continue;
      // Another seed draws other needles: its clusters are others, whatever they are called.
      for (auto& rows : more->rows) {
        for (ScoreRow& row : rows) {
          if (row.cluster) row.cluster = fmt::format("rerun {}\n{}", round, *row.cluster);
        }
      }
      pairs->pairs.insert(pairs->pairs.end(), more->pairs.begin(), more->pairs.end());
      for (auto& rows : more->rows) pairs->rows.push_back(std::move(rows));
    }
    return pairs;
  }

  std::optional<TaskPairs> pairs_between(const RunView& base, const RunView& cand, const PolicyRule& rule,
                                         const std::string& task) {
    const PairOptions options{rule.metric, options_.allow_partial};
    const auto both = [&](const std::string& name) {
      return find_run_task(base, name) != nullptr && find_run_task(cand, name) != nullptr;
    };
    const auto group = options_.groups.find(task);
    const RunTaskView* own = find_run_task(base, task);
    if (group == options_.groups.end() || (own != nullptr && own->task.kind != "group")) {
      if (!both(task)) return std::nullopt;
      return pair_task(store_, base, cand, task, options);
    }
    std::vector<TaskPairs> parts;
    for (const std::string& member : group->second) {
      if (both(member)) parts.push_back(pair_task(store_, base, cand, member, options));
    }
    if (parts.empty()) return std::nullopt;
    return pool(task, std::move(parts));
  }

  void fill(JudgedRule& judged, const TaskPairs& all, std::span<const Pair> pairs) {
    const PairValues values = values_of(all, pairs);
    metrics::PairedOptions options;
    options.test = judged.rule.test;
    options.alpha = judged.rule.alpha;
    options.bootstrap.seed = options.permutation.seed = options_.seed;
    judged.row.base_mean = values.base_mean;
    judged.row.cand_mean = values.cand_mean;
    judged.row.result = metrics::compare_paired(values.gains, values.clusters, values.binary, options);
    if (all.n_failed > 0) judged.row.note = fmt::format("{} failed", all.n_failed);
    if (all.n_only_base + all.n_only_cand > 0) {
      judged.row.note +=
          fmt::format("{}{} not in both", judged.row.note.empty() ? "" : ", ", all.n_only_base + all.n_only_cand);
    }
    std::optional<double> limit = judged.rule.max_drop;
    if (judged.rule.max_rel) {
      const double relative = *judged.rule.max_rel * std::abs(values.base_mean);
      limit = limit ? std::min(*limit, relative) : relative;
    }
    judged.limit = limit.value_or(0);
  }

  static bool enough(const JudgedRule& judged) {
    return judged.row.result.n >= std::max<int64_t>(judged.rule.min_pairs, 1);
  }

  // One family: all rules that can stop or warn and have enough pairs.
  void adjust_and_decide() {
    std::vector<double> p;
    std::vector<JudgedRule*> family;
    bool matched = false;
    for (JudgedRule& judged : out_.rules) {
      matched = matched || judged.row.result.n > 0;
      if (!enough(judged)) continue;
      if (judged.rule.tier == Tier::info) {
        judged.row.p_adj = judged.row.result.p;
        continue;
      }
      p.push_back(judged.row.result.p);
      family.push_back(&judged);
    }
    const std::vector<double> adjusted = metrics::adjust(p, policy_.defaults.adjust);
    for (size_t i = 0; i < family.size(); ++i) family[i]->row.p_adj = adjusted[i];
    bool failed = false, unsure = false;
    for (JudgedRule& judged : out_.rules) {
      decide(judged);
      if (judged.rule.tier != Tier::block) continue;
      failed = failed || judged.verdict == GateVerdict::fail;
      unsure = unsure || judged.verdict == GateVerdict::inconclusive;
    }
    unsure = unsure && policy_.defaults.on_inconclusive == OnInconclusive::fail;
    out_.verdict = failed ? GateVerdict::fail : unsure ? GateVerdict::inconclusive : GateVerdict::pass;
    out_.exit_code = !matched ? 5 : failed ? 1 : unsure ? 3 : 0;
    if (!matched) out_.verdict = GateVerdict::inconclusive;
  }

  static void decide(JudgedRule& judged) {
    const metrics::PairedResult& r = judged.row.result;
    judged.row.verdict = r.n == 0 ? "too few" : metrics::verdict(r, judged.row.p_adj.value_or(1), judged.rule.alpha);
    if (!enough(judged)) {
      judged.verdict = GateVerdict::inconclusive;
      judged.why = r.n == 0 ? "no pairs: one of the runs does not have the task or the slice"
                            : fmt::format("{} pairs < {}", r.n, judged.rule.min_pairs);
      return;
    }
    const double limit = judged.limit;
    if (judged.rule.rule == GateRule::significant) {
      const bool worse = r.gain < -limit && *judged.row.p_adj < judged.rule.alpha;
      judged.verdict = worse ? GateVerdict::fail : GateVerdict::pass;
      if (!worse && r.mde && *r.mde > limit)
        judged.why = fmt::format("a drop of less than {:.3g} may be there unseen (mde {:.3g})", *r.mde, *r.mde);
    } else {
      // Without an interval every pair moved alike: the gain itself is the bound.
      const metrics::Interval ci = r.interval.value_or(metrics::Interval{r.gain, r.gain});
      judged.verdict = ci.low > -limit || (limit == 0 && r.n_worse + r.n_better == 0) ? GateVerdict::pass
                       : ci.high < -limit                                             ? GateVerdict::fail
                                                                                      : GateVerdict::inconclusive;
      if (judged.verdict == GateVerdict::inconclusive) judged.why = "the interval spans the limit";
    }
  }

  Store& store_;
  const RunView& base_;
  const RunView& cand_;
  const Policy& policy_;
  const GateOptions& options_;
  GateResult out_;
};

}  // namespace

std::string_view name(GateVerdict verdict) {
  static constexpr std::string_view kNames[] = {"pass", "fail", "inconclusive"};
  return kNames[static_cast<int>(verdict)];
}

std::string_view name(Tier tier) {
  static constexpr std::string_view kNames[] = {"block", "warn", "info"};
  return kNames[static_cast<int>(tier)];
}

bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      retry = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // the last star takes one more
      n = ++retry;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

GateResult judge(Store& store, const RunView& base, const RunView& cand, const Policy& policy,
                 const GateOptions& options) {
  return Judge(store, base, cand, policy, options).run();
}

}  // namespace hayfork::runs
