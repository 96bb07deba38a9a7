// The subjects of three exam collections, by their upstream names: MMLU (Hendrycks et al. 2021, arXiv 2009.03300),
// C-Eval (Huang et al. 2023, arXiv 2305.08322) and CMMLU (Li et al. 2023, arXiv 2306.09212).
#pragma once

#include <string>
#include <vector>

namespace hayfork::tasks {

struct MmluSubject {
  std::string name, category;  // category: stem, humanities, social_sciences, other
};
const std::vector<MmluSubject>& mmlu_subjects();

struct ChineseSubject {
  std::string name, chinese;
};
const std::vector<ChineseSubject>& ceval_subjects();
const std::vector<ChineseSubject>& cmmlu_subjects();

}  // namespace hayfork::tasks
