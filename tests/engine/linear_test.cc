#include <numeric>

#include "engine/kernels/ops.h"
#include "engine/kernels/simd/simd.h"
#include "tests/engine/op_support.h"

namespace hayfork::engine {
namespace {

using test::Guarded;
using test::same_bits;

struct Case {
  int64_t m, n, k;
  bool bias;
};

std::unique_ptr<LinearWeight> weight_of(Context& context, const std::vector<float>& w, int64_t n, int64_t k,
                                        const std::vector<float>& bias = {}) {
  const LinearPart part{
      w.data(), DType::f32, n, {bias.empty() ? nullptr : bias.data(), static_cast<int64_t>(bias.size())}};
  return make_linear(context, {&part, 1}, k);
}

// |error| of a sum of k products in float32 is below k·2⁻²⁴·Σ|x·w|, and in practice far below.
void expect_close(Guarded& y, Guarded& x, const std::vector<float>& w, const std::vector<float>& bias, const Case& c,
                  bool bf16_inputs) {
  for (int64_t m = 0; m < c.m; ++m) {
    for (int64_t n = 0; n < c.n; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        const float a = bf16_inputs ? round_to_bf16(x.at(m, k)) : x.at(m, k);
        const double product = static_cast<double>(a) * static_cast<double>(w[static_cast<size_t>(n * c.k + k)]);
        sum += product;
        magnitude += std::abs(product);
      }
      if (c.bias) sum += static_cast<double>(bias[static_cast<size_t>(n)]);
      ASSERT_NEAR(static_cast<double>(y.at(m, n)), sum, 1e-6 * magnitude + 1e-6)
          << m << " " << n << " of " << c.m << "x" << c.n << "x" << c.k;
    }
  }
}

class Linear : public testing::TestWithParam<DType> {};

TEST_P(Linear, EqualsTheFormulaOnRaggedShapes) {
  const auto context = make_cpu_context(GetParam());
  Rng rng(1);
  for (const Case& c : {Case{1, 1, 1, true},
                        {1, 17, 5, false},
                        {3, 64, 31, true},
                        {7, 100, 64, true},
                        {129, 33, 577, false},
                        {50, 192, 96, true},
                        {2, 65, 4100, true}}) {
    const auto w = test::random_bf16s(rng, c.n * c.k), bias = test::random_floats(rng, c.n);
    const auto weight = weight_of(*context, w, c.n, c.k, c.bias ? bias : std::vector<float>{});
    EXPECT_EQ(weight->n, c.n);
    EXPECT_EQ(weight->k, c.k);
    Guarded x(c.m, c.k), y(c.m, c.n);
    x.fill(rng);
    linear(*context, y.matrix(), x.matrix(), *weight, RowKind::prefill);
    expect_close(y, x, w, bias, c, GetParam() == DType::bf16);
    EXPECT_TRUE(y.intact());
  }
}

TEST_P(Linear, NoRowsIsNothing) {
  const auto context = make_cpu_context(GetParam());
  const auto weight = weight_of(*context, std::vector<float>(6, 1), 2, 3);
  Guarded x(0, 3), y(0, 2);
  linear(*context, y.matrix(), x.matrix(), *weight, RowKind::prefill);
  EXPECT_TRUE(y.intact());
}

TEST_P(Linear, FusedPartsAreTheirRowsStacked) {
  const auto context = make_cpu_context(GetParam());
  Rng rng(2);
  const auto a = test::random_bf16s(rng, 40 * 24), b = test::random_bf16s(rng, 7 * 24),
             bias = test::random_floats(rng, 7);
  const LinearPart parts[] = {{a.data(), DType::f32, 40, {}}, {b.data(), DType::f32, 7, {bias.data(), 7}}};
  const auto fused = make_linear(*context, parts, 24), first = weight_of(*context, a, 40, 24),
             second = weight_of(*context, b, 7, 24, bias);
  Guarded x(3, 24), y(3, 47), ya(3, 40), yb(3, 7);
  x.fill(rng);
  linear(*context, y.matrix(), x.matrix(), *fused, RowKind::prefill);
  linear(*context, ya.matrix(), x.matrix(), *first, RowKind::prefill);
  linear(*context, yb.matrix(), x.matrix(), *second, RowKind::prefill);
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t n = 0; n < 47; ++n) EXPECT_EQ(y.at(m, n), n < 40 ? ya.at(m, n) : yb.at(m, n - 40));
  }
}

