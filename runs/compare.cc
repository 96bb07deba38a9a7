#include "runs/compare.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/utf8.h"

namespace hayfork::runs {
namespace {

// Slices of some pairs in the order people read them.
struct SliceLess {
  bool operator()(const std::string& a, const std::string& b) const { return slice_less(a, b); }
};
using Slices = std::map<std::string, std::vector<Pair>, SliceLess>;

Slices slices_of(const TaskPairs& pairs, std::span<const SliceKey> by) {
  Slices out;
  if (pairs.pairs.empty()) return out;
  if (by.empty()) {
    out[""] = pairs.pairs;
    return out;
  }
  for (const Pair& pair : pairs.pairs) out[slice_of(*pair.base, by)].push_back(pair);
  return out;
}

std::string notes_of(const TaskPairs& pairs, const RunView& base, const RunView& cand) {
  std::string note;
  const auto add = [&note](const std::string& text) { note += (note.empty() ? "" : ", ") + text; };
  if (pairs.n_failed > 0) add(fmt::format("{} failed", pairs.n_failed));
  if (pairs.n_only_base > 0) add(fmt::format("{} only in base", pairs.n_only_base));
  if (pairs.n_only_cand > 0) add(fmt::format("{} only in candidate", pairs.n_only_cand));
  if (pairs.n_other_prompt > 0) add("prompts differ: tokenizer");
  if (!base.model.verified || !cand.model.verified) add("unverified model");
  return note;
}

class Comparer {
 public:
  Comparer(Store& store, const RunView& base, std::span<const RunView> cands, const CompareOptions& options)
      : store_(store), base_(base), cands_(cands), options_(options) {}

  Comparison compare() {
    for (const RunView& cand : cands_) out_.identity.push_back(identity_columns(base_, cand));
    for (const std::string& task : names()) add_task(task);
    judge();
    return std::move(out_);
  }

 private:
  const std::vector<std::string>* members_of(const std::string& name) const {
    const auto found = options_.groups.find(name);
    return found == options_.groups.end() || found->second.empty() ? nullptr : &found->second;
  }

  // What rows are for: the tasks asked for, or the baseline's groups and the tasks that no group stands for.
  std::vector<std::string> names() {
    if (!options_.tasks.empty()) {
      for (const std::string& task : options_.tasks) check_known(task);
      return options_.tasks;
    }
    std::vector<std::string> out;
    std::set<std::string> covered;
    for (const RunTaskView& view : base_.tasks) {
      const auto* members = view.task.kind == "group" ? members_of(view.task.name) : nullptr;
      if (members == nullptr) continue;
      out.push_back(view.task.name);
      if (!options_.members) covered.insert(members->begin(), members->end());
    }
    for (const RunTaskView& view : base_.tasks) {
      if (view.task.kind == "group" || covered.contains(view.task.name)) continue;
      if (std::find(out.begin(), out.end(), view.task.name) == out.end()) out.push_back(view.task.name);
    }
    return out;
  }

  void check_known(const std::string& task) const {
    const auto held = [&](const RunView& run) {
      if (find_run_task(run, task) != nullptr) return true;
      const auto* members = members_of(task);
      return members != nullptr && std::any_of(members->begin(), members->end(), [&](const std::string& member) {
               return find_run_task(run, member) != nullptr;
             });
    };
    if (held(base_) || std::any_of(cands_.begin(), cands_.end(), held)) return;
    std::string known;
    for (const RunTaskView& view : base_.tasks) known += (known.empty() ? "" : ", ") + view.task.name;
    throw Error(ErrorCode::usage, ErrorSubject::general,
                fmt::format("none of the runs has a task \"{}\"", printable(task.substr(0, 80))),
                {.why = base_.run.run_id + " has " + printable(known)});
  }

