// The golden files of lm-evaluation-harness and the data they were made from: one case a file, its data set put where
// tasks look for it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tasks/tasks.h"

namespace hayfork::test {

struct LmEvalCase {
  std::string file, task;  // golden/lm_eval/<file>.jsonl.xz
  int shots = 0;
  bool chat = false;
  struct SplitFile {
    std::string set, split, path;  // path: under mc/
  };
  std::vector<SplitFile> data;
};

const std::vector<LmEvalCase>& lm_eval_cases();
// The documents of golden/lm_eval/rolling_wikitext.json.xz as <folder>/wikitext/test.jsonl; the settings that read
// them.
tasks::TaskOptions add_lm_eval_rolling(const nlohmann::json& golden, const std::filesystem::path& folder);
// Writes <folder>/<set>/<split>.jsonl for the case; splits that are there already stay.
void add_lm_eval_data(const LmEvalCase& golden, const std::filesystem::path& mc, const std::filesystem::path& folder);

}  // namespace hayfork::test
