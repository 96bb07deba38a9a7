#include "tasks/row_faults.h"

#include <algorithm>

#include "base/error.h"
#include "tasks/forms/forms.h"

namespace hayfork::tasks {

std::vector<std::string> row_faults(const std::string& set, const datasets::Records& records,
                                    std::span<const std::string> where) {
  HAY_CHECK(where.size() == records.rows.size());
  const auto& forms = lm_eval_forms();
  const auto reads = [&set](const DocumentForm& form) {
    return std::find(form.data.sets.begin(), form.data.sets.end(), set) != form.data.sets.end();
  };
  const auto form = std::find_if(forms.begin(), forms.end(), reads);
  std::vector<std::string> out;
  if (form == forms.end()) return out;
  for (size_t i = 0; i < records.rows.size(); ++i) {
    if (records.rows[i].value == nullptr) continue;
    try {
      form->document(Fields(*records.rows[i].value, where[i]));
    } catch (const Error& error) {  // this row's
      out.emplace_back(error.what());
    }
  }
  return out;
}

}  // namespace hayfork::tasks