// The heart of "the batch changes nothing": every row alone, in every number of rows, with one thread and two.
TEST_P(Linear, ARowsBitsDoNotDependOnTheOtherRowsOrThreads) {
  const auto context = make_cpu_context(GetParam());
  Rng rng(3);
  constexpr int64_t kMost = 300;
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{70, 129}, {200, 576}, {96, 2050}, {31, 14}}) {
    const auto w = test::random_floats(rng, n * k);
    const auto weight = weight_of(*context, w, n, k, test::random_floats(rng, n));
    Guarded x(kMost, k), all(kMost, n), y(kMost, n);
    x.fill(rng);
    linear(*context, all.matrix(), x.matrix(), *weight, RowKind::prefill);
    for (int64_t m = 1; m <= kMost; m += m < 20 ? 1 : 17) {
      for (const int threads : {1, 2, 3}) {
        test::with_threads(threads, [&] {
          linear(*context, y.rows(0, m), x.rows(kMost - m, kMost), *weight,
                 m % 2 == 0 ? RowKind::prefill : RowKind::decode);
        });
        for (int64_t r = 0; r < m; ++r)
          ASSERT_TRUE(same_bits(y.row(r), all.row(kMost - m + r))) << m << " rows, " << threads;
      }
    }
  }
}

TEST_P(Linear, AnEmbeddingRowIsReadFromThePackedWeight) {
  const auto context = make_cpu_context(GetParam());
  Rng rng(4);
  const auto w = test::random_bf16s(rng, 70 * 13);
  const auto weight = weight_of(*context, w, 70, 13);
  const Row rows[] = {{69, 0, 0, Stream::base, RowKind::prefill, -1}, {0, 1, 0, Stream::base, RowKind::prefill, -1}};
  Guarded x(2, 13);
  embed(*context, x.matrix(), rows, *weight, 2.0F);
  for (int64_t c = 0; c < 13; ++c) {
    EXPECT_EQ(x.at(0, c), 2 * w[static_cast<size_t>(69 * 13 + c)]);
    EXPECT_EQ(x.at(1, c), 2 * w[static_cast<size_t>(c)]);
  }
  EXPECT_TRUE(x.intact());
}

INSTANTIATE_TEST_SUITE_P(Types, Linear, testing::Values(DType::f32, DType::bf16),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST(LinearWeight, TakesEveryCheckpointType) {
  const auto context = make_cpu_context(DType::f32);
  const uint16_t bf16_one = 0x3F80, f16_half = 0x3800;
  const float two = 2;
  const LinearPart parts[] = {
      {&bf16_one, DType::bf16, 1, {}}, {&f16_half, DType::f16, 1, {}}, {&two, DType::f32, 1, {}}};
  const auto weight = make_linear(*context, parts, 1);
  Guarded x(1, 1), y(1, 3);
  x.at(0, 0) = 3;
  linear(*context, y.matrix(), x.matrix(), *weight, RowKind::decode);
  EXPECT_EQ(y.row(0), (std::vector<float>{3, 1.5, 6}));
}

// Every instruction set this machine has, against plain sums of the same pairs; rows must not notice each other.
TEST(Simd, ProductsOfEveryInstructionSetAgree) {
  int n = 0;
  const cpu::Simd* const* tables = cpu::simd_all(&n);
  ASSERT_GE(n, 1);
  Rng rng(5);
  constexpr int64_t kM = 13, kK = 66, kN = 80;
  const auto a = test::random_bf16s(rng, kM * kK), b = test::random_bf16s(rng, kK * kN);
  std::vector<bf16> ab(a.size()), bb(b.size());
  for (size_t i = 0; i < a.size(); ++i) ab[i] = to_bf16(a[i]);
  for (int64_t k = 0; k < kK; ++k) {
    for (int64_t c = 0; c < kN; ++c)
      bb[static_cast<size_t>((k / 2 * kN + c) * 2 + k % 2)] = to_bf16(b[static_cast<size_t>(k * kN + c)]);
  }
  for (int t = 0; t < n; ++t) {
    std::vector<float> f(kM * kN), h(kM * kN);
    tables[t]->gemm_f32(kM, kN / 16, kK, a.data(), kK, b.data(), kN, f.data(), kN, false, 0);
    tables[t]->gemm_bf16(kM, kN / 16, kK / 2, ab.data(), kK, bb.data(), kN, h.data(), kN, false, 0);
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t c = 0; c < kN; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k)
          sum += static_cast<double>(a[static_cast<size_t>(m * kK + k)]) *
                 static_cast<double>(b[static_cast<size_t>(k * kN + c)]);
        ASSERT_NEAR(static_cast<double>(f[static_cast<size_t>(m * kN + c)]), sum, 2e-5) << tables[t]->name;
        ASSERT_NEAR(static_cast<double>(h[static_cast<size_t>(m * kN + c)]), sum, 2e-5) << tables[t]->name;
      }
    }
  }
}

}  // namespace
}  // namespace hayfork::engine
