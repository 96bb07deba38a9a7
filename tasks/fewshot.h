// Which rows of the pool a document's demonstrations are (lm_eval/api/samplers.py). All draws come from one generator
// in the order of the documents, so document k's depend on those before it: they are made for the whole split at once,
// and no limit, shard or resume changes them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hayfork::tasks {

struct FewshotPlan {
  int64_t n_pool = 0, n_documents = 0, n_shots = 0;
  uint64_t seed = 1234;
  bool first_n = false;
  bool exclude = false;  // draw one more, drop rows equal to the document's
  // With `exclude`: digests of rows; equal rows, equal digests.
  std::function<std::string(int64_t)> pool_digest = {}, document_digest = {};
};

// [document][shot] → row of the pool. Throws: usage when the pool is too small.
std::vector<std::vector<int64_t>> draw_fewshot(const FewshotPlan& plan);

}  // namespace hayfork::tasks
