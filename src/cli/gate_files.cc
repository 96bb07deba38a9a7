#include "cli/gate_files.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/version.h"
#include "cli/compare_view.h"
#include "runs/report/svg.h"
#include "runs/report/table.h"

namespace hayfork::cli {
namespace {

using runs::Cell;
using runs::CellType;

std::string title(const runs::JudgedRule& judged) {
  std::string text = judged.row.task;
  if (!judged.row.slice.empty()) text += " [" + judged.row.slice + "]";
  if (!judged.row.metric.empty()) text += " " + judged.row.metric;
  return text;
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

std::string figures(const runs::JudgedRule& judged) {
  const runs::ComparedRow& row = judged.row;
  if (row.result.n == 0) return judged.why;
  std::string text = fmt::format("{} (limit {:.3g})  {:.3f} → {:.3f}", signed_text(row.delta(), 3), judged.limit,
                                 row.base_mean, row.cand_mean);
  const std::string interval = interval_text(row.delta_interval(), 3);
  if (!interval.empty()) text += "  CI " + interval;
  if (row.p_adj) text += fmt::format("  p(adj) {:.3g}", *row.p_adj);
  text += fmt::format("  {} pairs", row.result.n);
  if (judged.n_confirmed > 0) text += fmt::format(" with {} reruns", judged.n_confirmed);
  if (!judged.why.empty()) text += "; " + judged.why;
  if (!row.note.empty()) text += "; " + row.note;
  return text;
}

}  // namespace

std::string gate_word(const runs::JudgedRule& judged) {
  if (judged.rule.tier == runs::Tier::info) return "INFO";
  if (judged.verdict == runs::GateVerdict::fail && judged.rule.tier == runs::Tier::warn) return "WARN";
  return upper(runs::name(judged.verdict));
}

std::string gate_line(const runs::JudgedRule& judged) {
  return fmt::format("{:<12}  {}  {}", gate_word(judged), runs::terminal_line(title(judged)),
                     runs::terminal_line(figures(judged)));
}

std::string junit_xml(const runs::GateResult& result, const runs::RunView& base, const runs::RunView& cand,
                      const std::string& policy) {
  int64_t failures = 0, skipped = 0;
  std::string cases;
  for (const runs::JudgedRule& judged : result.rules) {
    const std::string word = gate_word(judged);
    cases += fmt::format("    <testcase classname=\"hayfork.gate\" name=\"{}\">\n", runs::xml_text(title(judged)));
    if (word == "FAIL") {
      ++failures;
      cases += fmt::format("      <failure message=\"{0}\">{0}</failure>\n", runs::xml_text(figures(judged)));
    } else if (word == "INCONCLUSIVE") {
      ++skipped;
      cases += fmt::format("      <skipped message=\"{}\"/>\n", runs::xml_text(figures(judged)));
    } else {
      cases += fmt::format("      <system-out>{}: {}</system-out>\n", word, runs::xml_text(figures(judged)));
    }
    cases += "    </testcase>\n";
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"hayfork gate {}\" tests=\"{}\" "
      "failures=\"{}\" skipped=\"{}\" errors=\"0\">\n    <properties>\n      <property name=\"baseline\" "
      "value=\"{}\"/>\n"
      "      <property name=\"candidate\" value=\"{}\"/>\n      <property name=\"policy\" value=\"{}\"/>\n"
      "      <property name=\"hayfork\" value=\"{}\"/>\n    </properties>\n{}  </testsuite>\n</testsuites>\n",
      runs::xml_text(runs::name(result.verdict)), result.rules.size(), failures, skipped,
      runs::xml_text(base.run.run_id), runs::xml_text(cand.run.run_id), runs::xml_text(policy),
      runs::xml_text(version()), cases);
}

std::string gate_markdown(const runs::GateResult& result, const runs::RunView& base, const runs::RunView& cand,
                          const std::string& policy) {
  runs::Section section = gate_section(result);
  section.title = fmt::format("Gate: {} — candidate {} ({}) against {} ({})", upper(runs::name(result.verdict)),
                              cand.run.run_id, cand.model.name, base.run.run_id, base.model.name);
  section.notes = {"policy " + policy};
  return runs::render(runs::Document{"gate", {std::move(section)}}, runs::Format::md);
}

runs::Section gate_section(const runs::GateResult& result) {
  const auto real = [](const std::optional<double>& value) { return value ? Cell(*value) : Cell(); };
  runs::Section section{.name = "rules",
                        .table = {{{.name = "result"},
                                   {.name = "tier"},
                                   {.name = "task"},
                                   {.name = "slice"},
                                   {.name = "metric"},
                                   {.name = "pairs", .type = CellType::integer},
                                   {.name = "base", .type = CellType::real},
                                   {.name = "cand", .type = CellType::real},
                                   {.name = "delta", .type = CellType::real},
                                   {.name = "limit", .type = CellType::real},
                                   {.name = "ci_low", .type = CellType::real},
                                   {.name = "ci_high", .type = CellType::real},
                                   {.name = "p_adj", .type = CellType::real},
                                   {.name = "mde", .type = CellType::real},
                                   {.name = "test"},
                                   {.name = "reruns", .type = CellType::integer},
                                   {.name = "why"}},
                                  {}}};
  for (const runs::JudgedRule& judged : result.rules) {
    const runs::ComparedRow& row = judged.row;
    const auto interval = row.delta_interval();
    const bool any = row.result.n > 0;
    section.table.rows.push_back(
        {gate_word(judged), std::string(runs::name(judged.rule.tier)), row.task, row.slice, row.metric, row.result.n,
         any ? Cell(row.base_mean) : Cell(), any ? Cell(row.cand_mean) : Cell(), any ? Cell(row.delta()) : Cell(),
         judged.limit, interval ? Cell(interval->low) : Cell(), interval ? Cell(interval->high) : Cell(),
         real(row.p_adj), real(row.result.mde), row.result.test, judged.n_confirmed, judged.why});
  }
  return section;
}

}  // namespace hayfork::cli
