// OpenCompass's likelihood scoring (opencompass/openicl/icl_inferencer, configs of 2026-08): every option as one whole
// text, chosen by the smallest average negative log-likelihood of all its ids but the first over their number
// (ppl_full). The nineteen rows of the hybrid paper's table 13 and the group that prints them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tasks/document_form.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

struct OcpForm {
  DocumentForm base;  // document: choices (what to show) and gold; its text is not used. Demonstrations: first_n
  // One whole text an option. `shots`: the demonstrations' rows.
  using Prompts = std::function<std::vector<std::string>(const Fields& row, const std::vector<Fields>& shots)>;
  Prompts prompts;
  // LL mode (winogrande): what follows the blank; its log-probability alone is summed.
  std::function<std::string(const Fields&)> suffix = {};
  std::string row;  // of table 13: "MMLU"
  // One stored row may be several questions (RACE).
  std::function<std::vector<nlohmann::ordered_json>(const Fields&)> expand = {};
  std::vector<std::string> more_splits = {};  // read behind the first
};

std::vector<OcpForm> opencompass_forms();
std::vector<TaskEntry> opencompass_tasks();  // and the groups ocp_mmlu, ocp_ceval, ocp_cmmlu, hybrid_short

// Fields of a template replaced one after another, over what earlier ones brought in too.
std::string ocp_fill(std::string text, const std::vector<std::pair<std::string, std::string>>& fields);
// Parts joined by line feeds; demonstrations as parts of their own, each and all followed by a line feed.
std::string ocp_parts(const std::vector<std::pair<std::string, std::string>>& shots, const std::string& question,
                      const std::string& option);

}  // namespace hayfork::tasks
