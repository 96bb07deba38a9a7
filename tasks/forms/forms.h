// The built-in multiple-choice forms. Those of lm-evaluation-harness follow its task files (lm_eval/tasks, 0.4.13);
// each maker's comment names the folder there.
#pragma once

#include <string>
#include <vector>

#include "tasks/document_form.h"

namespace hayfork::tasks {

std::vector<DocumentForm>
commonsense_forms();  // arc, hellaswag, openbookqa, piqa, social_iqa, winogrande, commonsense_qa
std::vector<DocumentForm> super_glue_forms();  // boolq, cb, copa, multirc, record, rte, sglue_rte, wic, wsc
std::vector<DocumentForm> reading_forms();     // race, storycloze, xstorycloze_en, lambada
std::vector<DocumentForm> exam_forms();        // mmlu, mmlu continuation, ceval-valid, cmmlu: one a subject

const std::vector<DocumentForm>& lm_eval_forms();  // all of them

// "lm-eval/arc_easy/1.0".
DocumentForm lm_eval_form(const std::string& name, const std::string& version);

// HellaSwag's cleaning of a text.
std::string hellaswag_clean(std::string text);

std::vector<std::string> option_letters(size_t n);

}  // namespace hayfork::tasks