  std::optional<TaskPairs> pairs_of(const std::string& task, size_t c) {
    const RunView& cand = cands_[c];
    const PairOptions options{options_.metric, options_.allow_partial};
    const auto* members = members_of(task);
    const RunTaskView* own = find_run_task(base_, task);
    if (members == nullptr || (own != nullptr && own->task.kind != "group")) {
      if (own == nullptr || find_run_task(cand, task) == nullptr) {
        out_.notes.push_back(fmt::format("{} is only in {}", printable(task), (own ? base_ : cand).run.run_id));
        return std::nullopt;
      }
      return pair_task(store_, base_, cand, task, options);
    }
    std::vector<TaskPairs> parts;
    for (const std::string& member : *members) {
      if (find_run_task(base_, member) == nullptr && find_run_task(cand, member) == nullptr) continue;
      if (find_run_task(base_, member) == nullptr || find_run_task(cand, member) == nullptr) {
        out_.notes.push_back(fmt::format("{} is only in one of {} and {}: {} leaves it out", printable(member),
                                         base_.run.run_id, cand.run.run_id, printable(task)));
        continue;
      }
      parts.push_back(pair_task(store_, base_, cand, member, options));
      if (parts.back().metric != parts.front().metric ||
          parts.back().higher_is_better != parts.front().higher_is_better) {
        out_.notes.push_back(fmt::format("{} has no metric that all its members have", printable(task)));
        return std::nullopt;
      }
    }
    if (parts.empty()) return std::nullopt;
    return pool(task, std::move(parts));
  }

  void add_task(const std::string& task) {
    std::vector<std::optional<TaskPairs>> all;
    for (size_t c = 0; c < cands_.size(); ++c) all.push_back(pairs_of(task, c));
    std::map<std::string, std::vector<ComparedRow>, SliceLess> by_slice;
    for (size_t c = 0; c < all.size(); ++c) {
      if (!all[c]) continue;
      if (all[c]->pairs.empty()) tell_of_no_pairs(*all[c], c);
      for (const auto& [slice, pairs] : slices_of(*all[c], options_.by))
        by_slice[slice].push_back(row_of(*all[c], slice, pairs, c));
      if (options_.flips > 0) add_flips(*all[c], c);
    }
    if (cands_.size() > 1 && members_of(task) == nullptr) mark_best(all, by_slice);
    for (auto& [slice, rows] : by_slice) {
      for (ComparedRow& row : rows) out_.rows.push_back(std::move(row));
    }
  }

  void tell_of_no_pairs(const TaskPairs& pairs, size_t c) {
    const bool base = pairs.rows[0].empty(), cand = pairs.rows[1].empty();
    if (!base && !cand) {
      out_.notes.push_back(fmt::format("{}: no document was answered in both runs", printable(pairs.task)));
      return;
    }
    const std::string who =
        base && cand ? base_.run.run_id + " and " + cands_[c].run.run_id : (base ? base_ : cands_[c]).run.run_id;
    out_.notes.push_back(
        fmt::format("{}: no samples of it are stored with {}, only aggregates", printable(pairs.task), who));
  }

  ComparedRow row_of(const TaskPairs& all, const std::string& slice, std::span<const Pair> pairs, size_t c) {
    const PairValues values = values_of(all, pairs);
    ComparedRow row;
    row.cand = c;
    row.task = all.task;
    row.slice = slice;
    row.metric = all.metric;
    row.higher_is_better = all.higher_is_better;
    row.base_mean = values.base_mean;
    row.cand_mean = values.cand_mean;
    row.result = metrics::compare_paired(values.gains, values.clusters, values.binary, options_.paired);
    row.note = notes_of(all, base_, cands_[c]);
    return row;
  }

  void add_flips(const TaskPairs& pairs, size_t c) {
    std::vector<Pair> changed;
    for (const Pair& pair : pairs.pairs) {
      if (pair.gain != 0) changed.push_back(pair);
    }
    std::stable_sort(changed.begin(), changed.end(), [](const Pair& a, const Pair& b) { return a.gain < b.gain; });
    const auto n = static_cast<size_t>(options_.flips);
    for (size_t i = 0; i < changed.size(); ++i) {
      const Pair& pair = changed[i];
      if (pair.gain < 0 ? i >= n : i + n < changed.size()) continue;
      out_.flips.push_back({c, pairs.members.empty() ? pairs.task : pairs.members[pair.member], *pair.base->value,
                            *pair.cand->value, pair.gain, pair.base->sample, pair.cand->sample, pair.base->ctx_len,
                            pair.base->depth_pct, pair.base->subtask});
    }
  }

