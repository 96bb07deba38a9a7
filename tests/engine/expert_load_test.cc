// The rows that experts are given are counted, and floors count no expert that no row can have chosen.
#include <numeric>

#include <gtest/gtest.h>

#include "engine/floor.h"
#include "tests/support/golden_model.h"
#include "tests/support/paths.h"

namespace hayfork::engine {
namespace {

TEST(ExpertLoad, CountsTheRowsOfEachExpert) {
  test::GoldenModel golden(test::source_dir() / "tests/golden/models/qwen3_moe", DType::f32);
  const auto loads = [&] { return golden.model().expert_load(golden.context()); };
  ASSERT_EQ(loads().size(), 2u);  // layer 1 is dense
  EXPECT_EQ(loads()[0].layer, 0);
  EXPECT_EQ(loads()[1].layer, 2);
  for (const int32_t chunk : {0, 3}) {
    const auto before = loads();
    golden.logits({7, 8, 9, 10, 11, 12, 13}, chunk);
    const auto after = loads();
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(after[i].rows.size(), 4u);
      EXPECT_EQ(after[i].per_token, 2);
      EXPECT_EQ(after[i].params, 3 * 64 * 24);
      const auto total = [](const ExpertLoad& load) {
        return std::accumulate(load.rows.begin(), load.rows.end(), int64_t{0});
      };
      EXPECT_EQ(total(after[i]) - total(before[i]), 2 * 7);
    }
  }
}

TEST(ExpertLoad, ADenseModelHasNone) {
  test::GoldenModel golden(test::source_dir() / "tests/golden/models/mistral", DType::f32);
  EXPECT_TRUE(golden.model().expert_load(golden.context()).empty());
}

TEST(ExpertLoad, FloorsCountTheExpertsThatRowsCanChoose) {
  test::GoldenModel golden(test::source_dir() / "tests/golden/models/qwen3_moe", DType::f32);
  ModelInfo info = golden.model().info();
  info.dtype = "f32";
  const auto experts = golden.model().expert_load(golden.context());
  const FloorWork all = decode_work(info, 0, 1, 1), chosen = decode_work(info, 0, 1, 1, experts);
  const double idle = 2 * 2 * 3 * 64 * 24;  // two layers, two of four experts
  EXPECT_NEAR(all.flops - chosen.flops, 2 * idle, 1);
  double read = 0;  // as they are resident: packed rows may be padded
  for (const ExpertLoad& layer : experts) {
    EXPECT_GE(layer.bytes, 4 * layer.params);
    read += 2 * static_cast<double>(layer.bytes);
  }
  EXPECT_NEAR(all.bytes - chosen.bytes, 8 * idle - read, 1);
  const FloorWork many = decode_work(info, 0, 1, 1000, experts);  // every expert is read, once
  const FloorWork dense = decode_work(info, 0, 1, 1000);
  EXPECT_NEAR(many.bytes - dense.bytes, 2 * read - 8 * idle, 1);
}

}  // namespace
}  // namespace hayfork::engine
