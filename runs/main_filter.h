// A task may read its answers by several filters ("strict-match", "flexible-extract"): which of them stands for it.
#pragma once

#include <span>
#include <string>

#include "runs/rows.h"

namespace hayfork::runs {

// Of the filters of `metric`: none, else the first by name (as v_timeline's readers and tables have it). Empty when the
// metric is not there.
inline std::string main_filter(std::span<const MetricRow> rows, const std::string& metric) {
  std::string found;
  for (const MetricRow& row : rows) {
    if (row.metric != metric) continue;
    if (row.filter == "none") return row.filter;
    if (found.empty() || row.filter < found) found = row.filter;
  }
  return found;
}

}  // namespace hayfork::runs