  // The baseline takes part; it is marked by nobody's `best` being set.
  void mark_best(const std::vector<std::optional<TaskPairs>>& all,
                 std::map<std::string, std::vector<ComparedRow>, SliceLess>& by_slice) {
    for (auto& [slice, rows] : by_slice) {
      if (rows.size() < cands_.size()) continue;
      std::vector<std::vector<ScoreRow>> answers(1);
      for (const auto& pairs : all) {
        std::vector<ScoreRow>& own = answers.emplace_back();
        for (const ScoreRow& row : pairs->rows[1]) {
          if (slice_of(row, options_.by) == slice) own.push_back(row);
        }
      }
      for (const ScoreRow& row : all.front()->rows[0]) {
        if (slice_of(row, options_.by) == slice) answers[0].push_back(row);
      }
      const auto best = significant_best(answers, rows.front().higher_is_better, options_.paired);
      if (best && *best > 0) rows[*best - 1].best = true;
    }
  }

  // One family: every row with enough pairs, of all candidates.
  void judge() {
    std::vector<double> p;
    std::vector<ComparedRow*> tested;
    for (ComparedRow& row : out_.rows) {
      if (row.result.n < metrics::kFewPairs) continue;
      p.push_back(row.result.p);
      tested.push_back(&row);
    }
    const std::vector<double> adjusted = metrics::adjust(p, options_.adjust);
    for (size_t i = 0; i < tested.size(); ++i) tested[i]->p_adj = adjusted[i];
    for (ComparedRow& row : out_.rows)
      row.verdict = metrics::verdict(row.result, row.p_adj.value_or(1), options_.paired.alpha);
  }

  Store& store_;
  const RunView& base_;
  std::span<const RunView> cands_;
  const CompareOptions& options_;
  Comparison out_;
};

// The number at the end of "key=", or nothing.
std::optional<double> number_of(std::string_view part) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const std::string text(part.substr(equals + 1));
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' ? std::optional(value) : std::nullopt;
}

std::string_view next_part(std::string_view& rest) {
  const size_t end = std::min(rest.find(';'), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

}  // namespace

std::optional<metrics::Interval> ComparedRow::delta_interval() const {
  if (!result.interval || higher_is_better) return result.interval;
  return metrics::Interval{-result.interval->high, -result.interval->low};
}

bool slice_less(const std::string& a, const std::string& b) {
  std::string_view left = a, right = b;
  while (!left.empty() && !right.empty()) {
    const std::string_view x = next_part(left), y = next_part(right);
    if (x == y) continue;
    const auto m = number_of(x), n = number_of(y);
    if (m && n && *m != *n && x.substr(0, x.find('=')) == y.substr(0, y.find('='))) return *m < *n;
    return x < y;
  }
  return left.size() < right.size();
}

std::optional<size_t> significant_best(std::span<const std::vector<ScoreRow>> runs, bool higher_is_better,
                                       const metrics::PairedOptions& options) {
  if (runs.size() < 2) return std::nullopt;
  std::optional<size_t> top;
  double top_mean = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    double sum = 0;
    int64_t n = 0;
    for (const ScoreRow& row : runs[i]) {
      if (!row.ok || !row.value || !std::isfinite(*row.value)) continue;
      sum += higher_is_better ? *row.value : -*row.value;
      ++n;
    }
    if (n == 0) return std::nullopt;
    const double mean = sum / static_cast<double>(n);
    if (!top || mean > top_mean) {
      top = i;
      top_mean = mean;
    }
  }
  metrics::PairedOptions only_p = options;
  only_p.interval = false;
  only_p.test = metrics::PairedTest::automatic;
  std::vector<double> p;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i == *top) continue;
    const TaskPairs pairs = pair_rows(runs[i], runs[*top], higher_is_better);
    if (static_cast<int64_t>(pairs.pairs.size()) < metrics::kFewPairs) return std::nullopt;
    const PairValues values = values_of(pairs, pairs.pairs);
    const metrics::PairedResult result = metrics::compare_paired(values.gains, values.clusters, values.binary, only_p);
    if (result.gain <= 0) return std::nullopt;
    p.push_back(result.p);
  }
  const std::vector<double> adjusted = metrics::holm(p);
  const bool beats_all =
      std::all_of(adjusted.begin(), adjusted.end(), [&](double value) { return value < options.alpha; });
  return beats_all ? top : std::nullopt;
}

Comparison compare_runs(Store& store, const RunView& base, std::span<const RunView> cands,
                        const CompareOptions& options) {
  return Comparer(store, base, cands, options).compare();
}

}  // namespace hayfork::runs
