#include "tasks/forms/forms.h"

namespace hayfork::tasks {

DocumentForm lm_eval_form(const std::string& name, const std::string& version) {
  DocumentForm form;
  form.name = name;
  form.version = version;
  form.protocol = "lm-eval/" + name + "/" + version;
  form.data.sets = {name};
  form.train_split = "train";
  form.validation_split = "validation";
  return form;
}

std::vector<std::string> option_letters(size_t n) {
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i) out.emplace_back(1, static_cast<char>('A' + i));
  return out;
}

const std::vector<DocumentForm>& lm_eval_forms() {
  static const std::vector<DocumentForm> kForms = [] {
    std::vector<DocumentForm> all;
    for (auto make : {commonsense_forms, super_glue_forms, reading_forms, exam_forms})
      for (DocumentForm& form : make()) all.push_back(std::move(form));
    return all;
  }();
  return kForms;
}

}  // namespace hayfork::tasks
