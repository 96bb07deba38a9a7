// Requests for tests of the scheduler, their answers by brute force from a HashModel's arrays, and runs of the
// scheduler over them, as texts that are equal only where every bit is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/scheduler.h"
#include "tests/support/hash_model.h"

namespace hayfork::test {

std::vector<int32_t> random_ids(Rng& rng, size_t n, int32_t vocab);
// Requests whose contexts often share beginnings, with duplicates among them.
std::vector<engine::Request> random_requests(Rng& rng, size_t n, int32_t vocab, size_t longest = 150);

// One of each kind of stack.
std::vector<HashModel::Options> hash_models();

std::string describe(const decltype(engine::Answer::result)& result);
// By brute force.
decltype(engine::Answer::result) expected(const HashModel& model, const engine::Request& request);
std::vector<std::string> all_expected(const HashModel& model, const std::vector<engine::Request>& requests);

// Passes waited for one by one, or queued two at a time.
std::unique_ptr<engine::Context> scheduler_context(bool queued);

struct Ran {
  std::vector<std::string> answers;  // "" where none came
  std::vector<engine::Effort> efforts;
  engine::EngineStats stats;
};
// All answers; nothing is held in the cache afterwards.
Ran run_scheduler(HashModel& model, const std::vector<engine::Request>& requests,
                  const engine::SchedulerOptions& options = {}, bool queued = false);

}  // namespace hayfork::test
