// Every lm_eval golden file as score requests on the real model: minutes of CPU time.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/paths.h"
#include "tests/support/smollm2.h"

namespace hayfork::engine {
namespace {

TEST(LmEval, EveryLoglikelihoodOfEveryTask) {
  HAY_NEED_SMOLLM2(folder);
  HAY_NEED_DATA(tasks, "golden/lm_eval");
  EngineOptions options;
  options.device = "cpu";
  options.dtype = "f32";
  options.weights_digest = false;
  const auto engine = Engine::open(folder, options);
  int n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(tasks)) {
    if (!entry.path().string().ends_with(".jsonl.xz")) continue;
    ++n_files;
    const test::LmEvalDifference difference = test::compare_lm_eval(*engine, test::read_lm_eval(entry.path()));
    std::printf("  %-56s %4d scores, largest difference %.1e\n", entry.path().filename().c_str(), difference.n_scores,
                difference.largest);
    EXPECT_LE(difference.largest, 1e-3) << entry.path();
    EXPECT_LE(difference.n_flags, 0) << entry.path();
  }
  EXPECT_EQ(n_files, 26);
}

}  // namespace
}  // namespace hayfork::engine
