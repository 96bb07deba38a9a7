// Scores to aggregates. A sample that failed or could not be judged is left out, never counted as 0; a slice with none
// left has no value. Rows are put in a fixed order first, so that the order of arrival does not change a bit.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/numbers.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

enum class Slicing { all, by_length, by_depth, by_length_and_depth, by_subtask, by_subtask_and_length };

// Means of every metric found in the rows, over each slice of each slicing, with intervals as metrics/stats.h gives
// them (clusters from the keys). Slices exist for every row, also those of failed samples: then without a value.
std::vector<Aggregate> fold_means(std::span<const FoldRow> rows, std::span<const Slicing> slicings);

// "ctx_len=4096;depth_pct=50": what the slice of this key is called.
std::string slice_name(const SampleKey& key, Slicing slicing);

}  // namespace hayfork::tasks
