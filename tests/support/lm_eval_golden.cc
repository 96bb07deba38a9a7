#include "tests/support/lm_eval_golden.h"

#include "base/file_map.h"
#include "datasets/import.h"

namespace hayfork::test {
namespace {

using Files = std::vector<LmEvalCase::SplitFile>;

Files arc(const std::string& kind, bool with_pool) {
  Files out = {{"arc_" + kind, "test", "arc/olmes_arc_" + kind + "_test_rc_5shot.requests.jsonl.gz"}};
  if (with_pool) out.push_back({"arc_" + kind, "train", "arc/olmes_arc_" + kind + "_val_rc_0shot.requests.jsonl.gz"});
  return out;
}

// Validation documents, which stand in for the training split too.
Files both(const std::string& set, const std::string& path) {
  return {{set, "validation", path}, {set, "train", path}};
}

Files mmlu(const std::string& subject) {
  return {{"mmlu_" + subject, "test", "mmlu/test/" + subject + "_test.csv"},
          {"mmlu_" + subject, "dev", "mmlu/dev/" + subject + "_dev.csv"}};
}

}  // namespace

const std::vector<LmEvalCase>& lm_eval_cases() {
  static const std::string kCsqa = "commonsense_qa/olmes_csqa_val_rc_5shot.requests.jsonl.gz",
                           kWinogrande = "winogrande/olmes_winogrande_val_rc_5shot.requests.jsonl.gz";
  static const std::vector<LmEvalCase> kCases = {
      {"arc_easy", "arc_easy", 0, false, arc("easy", false)},
      {"arc_easy_5shot", "arc_easy", 5, false, arc("easy", true)},
      {"arc_easy_2shot_chat", "arc_easy", 2, true, arc("easy", true)},
      {"arc_challenge", "arc_challenge", 0, false, arc("challenge", false)},
      {"openbookqa",
       "openbookqa",
       0,
       false,
       {{"openbookqa", "test", "openbookqa/olmes_openbookqa_test_rc_5shot.requests.jsonl.gz"}}},
      {"piqa", "piqa", 0, false, {{"piqa", "validation", "piqa/olmes_piqa_val_rc_5shot.requests.jsonl.gz"}}},
      {"social_iqa",
       "social_iqa",
       0,
       false,
       {{"social_iqa", "validation", "siqa/olmes_socialiqa_val_rc_5shot.requests.jsonl.gz"}}},
      {"winogrande", "winogrande", 0, false, both("winogrande", kWinogrande)},
      {"winogrande_5shot", "winogrande", 5, false, both("winogrande", kWinogrande)},
      {"commonsense_qa", "commonsense_qa", 0, false, {{"commonsense_qa", "validation", kCsqa}}},
      {"hellaswag",
       "hellaswag",
       0,
       false,
       {{"hellaswag", "validation", "hellaswag/olmes_hellaswag_val1000_rc_5shot.requests.jsonl.gz"}}},
      {"copa", "copa", 0, false, both("copa", "super_glue/COPA/val.jsonl")},
      {"copa_5shot", "copa", 5, false, both("copa", "super_glue/COPA/val.jsonl")},
      {"cb", "cb", 0, false, both("cb", "super_glue/CB/val.jsonl")},
      {"sglue_rte", "sglue_rte", 0, false, both("sglue_rte", "super_glue/RTE/val.jsonl")},
      {"wic", "wic", 0, false, both("wic", "super_glue/WiC/val.jsonl")},
      {"multirc", "multirc", 0, false, both("multirc", "super_glue/MultiRC/val.jsonl")},
      {"race", "race", 0, false, {{"race", "test", "race/test/high"}}},
      {"mmlu_abstract_algebra", "mmlu_abstract_algebra", 0, false, mmlu("abstract_algebra")},
      {"mmlu_abstract_algebra_5shot", "mmlu_abstract_algebra", 5, false, mmlu("abstract_algebra")},
      {"mmlu_high_school_psychology", "mmlu_high_school_psychology", 0, false, mmlu("high_school_psychology")},
      {"mmlu_high_school_psychology_5shot", "mmlu_high_school_psychology", 5, false, mmlu("high_school_psychology")},
      {"mmlu_high_school_psychology_2shot_chat", "mmlu_high_school_psychology", 2, true,
       mmlu("high_school_psychology")},
      {"mmlu_high_school_geography_continuation", "mmlu_high_school_geography_continuation", 0, false,
       mmlu("high_school_geography")},
      {"ceval-valid_computer_network",
       "ceval-valid_computer_network",
       0,
       false,
       {{"ceval-valid_computer_network", "val", "ceval/val/computer_network_val.csv"}}},
      {"cmmlu_agronomy", "cmmlu_agronomy", 0, false, {{"cmmlu_agronomy", "test", "cmmlu/test/agronomy.csv"}}},
  };
  return kCases;
}

tasks::TaskOptions add_lm_eval_rolling(const nlohmann::json& golden, const std::filesystem::path& folder) {
  std::string rows;
  for (const auto& document : golden["documents"]) rows += nlohmann::json{{"page", document["page"]}}.dump() + "\n";
  std::filesystem::create_directories(folder / "wikitext");
  write_file_atomically(folder / "wikitext" / "test.jsonl", rows);
  tasks::TaskOptions options;
  options.data_dir = folder;
  options.extra = {{"window", std::to_string(golden["max_length"].get<int>())}};
  return options;
}

void add_lm_eval_data(const LmEvalCase& golden, const std::filesystem::path& mc, const std::filesystem::path& folder) {
  for (const LmEvalCase::SplitFile& file : golden.data) {
    const std::filesystem::path to = folder / file.set / (file.split + ".jsonl");
    if (std::filesystem::exists(to)) continue;
    std::filesystem::create_directories(to.parent_path());
    std::string text;
    for (const std::string& line : datasets::import_rows(file.set, mc / file.path, {}).lines) text += line + "\n";
    write_file_atomically(to, text);
  }
}

}  // namespace hayfork::test
