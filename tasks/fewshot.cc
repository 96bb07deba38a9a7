#include "tasks/fewshot.h"

#include <numeric>

#include "base/error.h"
#include "datasets/ruler/python_random.h"

namespace hayfork::tasks {
namespace {

[[noreturn]] void too_small(int64_t n_pool, int64_t wanted) {
  throw Error(ErrorCode::usage, ErrorSubject::general, "too few examples to choose from",
              {"", "want " + std::to_string(wanted) + ", the pool has " + std::to_string(n_pool),
               "lower --num-fewshot, or add a larger split"});
}

std::vector<int64_t> draw(datasets::PythonRandom& random, const std::vector<int64_t>& pool, int64_t n) {
  if (n > static_cast<int64_t>(pool.size())) too_small(static_cast<int64_t>(pool.size()), n);
  std::vector<int64_t> out;
  for (const size_t i : random.sample(pool.size(), static_cast<size_t>(n))) out.push_back(pool[i]);
  return out;
}

std::vector<int64_t> without(const std::vector<int64_t>& rows, const std::vector<std::string>& digests,
                             const std::string& unwanted) {
  std::vector<int64_t> out;
  for (const int64_t row : rows)
    if (digests[static_cast<size_t>(row)] != unwanted) out.push_back(row);
  return out;
}

}  // namespace

std::vector<std::vector<int64_t>> draw_fewshot(const FewshotPlan& plan) {
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(plan.n_documents));
  if (plan.n_shots == 0) return out;
  std::vector<int64_t> pool(static_cast<size_t>(plan.n_pool));
  std::iota(pool.begin(), pool.end(), int64_t{0});
  if (plan.first_n) {
    if (plan.n_shots > plan.n_pool) too_small(plan.n_pool, plan.n_shots);
    pool.resize(static_cast<size_t>(plan.n_shots));
    for (auto& shots : out) shots = pool;
    return out;
  }
  std::vector<std::string> digests;
  if (plan.exclude)
    for (const int64_t row : pool) digests.push_back(plan.pool_digest(row));
  datasets::PythonRandom random(plan.seed);
  for (int64_t k = 0; k < plan.n_documents; ++k) {
    std::vector<int64_t> shots = draw(random, pool, plan.n_shots + (plan.exclude ? 1 : 0));
    if (plan.exclude) {
      const std::string own = plan.document_digest(k);
      shots = without(shots, digests, own);
      if (static_cast<int64_t>(shots.size()) < plan.n_shots)
        shots = draw(random, without(pool, digests, own), plan.n_shots);
      shots.resize(static_cast<size_t>(plan.n_shots));
    }
    out[static_cast<size_t>(k)] = std::move(shots);
  }
  return out;
}

}  // namespace hayfork::tasks
