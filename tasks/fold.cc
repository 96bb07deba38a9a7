#include "tasks/fold.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "metrics/estimate_row.h"

namespace hayfork::tasks {
namespace {

struct Values {
  std::vector<double> values;
  std::vector<std::string> clusters;
};

Aggregate make_aggregate(const std::string& slice, const std::string& metric, const std::string& filter,
                         const Values& v) {
  Aggregate out;
  out.slice = slice;
  out.metric = metric;
  out.filter = filter;
  if (v.values.empty()) return out;
  const bool clustered =
      std::none_of(v.clusters.begin(), v.clusters.end(), [](const std::string& c) { return c.empty(); });
  metrics::put_estimate(out, metrics::estimate_mean(v.values, clustered ? std::span<const std::string>(v.clusters)
                                                                        : std::span<const std::string>()));
  return out;
}

}  // namespace

std::string slice_name(const SampleKey& key, Slicing slicing) {
  const auto length = [&] { return "ctx_len=" + (key.ctx_len ? std::to_string(*key.ctx_len) : "none"); };
  const auto depth = [&] { return "depth_pct=" + (key.depth_pct ? format_number(*key.depth_pct) : "none"); };
  const auto subtask = [&] { return "subtask=" + key.subtask.value_or("none"); };
  switch (slicing) {
    case Slicing::all:
      return "";
    case Slicing::by_length:
      return length();
    case Slicing::by_depth:
      return depth();
    case Slicing::by_length_and_depth:
      return length() + ";" + depth();
    case Slicing::by_subtask:
      return subtask();
    case Slicing::by_subtask_and_length:
      return length() + ";" + subtask();
  }
  HAY_CHECK(false);
}

std::vector<Aggregate> fold_means(std::span<const FoldRow> rows, std::span<const Slicing> slicings) {
  std::vector<const FoldRow*> order;
  for (const FoldRow& row : rows) order.push_back(&row);
  std::sort(order.begin(), order.end(), [](const FoldRow* a, const FoldRow* b) {
    return std::tie(a->key.doc_id, a->key.repeat) < std::tie(b->key.doc_id, b->key.repeat);
  });
  std::set<std::pair<std::string, std::string>> names;
  for (const FoldRow* row : order)
    for (const MetricValue& m : row->metrics) names.emplace(m.metric, m.filter);
  std::map<std::tuple<std::string, std::string, std::string>, Values> slices;
  for (const Slicing slicing : slicings)
    for (const FoldRow* row : order) {
      const std::string slice = slice_name(row->key, slicing);
      for (const auto& [metric, filter] : names) slices[{slice, metric, filter}];
      if (row->status != Status::ok) continue;
      for (const MetricValue& m : row->metrics) {
        if (!m.value || !std::isfinite(*m.value)) continue;
        Values& v = slices[{slice, m.metric, m.filter}];
        v.values.push_back(*m.value);
        v.clusters.push_back(row->key.cluster.value_or(""));
      }
    }
  std::vector<Aggregate> out;
  for (const auto& [key, values] : slices)
    out.push_back(make_aggregate(std::get<0>(key), std::get<1>(key), std::get<2>(key), values));
  return out;
}

}  // namespace hayfork::tasks
