#include <numeric>

#include "engine/kernels/ops.h"
#include "engine/kernels/simd/simd.h"
#include "tests/engine/op_support.h"

namespace hayfork::engine {
namespace {

using test::Guarded;

TEST(Add, ScalesTheSecond) {
  const auto context = make_cpu_context(DType::f32);
  Rng rng(1);
  for (const int64_t rows : {0, 1, 3, 129}) {
    Guarded x(rows, 37), y(rows, 37);
    x.fill(rng);
    y.fill(rng);
    Guarded before = x;
    add(*context, x.matrix(), y.matrix(), 0.5F);
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t c = 0; c < 37; ++c) ASSERT_EQ(x.at(m, c), before.at(m, c) + 0.5F * y.at(m, c));
    }
    EXPECT_TRUE(x.intact());
  }
}

TEST(ActMul, KnownValues) {
  const auto context = make_cpu_context(DType::f32);
  Guarded gate(1, 2), up(1, 2), y(1, 2);
  gate.at(0, 0) = 1;
  gate.at(0, 1) = -0.5F;
  up.at(0, 0) = up.at(0, 1) = 1;
  act_mul(*context, y.matrix(), gate.matrix(), up.matrix(), Activation::gelu_tanh);
  EXPECT_NEAR(y.at(0, 0), 0.841191991F, 1e-7F);
  EXPECT_NEAR(y.at(0, 1), -0.154285990F, 1e-7F);
  act_mul(*context, gate.matrix(), gate.matrix(), up.matrix(), Activation::silu);
  EXPECT_NEAR(gate.at(0, 0), 0.731058579F, 1e-7F);
}

TEST(ActMul, EqualsTheFormulaFarFromZeroToo) {
  const auto context = make_cpu_context(DType::f32);
  Rng rng(2);
  for (const float scale : {0.01F, 1.0F, 20.0F, 500.0F}) {
    for (const Activation act : {Activation::silu, Activation::gelu_tanh}) {
      Guarded gate(3, 33), up(3, 33), y(3, 33);
      gate.fill(rng, scale);
      up.fill(rng);
      act_mul(*context, y.matrix(), gate.matrix(), up.matrix(), act);
      for (int64_t m = 0; m < 3; ++m) {
        for (int64_t c = 0; c < 33; ++c) {
          const double g = gate.at(m, c), u = up.at(m, c);
          const double a = act == Activation::silu
                               ? g / (1 + std::exp(-g))
                               : 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
          // The tanh form itself loses digits for large negative g: hence the absolute part.
          ASSERT_NEAR(static_cast<double>(y.at(m, c)), a * u, 2e-6 * std::abs(a * u) + 1e-9) << g;
        }
      }
      EXPECT_TRUE(y.intact());
    }
  }
}

TEST(Affine, ScalesAndShiftsColumns) {
  const auto context = make_cpu_context(DType::f32);
  Guarded q(2, 2);
  q.at(0, 0) = 1, q.at(0, 1) = 2, q.at(1, 0) = 3, q.at(1, 1) = 4;
  const float scale[] = {10, 100}, offset[] = {1, 2};
  affine(*context, q.matrix(), {scale, 2}, {offset, 2});
  EXPECT_EQ(q.row(0), (std::vector<float>{11, 202}));
  EXPECT_EQ(q.row(1), (std::vector<float>{31, 402}));
}

TEST(GatherWanted, PutsRowsIntoTheirSlots) {
  const auto context = make_cpu_context(DType::f32);
  Rng rng(3);
  Guarded x(3, 5), out(2, 5);
  x.fill(rng);
  const Row rows[] = {{0, 0, 0, Stream::base, RowKind::prefill, 1},
                      {0, 1, 0, Stream::base, RowKind::prefill, -1},
                      {0, 2, 0, Stream::base, RowKind::prefill, 0}};
  gather_wanted(*context, out.matrix(), x.matrix(), rows);
  EXPECT_EQ(out.row(1), x.row(0));
  EXPECT_EQ(out.row(0), x.row(2));
  EXPECT_TRUE(out.intact());
}

TEST(MarkNonfinite, NamesTheFirstLayerOfEveryKind) {
  const auto context = make_cpu_context(DType::f32);
  Rng rng(4);
  Guarded x(5, 37);
  x.fill(rng, 1e38F);
  const Matrix marks = context->matrix(5, 1, DType::i32);
  mark_nonfinite(*context, marks, x.matrix(), 0);
  EXPECT_TRUE(read_marks(*context, marks).empty());
  x.at(1, 36) = NAN;
  x.at(3, 0) = INFINITY;
  x.at(4, 20) = -INFINITY;
  mark_nonfinite(*context, marks, x.matrix(), 2);
  x.at(0, 0) = NAN;
  mark_nonfinite(*context, marks, x.matrix(), 3);
  EXPECT_EQ(read_marks(*context, marks), (std::vector<int32_t>{3, 2, -1, 2, 2}));
}

// exp and tanh are our own: a few ulp from the C library's, at the ends and around zero, on every instruction set.
TEST(Simd, ExponentialsOfEveryInstructionSetAreAccurate) {
  int n = 0;
  const cpu::Simd* const* tables = cpu::simd_all(&n);
  for (int t = 0; t < n; ++t) {
    for (float x = -30; x < 30; x += 0.0137F) {
      float capped = x;
      tables[t]->softcap(&capped, 5.0F, 1);
      ASSERT_NEAR(static_cast<double>(capped), 5 * std::tanh(static_cast<double>(x) / 5), 1.5e-6) << tables[t]->name;
      float tiny = x * 1e-3F;
      tables[t]->softcap(&tiny, 5.0F, 1);
      ASSERT_NEAR(static_cast<double>(tiny) / (5 * std::tanh(static_cast<double>(x * 1e-3F) / 5)), 1, 1e-6);
      const float one = 1;
      float y;
      tables[t]->silu_mul(&x, &one, &y, 1);
      ASSERT_NEAR(static_cast<double>(y) / (static_cast<double>(x) / (1 + std::exp(-static_cast<double>(x)))), 1, 1e-6);
    }
    float s[64] = {}, sums[16] = {}, o[3] = {5, 5, 5}, max = -INFINITY;
    const int32_t begin = 3, end = 7;
    tables[t]->softmax({1, s, &begin, &end, 1.0F, 0.0F, &max, sums, o, 3, 3, nullptr});
    EXPECT_EQ(std::accumulate(sums, sums + 16, 0.0F), 4.0F);
    EXPECT_EQ(max, 0.0F);
    EXPECT_EQ(o[2], 0.0F);
    for (int j = 0; j < 64; ++j) EXPECT_EQ(s[j], j >= 3 && j < 7 ? 1.0F : 0.0F);
  }
}

TEST(Simd, RoundsToBf16LikeTheScalarConversion) {
  int n = 0;
  const cpu::Simd* const* tables = cpu::simd_all(&n);
  Rng rng(6);
  auto x = test::random_floats(rng, 1000, 100);
  x[3] = 1.0F + 0x1p-8F, x[4] = 1.0F + 3 * 0x1p-8F, x[5] = INFINITY, x[6] = -0.0F;
  for (int t = 0; t < n; ++t) {
    std::vector<bf16> y(x.size());
    tables[t]->to_bf16(x.data(), y.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, to_bf16(x[i]).bits) << tables[t]->name << " " << i;
  }
}

}  // namespace
}  // namespace hayfork::engine
