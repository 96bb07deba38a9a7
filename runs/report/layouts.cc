#include "runs/report/layouts.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "runs/report/layouts_published.h"

namespace hayfork::runs {
namespace {

using Timing = LayoutColumn::Timing;

constexpr const char* kOrthros = "Orthros: Phase-Aware Heterogeneous Attention, arXiv 2610.13735";
constexpr const char* kHybrid = "Rethinking the Role of Efficient Attention in Hybrid Architectures, arXiv 2606.15378";
constexpr const char* kSparse = "Combined sparse attention for hybrid models (tables 4, 6, as far as quoted)";

LayoutColumn score(const char* title, std::vector<std::string> tasks, const char* metric = "") {
  return {.title = title, .tasks = std::move(tasks), .metric = metric};
}
LayoutColumn mean(const char* title) {
  return {.title = title, .tasks = {}, .mean = true};
}

std::vector<LayoutColumn> commonsense() {
  return {score("ARC-C", {"arc_challenge"}, "acc_norm"), score("ARC-E", {"arc_easy"}, "acc_norm"),
          score("HS", {"hellaswag"}, "acc_norm"),        score("OBQA", {"openbookqa"}, "acc_norm"),
          score("PIQA", {"piqa"}, "acc_norm"),           score("SIQA", {"social_iqa"}),
          score("Wino", {"winogrande"}, "acc")};
}

Layout orthros1() {
  Layout out{.name = "orthros-table1", .title = "Common sense, 1.3B, 100B tokens", .source = kOrthros};
  out.notes = {
      "which columns are length-normalised is not certain in the source: ARC, HellaSwag, OpenBookQA, PIQA here"};
  out.columns = commonsense();
  out.columns.push_back(mean("Avg(7)"));
  out.published = published_orthros_table1();
  return out;
}

Layout orthros2() {
  Layout out{.name = "orthros-table2", .title = "Conversion of 8B models", .source = kOrthros};
  out.columns = commonsense();
  out.columns.push_back(score("MMLU", {"mmlu"}));
  out.columns.push_back(mean("Avg(8)"));
  out.published = published_orthros_table2();
  return out;
}

Layout orthros3() {
  Layout out{.name = "orthros-table3", .title = "Recall", .source = kOrthros};
  for (const auto& [title, task] : {std::pair{"DROP", "based_drop"},
                                    {"NQ", "based_nq_2048"},
                                    {"SWDE", "based_swde"},
                                    {"TriviaQA", "based_triviaqa"},
                                    {"FDA", "based_fda"},
                                    {"SQuAD", "based_squad"}})
    out.columns.push_back(score(title, {task}));
  out.columns.push_back(mean("Avg(6)"));
  for (LayoutColumn& column : out.columns) column.digits = 1;
  out.published = published_orthros_table3();
  return out;
}

Layout orthros4() {
  Layout out{.name = "orthros-table4", .title = "End to end, batch 2", .source = kOrthros};
  out.notes = {
      "output = batch·n_out ÷ E2E; decode = batch·(n_out − 1) ÷ (E2E − TTFT): computed from the stored timings",
      "printed decode figures follow from printed TTFT and E2E in six cells of twelve, one is off in the last "
      "digit, five were measured otherwise"};
  struct Work {
    const char* name;
    int64_t n_prompt, n_gen;
  };
  for (const Work& work :
       {Work{"128K/128", 131072, 128}, Work{"127K/1K", 130048, 1024}, Work{"120K/8K", 122880, 8192}}) {
    const auto add = [&](const char* what, Timing timing, bool higher, int digits) {
      LayoutColumn column{.title = fmt::format("{} {}", work.name, what)};
      column.timing = timing;
      column.n_prompt = work.n_prompt;
      column.n_gen = work.n_gen;
      column.batch = 2;
      column.higher_is_better = higher;
      column.scale = 1;
      column.digits = digits;
      out.columns.push_back(column);
    };
    add("TTFT s", Timing::ttft, false, 3);
    add("E2E s", Timing::end_to_end, false, 3);
    add("out tok/s", Timing::output, true, 1);
    add("decode tok/s", Timing::decode, true, 1);
  }
  out.published = published_orthros_table4();
  return out;
}

Layout orthros7() {
  Layout out{.name = "orthros-table7", .title = "Ablation of the scale offset by size", .source = kOrthros};
  out.notes = {"six tasks: its mean is not that of orthros-table1, which has seven"};
  for (const LayoutColumn& column : commonsense()) {
    if (column.title != "SIQA") out.columns.push_back(column);
  }
  out.columns.push_back(mean("Avg(6)"));
  out.published = published_orthros_table7();
  return out;
}

Layout hybrid12() {
  Layout out{.name = "hybrid-table12", .title = "LongBench, 21 tasks", .source = kHybrid};
  out.notes = {"the mean is over tasks, not over groups"};
  for (const char* task : {"narrativeqa",
                           "qasper",
                           "multifieldqa_en",
                           "multifieldqa_zh",
                           "hotpotqa",
                           "2wikimqa",
                           "musique",
                           "dureader",
                           "gov_report",
                           "qmsum",
                           "multi_news",
                           "vcsum",
                           "trec",
                           "triviaqa",
                           "samsum",
                           "lsht",
                           "passage_count",
                           "passage_retrieval_en",
                           "passage_retrieval_zh",
                           "lcc",
                           "repobench-p"})
    out.columns.push_back(score(task, {std::string("longbench_") + task}));
  out.columns.push_back(mean("Avg(21)"));
  out.published = published_hybrid_table12();
  return out;
}

Layout hybrid13() {
  Layout out{.name = "hybrid-table13", .title = "Nineteen short tasks", .source = kHybrid};
  out.notes = {"WiC at exactly 50.00 for six models is one constant answer: chance level"};
  struct Column {
    const char *title, *task;
  };
  for (const Column& c : {Column{"MMLU", "mmlu"},
                          {"C-Eval", "ceval"},
                          {"CMMLU", "cmmlu"},
                          {"HellaSwag", "hellaswag"},
                          {"PIQA", "piqa"},
                          {"ARC-E", "arc_easy"},
                          {"ARC-C", "arc_challenge"},
                          {"WinoGrande", "winogrande"},
                          {"OBQA", "openbookqa"},
                          {"CSQA", "commonsense_qa"},
                          {"SIQA", "social_iqa"},
                          {"StoryCloze", "storycloze"},
                          {"RACE-m", "race_middle"},
                          {"RACE-h", "race_high"},
                          {"COPA", "copa"},
                          {"RTE", "rte"},
                          {"CB", "cb"},
                          {"WiC", "wic"},
                          {"MultiRC", "multirc"}})
    out.columns.push_back(score(c.title, {std::string("ocp_") + c.task}));
  out.columns.push_back(mean("Avg(19)"));
  out.published = published_hybrid_table13();
  return out;
}

Layout sparse4() {
  Layout out{.name = "sparse-table4", .title = "Decode speed-up, batch 4", .source = kSparse};
  out.notes = {"a ratio is to the first row at the same length; a blank was not measured"};
  for (const auto& [name, depth] : {std::pair{"16k", 16384}, {"64k", 65536}, {"256k", 262144}}) {
    for (const bool ratio : {true, false}) {
      LayoutColumn column{.title = fmt::format("{} {}", name, ratio ? "×" : "tok/s")};
      column.timing = ratio ? Timing::speedup : Timing::decode;
      column.batch = 4;
      column.depth = depth;
      column.scale = 1;
      column.digits = ratio ? 2 : 1;
      out.columns.push_back(column);
    }
  }
  out.published = published_sparse_table4();
  return out;
}

Layout sparse6() {
  Layout out{.name = "sparse-table6", .title = "Window and budget of each full-attention layer", .source = kSparse};
  out.notes = {"window/budget in tokens; full: the layer keeps full attention"};
  out.layers = true;
  return out;
}

// Printed digits of a mean column.
double unit_of(const LayoutColumn& column) {
  return std::pow(10.0, -column.digits);
}

}  // namespace

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {orthros1(), orthros2(), orthros3(), orthros4(), orthros7(),
                                          hybrid12(), hybrid13(), sparse4(),  sparse6()};
  return all;
}

