// The everyday real model of the tests, a 135M-parameter checkpoint that scripts make elsewhere: found through
// HAYFORK_SMOLLM2 (its folder), with golden values under HAYFORK_TEST_DATA.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "engine/engine.h"

namespace hayfork::test {

std::optional<std::filesystem::path> smollm2_folder();
std::vector<nlohmann::json> read_jsonl_xz(const std::filesystem::path& path);
// The score requests of the documents of one lm_eval golden file, and the sums and flags expected, in the same order.
struct LmEvalTask {
  std::vector<engine::Request> requests;
  std::vector<std::vector<double>> loglikelihoods;
  std::vector<std::vector<bool>> is_greedy;
};
LmEvalTask read_lm_eval(const std::filesystem::path& path);
// Largest |Δ loglikelihood| and number of flags that differ.
struct LmEvalDifference {
  double largest = 0;
  int n_flags = 0, n_scores = 0;
};
LmEvalDifference compare_lm_eval(engine::Engine& engine, const LmEvalTask& task);

}  // namespace hayfork::test

#define HAY_NEED_SMOLLM2(variable)                                                                       \
  const auto variable##_found = ::hayfork::test::smollm2_folder();                                       \
  if (!variable##_found) GTEST_SKIP() << "needs the folder of SmolLM2-135M-Instruct in HAYFORK_SMOLLM2"; \
  const std::filesystem::path& variable = *variable##_found
