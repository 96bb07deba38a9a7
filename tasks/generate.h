// Documents whose answer is written by the model (generate_until): recall and custom tasks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tasks/document_form.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

// Metrics a form may name: contains, exact_match, f1 (SQuAD's). Requires: form.output is text.
std::unique_ptr<Task> make_generate_task(const DocumentForm& form, const TaskOptions& options, const TextContext& text);

// What `metric` gives for an answer. Throws: usage for a metric that is none of these.
double score_text(const DocumentForm& form, const std::string& metric, const std::string& answer,
                  const std::vector<std::string>& targets);

}  // namespace hayfork::tasks
