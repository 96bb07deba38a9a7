#include "engine/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/models/family.h"

namespace hayfork::engine {
namespace {

using Kind = RopeSpec::Kind;

void expect_near(float value, double want) {
  EXPECT_NEAR(value / want, 1.0, 5e-7) << "want " << want;
}

// The golden values were computed by the formulas of transformers' modeling_rope_utils in double precision.
TEST(Rope, Llama3KeepsBlendsAndDivides) {
  const RopeSpec spec{.kind = Kind::llama3,
                      .head_dim = 128,
                      .rotary_dim = 128,
                      .base = 5e5,
                      .factor = 8,
                      .max_positions = 131072,
                      .original_positions = 8192,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4};
  const auto f = make_rope_table(spec, 0).inv_freq;
  expect_near(f[28], 3.211445995e-3);
  expect_near(f[29], 2.166570764e-3);
  EXPECT_NEAR(f[32] / 5.248461610e-4, 1, 1e-5);  // blended of two terms in float32
  expect_near(f[35], 9.556212354e-5);
  expect_near(f[63], 3.068925989e-7);
}

TEST(Rope, YarnOfGptOssIsNotTruncated) {
  const RopeSpec spec{.kind = Kind::yarn,
                      .head_dim = 64,
                      .rotary_dim = 64,
                      .base = 150000,
                      .factor = 32,
                      .max_positions = 131072,
                      .original_positions = 4096,
                      .truncate = false};
  const auto f = make_rope_table(spec, 0).inv_freq;
  EXPECT_NEAR(f[7] / 7.374456821e-2, 1, 1e-6);
  EXPECT_NEAR(f[8] / 5.081327482e-2, 1, 1e-6);
  EXPECT_NEAR(f[9] / 3.170569618e-2, 1, 2e-6);
  EXPECT_NEAR(f[10] / 1.933500113e-2, 1, 2e-6);
  EXPECT_NEAR(f[12] / 6.794959490e-3, 1, 2e-6);
  EXPECT_NEAR(f[16] / 4.564839192e-4, 1, 2e-5);  // 1 − ramp is small there: float32 cancels
  EXPECT_NEAR(f[18] / 3.830881237e-5, 1, 1e-6);
  EXPECT_NEAR(f[31] / 3.023511428e-7, 1, 1e-6);
  EXPECT_NEAR(yarn_scale(32, 1), 1.346573590, 1e-8);
}

TEST(Rope, YarnOfQwen3IsTruncated) {
  const RopeSpec spec{.kind = Kind::yarn,
                      .head_dim = 128,
                      .rotary_dim = 128,
                      .base = 1e6,
                      .factor = 4,
                      .max_positions = 131072,
                      .original_positions = 32768};
  const auto f = make_rope_table(spec, 0).inv_freq;
  expect_near(f[40], 4.445698525e-5);
  expect_near(f[63], 3.102344402e-7);
  EXPECT_NEAR(yarn_scale(4, 1), 1.138629436, 1e-8);
  EXPECT_EQ(yarn_scale(0.5, 1), 1.0);
}

TEST(Rope, ProportionalRotatesSomePairsOfTheWholeHead) {
  const RopeSpec spec{
      .kind = Kind::proportional, .head_dim = 512, .rotary_dim = 512, .base = 1e6, .partial_factor = 0.25};
  const auto f = make_rope_table(spec, 0).inv_freq;
  ASSERT_EQ(f.size(), 256u);
  expect_near(f[1], 0.9474635257);
  expect_near(f[63], 3.337624694e-2);
  EXPECT_EQ(f[64], 0);
}

TEST(Rope, LinearDivides) {
  RopeSpec spec{.head_dim = 16, .rotary_dim = 16, .base = 1e4};
  const auto plain = make_rope_table(spec, 0).inv_freq;
  spec.kind = Kind::linear;
  spec.factor = 4;
  const auto scaled = make_rope_table(spec, 0).inv_freq;
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 4);
}

TEST(Rope, DynamicAndLongropeFollowThePlannedLength) {
  RopeSpec spec{.kind = Kind::dynamic,
                .head_dim = 16,
                .rotary_dim = 16,
                .base = 1e4,
                .factor = 4,
                .max_positions = 64,
                .original_positions = 64};
  EXPECT_EQ(make_rope_table(spec, 10).inv_freq, make_rope_table(spec, 64).inv_freq);
  // base' = 1e4 · (4·128/64 − 3)^(16/14)
  expect_near(make_rope_table(spec, 128).inv_freq[7], 1.0 / std::pow(1e4 * std::pow(5.0, 16.0 / 14), 14.0 / 16));
  spec.kind = Kind::longrope;
  spec.short_factors = std::vector<double>(8, 2.0);
  spec.long_factors = std::vector<double>(8, 3.0);
  expect_near(make_rope_table(spec, 64).inv_freq[0], 0.5);
  expect_near(make_rope_table(spec, 65).inv_freq[0], 1.0 / 3);
}

// transformers' rule: a factor that the scaling states wins over the ratio of the lengths.
TEST(Rope, LongropeScalesAttentionByItsFactor) {
  const auto scale = [](const std::string& factor) {
    const std::string text = R"({"rope_parameters":{"rope_type":"longrope","rope_theta":1e4,"short_factor":[1,1],)"
                             R"("long_factor":[2,2],"original_max_position_embeddings":64)" +
                             factor + "}}";
    return read_rope(Config::parse(text, "config.json"), "full_attention", 4, 256, {}).attention_factor;
  };
  EXPECT_FLOAT_EQ(scale(""), std::sqrt(1.0F + std::log(4.0F) / std::log(64.0F)));
  EXPECT_FLOAT_EQ(scale(R"(,"factor":8)"), std::sqrt(1.0F + std::log(8.0F) / std::log(64.0F)));
  EXPECT_EQ(scale(R"(,"factor":0.5)"), 1.0F);
  EXPECT_EQ(scale(R"(,"factor":8,"attention_factor":1.5)"), 1.5F);
}

}  // namespace
}  // namespace hayfork::engine