const Layout& find_layout(std::string_view name) {
  std::string known;
  for (const Layout& layout : layouts()) {
    if (layout.name == name) return layout;
    known += (known.empty() ? "" : ", ") + layout.name;
  }
  throw Error(ErrorCode::usage, ErrorSubject::general,
              fmt::format("there is no layout \"{}\"", printable(name.substr(0, 60))), {.next = "known: " + known});
}

std::vector<std::string> check_published(const Layout& layout) {
  std::vector<std::string> out;
  for (const PublishedRow& row : layout.published) {
    double sum = 0;
    int n = 0;
    for (size_t i = 0; i < layout.columns.size() && i < row.values.size(); ++i) {
      if (!layout.columns[i].mean) {
        if (!row.values[i]) continue;
        sum += *row.values[i];
        ++n;
        continue;
      }
      if (!row.values[i] || n == 0) continue;
      const double unit = unit_of(layout.columns[i]), computed = sum / n;
      if (std::abs(computed - *row.values[i]) <= 0.5 * unit + 0.1 * unit) continue;
      out.push_back(fmt::format("{} {}: printed {:.{}f}, the columns give {:.{}f}", row.group, row.model,
                                *row.values[i], layout.columns[i].digits, computed, layout.columns[i].digits + 1));
    }
  }
  return out;
}

}  // namespace hayfork::runs
