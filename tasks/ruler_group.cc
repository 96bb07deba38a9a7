#include <algorithm>
#include <cmath>
#include <set>

#include "metrics/stats.h"
#include "tasks/ruler.h"

namespace hayfork::tasks {
namespace {

constexpr std::string_view kLengthKey = "ctx_len=";

struct LengthMean {
  int64_t length = 0;
  Aggregate score;
};

Aggregate named(const std::string& metric, std::optional<double> value, int64_t n) {
  Aggregate a;
  a.metric = metric;
  a.value = value;
  a.n = n;
  return a;
}

// Mean of the members' scores at one slice; no value unless every member has one.
Aggregate mean_of_members(const std::map<std::string, std::vector<Aggregate>>& members, const std::string& slice) {
  Aggregate out;
  out.slice = slice;
  out.metric = "score";
  double sum = 0, variance = 0;
  bool complete = members.size() == ruler_members().size(), has_error = true;
  for (const auto& [name, aggregates] : members) {
    const auto it = std::find_if(aggregates.begin(), aggregates.end(),
                                 [&](const Aggregate& a) { return a.slice == slice && a.metric == "score"; });
    if (it == aggregates.end() || !it->value) {
      complete = false;
      continue;
    }
    sum += *it->value;
    out.n += it->n;
    // All answers equal: the half width of the interval stands in for a standard error of 0.
    const std::optional<double> error = it->stderr_value ? it->stderr_value
                                        : it->ci_low
                                            ? std::optional<double>((*it->ci_high - *it->ci_low) / (2 * metrics::kZ95))
                                            : std::nullopt;
    has_error = has_error && error;
    if (error) variance += *error * *error;
  }
  if (!complete) return out;
  const auto n = static_cast<double>(members.size());
  out.value = sum / n;
  if (has_error) {
    out.stderr_value = std::sqrt(variance) / n;
    out.ci_low = std::max(0.0, *out.value - metrics::kZ95 * *out.stderr_value);
    out.ci_high = std::min(1.0, *out.value + metrics::kZ95 * *out.stderr_value);
    out.ci_method = "normal, standard errors of the tasks";
  }
  return out;
}

std::vector<LengthMean> means_by_length(const std::map<std::string, std::vector<Aggregate>>& members) {
  std::set<int64_t> lengths;
  for (const auto& [name, aggregates] : members)
    for (const Aggregate& a : aggregates)
      if (a.slice.starts_with(kLengthKey) && a.slice.find(';') == std::string::npos && a.slice != "ctx_len=none")
        lengths.insert(std::stoll(a.slice.substr(kLengthKey.size())));
  std::vector<LengthMean> out;
  for (const int64_t length : lengths)
    out.push_back({length, mean_of_members(members, std::string(kLengthKey) + std::to_string(length))});
  return out;
}

// The largest length such that it and every shorter one pass.
template <typename Passes>
std::optional<double> effective(const std::vector<LengthMean>& means, Passes passes) {
  std::optional<double> out;
  for (const LengthMean& m : means) {
    if (!passes(m.score)) break;
    out = static_cast<double>(m.length);
  }
  return out;
}

}  // namespace

std::vector<Aggregate> fold_ruler_group(const std::map<std::string, std::vector<Aggregate>>& members) {
  double threshold = kRulerThreshold;
  for (const auto& [name, aggregates] : members)
    for (const Aggregate& a : aggregates)
      if (a.metric == "threshold" && a.value) threshold = *a.value;
  return fold_ruler(members, threshold);
}

std::vector<Aggregate> fold_ruler(const std::map<std::string, std::vector<Aggregate>>& members, double threshold) {
  const std::vector<LengthMean> means = means_by_length(members);
  const bool complete =
      !means.empty() && std::all_of(means.begin(), means.end(), [](const LengthMean& m) { return m.score.value; });
  Aggregate all = named("score", {}, 0);
  double sum = 0, variance = 0, rising = 0, falling = 0, weights = 0;
  bool has_error = complete;
  for (size_t i = 0; i < means.size(); ++i) {
    all.n += means[i].score.n;
    if (!complete) continue;
    const double value = *means[i].score.value;
    sum += value;
    rising += static_cast<double>(i + 1) * value;
    falling += static_cast<double>(means.size() - i) * value;
    weights += static_cast<double>(i + 1);
    has_error = has_error && means[i].score.stderr_value;
    if (has_error) variance += *means[i].score.stderr_value * *means[i].score.stderr_value;
  }
  if (complete) {
    const auto n = static_cast<double>(means.size());
    all.value = sum / n;
    if (has_error) {
      all.stderr_value = std::sqrt(variance) / n;
      all.ci_low = std::max(0.0, *all.value - metrics::kZ95 * *all.stderr_value);
      all.ci_high = std::min(1.0, *all.value + metrics::kZ95 * *all.stderr_value);
      all.ci_method = "normal, standard errors of the tasks";
    }
  }
  std::vector<Aggregate> out = {
      named("effective_length", effective(means, [&](const Aggregate& a) { return a.value && *a.value > threshold; }),
            all.n),
      named("effective_length_ci",
            effective(means, [&](const Aggregate& a) { return a.ci_low && *a.ci_low > threshold; }), all.n),
      all, named("wavg_dec", complete ? std::optional<double>(falling / weights) : std::nullopt, all.n),
      named("wavg_inc", complete ? std::optional<double>(rising / weights) : std::nullopt, all.n)};
  for (const LengthMean& m : means) out.push_back(m.score);
  std::sort(out.begin(), out.end(), [](const Aggregate& a, const Aggregate& b) {
    return std::tie(a.slice, a.metric) < std::tie(b.slice, b.metric);
  });
  return out;
}

}  // namespace hayfork::tasks
