// Upstream's RULER runs with Qwen3 at 8K, 32K and 128K.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/ruler_golden.h"

namespace hayfork::tasks {
namespace {

TEST(RulerQwen3Slow, EveryLongPromptEqualsUpstreams) {
  HAY_NEED_DATA(ruler, "ruler");
  HAY_NEED_DATA(archive, "tokenizers/qwen3.tar.xz");
  EXPECT_EQ(test::check_ruler_runs(ruler, archive, 8192, 131072), 195);
}

}  // namespace
}  // namespace hayfork::tasks
