// Runs made up for tests of what people do with results: one task with given scores, as the program would have stored
// it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runs/store.h"

namespace hayfork::test {

struct MadeTask {
  std::string name = "arc_easy", kind = "choice", family = "commonsense", protocol = "lm-eval/arc_easy/1.0";
  std::string version = "1", metric = "acc", config_json = "{}";
  bool higher_is_better = true;
  int64_t num_fewshot = 0;
  bool chat = false;
  std::vector<double> scores;              // sample i; NaN: a failed sample
  std::vector<std::string> clusters;       // empty, or one a sample
  std::vector<int64_t> lengths;            // empty, or one a sample
  std::string prompt = "prompt";           // part of every prompt
  std::string answer = "a", target = "t";  // of every sample
  int64_t first_document = 0;
  runs::OptText seeds_json = {};
};

struct MadeRun {
  std::string model = "model", tokenizer = "tokenizer", status = "done", origin = "hayfork";
  std::vector<std::string> tags = {};
  std::vector<MadeTask> tasks;
  runs::OptText config_json = {};
};

// `better` of n samples score 1, the rest 0.
std::vector<double> ones(int64_t n_right, int64_t n);
// Adds the run; returns its short id.
std::string make_run(runs::Store& store, const MadeRun& run);
runs::Store open_new(const std::filesystem::path& file);
// Adds runs to a database; their short ids in order.
std::vector<std::string> make_runs(const std::filesystem::path& file, const std::vector<MadeRun>& made);

}  // namespace hayfork::test
