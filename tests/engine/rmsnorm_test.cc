#include "engine/kernels/ops.h"
#include "tests/engine/op_support.h"
#include "tests/support/sanitizer.h"

namespace hayfork::engine {
namespace {

using test::Guarded;
using test::same_bits;

// y = x / sqrt(mean(x²) + eps) · (w or 1 + w), in double.
double expected(Guarded& x, int64_t m, int64_t c, int64_t group, const std::vector<float>& w, NormKind kind,
                double eps) {
  double sum = 0;
  const int64_t first = c / group * group;
  for (int64_t i = first; i < first + group; ++i)
    sum += static_cast<double>(x.at(m, i)) * static_cast<double>(x.at(m, i));
  const double r = static_cast<double>(x.at(m, c)) / std::sqrt(sum / static_cast<double>(group) + eps);
  if (w.empty()) return r;
  const double weight = static_cast<double>(w[static_cast<size_t>(c % group)]);
  return kind == NormKind::zero_centred ? r * (1 + weight) : r * weight;
}

TEST(RmsNorm, EqualsTheFormulaForEveryKindAndGroup) {
  const auto context = make_cpu_context(DType::f32);
  Rng rng(1);
  for (const int64_t rows : {0, 1, 3, ::hayfork::test::kSanitized ? 33 : 129}) {
    for (const auto& [cols, group] :
         {std::pair<int64_t, int64_t>{7, 7}, {64, 64}, {60, 20}, {51, 17}, {576, 576}, {1, 1}}) {
      for (const NormKind kind : {NormKind::llama, NormKind::one_cast, NormKind::zero_centred}) {
        for (const bool weighted : {true, false}) {
          const auto w = weighted ? test::random_floats(rng, group) : std::vector<float>{};
          Guarded x(rows, cols), y(rows, cols);
          x.fill(rng, 3);
          rmsnorm(*context, y.matrix(), x.matrix(), {weighted ? w.data() : nullptr, weighted ? group : 0}, 1e-5F, kind,
                  group);
          for (int64_t m = 0; m < rows; ++m) {
            for (int64_t c = 0; c < cols; ++c) {
              const double want = expected(x, m, c, group, w, kind, 1e-5F);
              ASSERT_NEAR(static_cast<double>(y.at(m, c)), want, 1e-6 + 1e-6 * std::abs(want)) << cols << "/" << group;
            }
          }
          ASSERT_TRUE(y.intact());
        }
      }
    }
  }
}

TEST(RmsNorm, InPlaceAloneAndTogetherAreTheSameBits) {
  const auto context = make_cpu_context(DType::f32);
  Rng rng(2);
  const auto w = test::random_floats(rng, 577);
  Guarded x(700, 577), y(700, 577), alone(1, 577);
  x.fill(rng);
  const Vector weight{w.data(), 577};
  for (const int threads : {1, 2}) {
    test::with_threads(threads,
                       [&] { rmsnorm(*context, y.matrix(), x.matrix(), weight, 1e-6F, NormKind::llama, 577); });
    for (const int64_t m : {0, 350, 699}) {
      rmsnorm(*context, alone.matrix(), x.rows(m, m + 1), weight, 1e-6F, NormKind::llama, 577);
      EXPECT_TRUE(same_bits(alone.row(0), y.row(m)));
    }
  }
  rmsnorm(*context, x.matrix(), x.matrix(), weight, 1e-6F, NormKind::llama, 577);
  for (int64_t m = 0; m < 700; ++m) ASSERT_TRUE(same_bits(x.row(m), y.row(m)));
}

}  // namespace
}  // namespace hayfork::engine
