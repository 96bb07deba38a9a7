// An estimate in the columns of a row: for every struct that has value, n, stderr_value, ci_low, ci_high and ci_method
// (an aggregate of a task, a row of the results database).
#pragma once

#include "metrics/stats.h"

namespace hayfork::metrics {

// Without an interval its columns stay as they are.
template <typename Row>
void put_interval(Row& row, const Estimate& estimate) {
  if (!estimate.interval) return;
  row.ci_low = estimate.interval->low;
  row.ci_high = estimate.interval->high;
  row.ci_method = estimate.method;
}

template <typename Row>
void put_estimate(Row& row, const Estimate& estimate) {
  row.value = estimate.value;
  row.n = estimate.n;
  row.stderr_value = estimate.stderr_value;
  put_interval(row, estimate);
}

}  // namespace hayfork::metrics
