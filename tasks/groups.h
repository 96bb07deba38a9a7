// Groups over multiple-choice tasks and what they make of their members' aggregates (lm_eval/api/group.py and
// metrics.py: the value weighted by documents, the standard error pooled).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tasks/tasks.h"

namespace hayfork::tasks {

// mmlu (all 57 subjects, slices category=stem …), mmlu_stem and its sisters, mmlu_continuation, ceval-valid, cmmlu,
// commonsense (the seven of the Orthros paper).
std::vector<TaskEntry> choice_groups();

// Σ vₜ·nₜ ÷ Σ nₜ over members that have the metric, with upstream's pooled standard error; n is the sum. A member of
// two documents or more without a standard error (all its values are equal) adds nothing to it; with one document there
// is none.
Aggregate pooled(const std::string& slice, const std::string& metric, const std::vector<Aggregate>& members);

}  // namespace hayfork::tasks
