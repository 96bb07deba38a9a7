// What passes and caches may take of the memory there is.
#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "tests/support/hash_model.h"
#include "tests/support/queue_context.h"
#include "tests/support/scheduler_cases.h"

namespace hayfork::engine {
namespace {

class Measured : public test::QueueContext {
 public:
  explicit Measured(size_t free) : free_(free) {}
  size_t free_bytes() const override { return free_; }

 private:
  size_t free_;
};

// A list of requests behind another finds most of the memory in the cache that the first one left. Its passes must not
// become smaller for that.
TEST(MemoryPlan, ACacheThatIsThereCountsAsFree) {
  const test::HashModel model(test::hash_models().front());
  const auto scratch = static_cast<size_t>(plan_passes(model, Measured(size_t{1} << 30), {}).scratch_bytes);
  const size_t all = 5 * scratch;
  const MemoryPlan first = plan_passes(model, Measured(all), {});
  const int64_t cache = first.cache_budget_bytes;
  ASSERT_GT(cache, 0);
  const Measured rest(all - static_cast<size_t>(cache));
  const MemoryPlan second = plan_passes(model, rest, {}, cache);
  EXPECT_EQ(second.chunk, first.chunk);
  EXPECT_EQ(second.cache_budget_bytes, cache);
  EXPECT_EQ(second.scratch_bytes, first.scratch_bytes);
  EXPECT_LT(plan_passes(model, rest, {}).chunk, first.chunk);
}

// Memory that the user states is all there is, whatever is free.
TEST(MemoryPlan, AStatedLimitIsKept) {
  const test::HashModel model(test::hash_models().front());
  const MemoryLimits limits{.bytes = 4 << 20};
  const MemoryPlan plan = plan_passes(model, Measured(size_t{64} << 20), limits, 32 << 20);
  EXPECT_LE(plan.cache_budget_bytes + plan.scratch_bytes, limits.bytes);
}

}  // namespace
}  // namespace hayfork::engine
