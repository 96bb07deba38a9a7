// Recall-intensive tasks: the six of the Orthros paper's table 3 in HazyResearch's cloze form (Arora et al. 2024, arXiv
// 2402.18668 and 2407.05483; based_*), and three of them as lm-evaluation-harness asks them (fda, swde,
// squad_completion; versions 1 and 0). A short continuation is generated and searched for the answer.
#pragma once

#include <string>
#include <vector>

#include "tasks/document_form.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

std::vector<TaskEntry> recall_tasks();  // and the group recall

// The prompt of a row whose context is `context` already (cut or whole). `task`: "based_drop", …. Throws: corrupt
// (data).
std::string recall_prompt(const std::string& task, const Fields& row, const std::string& context);

struct CutContext {
  std::string text;
  int64_t n_tokens = 0;
};
// The window of `context_length` − 50 tokens around the answer, as the suite's runner cuts it.
CutContext cut_context(const std::string& task, const Fields& row, const engine::Tokenizer& tokenizer,
                       int64_t context_length);
// Whether the suite's runner asks the row at all: no search key has an answer of fewer than two characters.
bool is_asked(const std::string& task, const Fields& row);

}  // namespace hayfork::tasks
