// The multiple-choice task: a form's rows become score requests. All options of a question share one context, which is
// computed once; single-token options are read from one row of logits (both are the engine's doing: one request).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tasks/document_form.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

// Keys of TaskOptions::extra of every such task: pmi (on, off), truncate (never, left).
std::vector<OptionDef> choice_options();

std::unique_ptr<Task> make_choice_task(const DocumentForm& form, const TaskOptions& options, const TextContext& text);

}  // namespace hayfork::tasks
