// A gate's verdict as files: JUnit XML for CI systems, Markdown for people.
#pragma once

#include <string>

#include "runs/gate.h"
#include "runs/report/table.h"

namespace hayfork::cli {

std::string junit_xml(const runs::GateResult& result, const runs::RunView& base, const runs::RunView& cand,
                      const std::string& policy);
std::string gate_markdown(const runs::GateResult& result, const runs::RunView& base, const runs::RunView& cand,
                          const std::string& policy);
// One line a rule: "FAIL  hellaswag  acc_norm −0.011 (limit 0.005)  CI […]  p(adj) 0.002".
std::string gate_line(const runs::JudgedRule& judged);
// FAIL, WARN, PASS, INCONCLUSIVE or INFO.
std::string gate_word(const runs::JudgedRule& judged);
runs::Section gate_section(const runs::GateResult& result);

}  // namespace hayfork::cli
