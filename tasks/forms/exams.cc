// Exams with lettered options. Upstream folders: mmlu/default, mmlu/continuation, ceval, cmmlu.
#include <nlohmann/json.hpp>

#include "tasks/forms/exam_subjects.h"
#include "tasks/forms/forms.h"

namespace hayfork::tasks {
namespace {

std::string lines(const std::vector<std::string>& options) {
  const std::vector<std::string> letters = option_letters(options.size());
  std::string out;
  for (size_t i = 0; i < options.size(); ++i) out += "\n" + letters[i] + ". " + options[i];
  return out;
}

std::vector<std::string> four_options(const Fields& row) {
  std::vector<std::string> options = row.texts("choices");
  if (options.size() != 4) row.fail("choices", "four texts", row.at("choices"));
  return options;
}

// The question is stripped, its options are not.
Document mmlu(const Fields& row) {
  Document out;
  out.text = strip(row.text("question")) + lines(four_options(row)) + "\nAnswer:";
  out.choices = option_letters(4);
  set_gold(out, row.label("answer", 4));
  return out;
}

Document mmlu_continuation(const Fields& row) {
  Document out;
  out.text = "Question: " + strip(row.text("question")) + "\nAnswer:";
  out.choices = four_options(row);
  set_gold(out, row.label("answer", 4));
  return out;
}

Document chinese(const Fields& row, const char* question, const char* answer) {
  Document out;
  out.text =
      strip(row.text(question)) + lines({row.text("A"), row.text("B"), row.text("C"), row.text("D")}) + "\n答案：";
  out.choices = option_letters(4);
  set_gold(out, row.place(answer, out.choices));
  return out;
}
Document ceval(const Fields& row) {
  return chinese(row, "question", "answer");
}
Document cmmlu(const Fields& row) {
  return chinese(row, "Question", "Answer");
}

DocumentForm exam(const std::string& name, const std::string& version, const SplitNames& data,
                  const std::string& eval_split) {
  DocumentForm form = lm_eval_form(name, version);
  form.data = data;
  form.train_split = "";
  form.validation_split = eval_split == "val" ? "val" : "";
  form.test_split = eval_split == "val" ? "" : eval_split;
  form.fewshot_split = "dev";
  form.first_n = true;
  return form;
}

std::string with_blanks(std::string name) {
  for (char& c : name)
    if (c == '_') c = ' ';
  return name;
}

}  // namespace

std::vector<DocumentForm> exam_forms() {
  std::vector<DocumentForm> out;
  for (const MmluSubject& subject : mmlu_subjects()) {
    const std::string name = "mmlu_" + subject.name;
    const SplitNames data{{name, "mmlu"}, subject.name};
    DocumentForm form = exam(name, "1.0", data, "test");
    form.description =
        "The following are multiple choice questions (with answers) about " + with_blanks(subject.name) + ".\n\n";
    form.document = mmlu;
    out.push_back(form);
    form = exam(name + "_continuation", "1.0", data, "test");
    form.description = "The following are questions (with answers) about " + with_blanks(subject.name) + ".\n\n";
    form.metrics = {"acc", "acc_norm"};
    form.document = mmlu_continuation;
    out.push_back(form);
  }
  for (const ChineseSubject& subject : ceval_subjects()) {
    DocumentForm form = exam("ceval-valid_" + subject.name, "2.0",
                             {{"ceval-valid_" + subject.name, "ceval-valid", "ceval"}, subject.name}, "val");
    form.description = "以下是中国关于" + subject.chinese + "的单项选择题，请选出其中的正确答案。\n\n";
    form.metrics = {"acc", "acc_norm"};
    form.document = ceval;
    out.push_back(form);
  }
  for (const ChineseSubject& subject : cmmlu_subjects()) {
    DocumentForm form =
        exam("cmmlu_" + subject.name, "1.0", {{"cmmlu_" + subject.name, "cmmlu"}, subject.name}, "test");
    form.description = "以下是关于" + subject.chinese + "的单项选择题，请直接给出正确答案的选项。\n\n";
    form.metrics = {"acc", "acc_norm"};
    form.document = cmmlu;
    out.push_back(form);
  }
  return out;
}

}  // namespace hayfork::tasks
