// The golden files of lm-evaluation-harness and the data they were made from: one case a file, its data set put where
// tasks look for it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

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
// Writes <folder>/<set>/<split>.jsonl for the case; splits that are there already stay.
void add_lm_eval_data(const LmEvalCase& golden, const std::filesystem::path& mc, const std::filesystem::path& folder);

}  // namespace hayfork::test
