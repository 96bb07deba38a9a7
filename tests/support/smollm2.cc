#include "tests/support/smollm2.h"

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"

namespace hayfork::test {

std::optional<std::filesystem::path> smollm2_folder() {
  const char* folder = std::getenv("HAYFORK_SMOLLM2");
  if (folder == nullptr || !std::filesystem::exists(std::filesystem::path(folder) / "config.json")) return std::nullopt;
  return folder;
}

std::vector<nlohmann::json> read_jsonl_xz(const std::filesystem::path& path) {
  std::vector<nlohmann::json> rows;
  std::istringstream text(read_xz(path));
  for (std::string line; std::getline(text, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

LmEvalTask read_lm_eval(const std::filesystem::path& path) {
  LmEvalTask task;
  for (const nlohmann::json& row : read_jsonl_xz(path)) {
    const bool shared = row.contains("context_ids");
    engine::ScoreRequest score;
    if (shared) score.context = row["context_ids"].get<std::vector<int32_t>>();
    std::vector<double> sums;
    std::vector<bool> flags;
    for (const nlohmann::json& request : row["requests"]) {
      const auto ids = request["continuation_ids"].get<std::vector<int32_t>>();
      sums.push_back(request["loglikelihood"]);
      flags.push_back(request["is_greedy"]);
      score.continuations.push_back(ids);
      if (shared) continue;
      score.context = request["context_ids"].get<std::vector<int32_t>>();
      task.requests.emplace_back(score);
      task.loglikelihoods.push_back(std::exchange(sums, {}));
      task.is_greedy.push_back(std::exchange(flags, {}));
      score.continuations.clear();
    }
    if (!shared) continue;
    task.requests.emplace_back(score);
    task.loglikelihoods.push_back(sums);
    task.is_greedy.push_back(flags);
  }
  return task;
}

LmEvalDifference compare_lm_eval(engine::Engine& engine, const LmEvalTask& task) {
  LmEvalDifference difference;
  const auto compare = [&](const engine::Answer& answer) {
    const auto* score = std::get_if<engine::ScoreAnswer>(&answer.result);
    if (score == nullptr) throw std::runtime_error(std::get<engine::Failure>(answer.result).message);
    for (size_t c = 0; c < score->continuations.size(); ++c) {
      const engine::ContinuationScore& got = score->continuations[c];
      ++difference.n_scores;
      difference.largest =
          std::max(difference.largest, std::abs(got.logprob - task.loglikelihoods.at(answer.index).at(c)));
      if (got.is_greedy != task.is_greedy.at(answer.index).at(c)) ++difference.n_flags;
    }
  };
  engine.answer(task.requests, compare, StopFlag{});
  return difference;
}

}  // namespace hayfork::test
