#include <limits>

#include "engine/kernels/ops.h"
#include "tests/engine/op_support.h"

namespace hayfork::engine {
namespace {

using test::Guarded;

std::unique_ptr<LinearWeight> vocabulary(Context& context, const std::vector<float>& w, int64_t k) {
  const LinearPart part{w.data(), DType::f32, static_cast<int64_t>(w.size()) / k, {}};
  return make_linear(context, {&part, 1}, k);
}

TEST(Head, EqualsALogSoftmaxOfAllLogits) {
  constexpr int64_t kV = 1777, kC = 23, kM = 5;  // more than a slab, and no multiple of anything
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const float cap : {0.0F, 3.0F}) {
      const auto context = make_cpu_context(type);
      Rng rng(1);
      const auto w = test::random_bf16s(rng, kV * kC);
      const auto weight = vocabulary(*context, w, kC);
      Guarded x(kM, kC);
      x.fill(rng, 4);
      std::vector<std::vector<float>> logits(kM, std::vector<float>(kV + 1, test::kSentinel));
      const int32_t targets[] = {0, 511, 512, 1776, 512};
      std::vector<HeadRow> asks;
      for (auto& row : logits) asks.push_back({targets, row.data()});
      asks[1].logits = nullptr;
      const auto results = head(*context, x.matrix(), *weight, cap, asks);
      ASSERT_EQ(results.size(), static_cast<size_t>(kM));
      for (int64_t m = 0; m < kM; ++m) {
        std::vector<double> want(kV);
        for (int64_t v = 0; v < kV; ++v) {
          for (int64_t c = 0; c < kC; ++c) {
            const float a = type == DType::bf16 ? round_to_bf16(x.at(m, c)) : x.at(m, c);
            want[static_cast<size_t>(v)] +=
                static_cast<double>(a) * static_cast<double>(w[static_cast<size_t>(v * kC + c)]);
          }
          if (cap > 0) want[static_cast<size_t>(v)] = cap * std::tanh(want[static_cast<size_t>(v)] / cap);
        }
        double sum = 0;
        for (const double l : want) sum += std::exp(l);
        auto order = want;
        std::sort(order.begin(), order.end());
        const auto& r = results[static_cast<size_t>(m)];
        EXPECT_TRUE(r.finite);
        EXPECT_NEAR(r.log_sum_exp, std::log(sum), 2e-6);
        EXPECT_NEAR(r.top1, order[kV - 1], 2e-5);
        EXPECT_NEAR(r.top2, order[kV - 2], 2e-5);
        EXPECT_NEAR(want[static_cast<size_t>(r.argmax)], order[kV - 1], 2e-5);
        for (size_t t = 0; t < 5; ++t) EXPECT_NEAR(r.target_logits[t], want[static_cast<size_t>(targets[t])], 2e-5);
        if (m == 1) continue;
        for (int64_t v = 0; v < kV; ++v) {
          ASSERT_NEAR(logits[static_cast<size_t>(m)][static_cast<size_t>(v)], want[static_cast<size_t>(v)], 2e-5);
        }
        EXPECT_EQ(logits[static_cast<size_t>(m)][kV], test::kSentinel);
      }
      EXPECT_EQ(logits[1][0], test::kSentinel);
    }
  }
}

TEST(Head, ATieGoesToTheLowestIdAndItsMarginIsZero) {
  const auto context = make_cpu_context(DType::f32);
  std::vector<float> w(1500, 0.0F);
  w[1400] = w[77] = w[90] = 2;
  const auto weight = vocabulary(*context, w, 1);
  Guarded x(1, 1);
  x.at(0, 0) = 1;
  const HeadRow ask{};
  const auto r = head(*context, x.matrix(), *weight, 0, {&ask, 1})[0];
  EXPECT_EQ(r.argmax, 77);
  EXPECT_EQ(r.top1, r.top2);
}

TEST(Head, ANonFiniteLogitIsSaid) {
  const auto context = make_cpu_context(DType::f32);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> w(1500, 1.0F);
    w[1200] = bad;
    const auto weight = vocabulary(*context, w, 1);
    Guarded x(1, 1);
    x.at(0, 0) = 1;
    const HeadRow ask{};
    EXPECT_FALSE(head(*context, x.matrix(), *weight, 0, {&ask, 1})[0].finite);
  }
}

TEST(Head, ARowAloneHasTheSameBitsWithAnyThreads) {
  constexpr int64_t kV = 3000, kC = 64, kM = 210;
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto context = make_cpu_context(type);
    Rng rng(3);
    const auto weight = vocabulary(*context, test::random_floats(rng, kV * kC), kC);
    Guarded x(kM, kC);
    x.fill(rng);
    const int32_t targets[] = {5, 2999};
    const std::vector<HeadRow> asks(kM, HeadRow{targets, nullptr});
    std::vector<HeadRowResult> all;
    test::with_threads(2, [&] { all = head(*context, x.matrix(), *weight, 0, asks); });
    for (const int64_t m : {0, 100, 209}) {
      test::with_threads(1, [&] {
        const auto one = head(*context, x.rows(m, m + 1), *weight, 0, {asks.data(), 1})[0];
        const auto& same = all[static_cast<size_t>(m)];
        EXPECT_EQ(one.log_sum_exp, same.log_sum_exp);
        EXPECT_EQ(one.target_logits, same.target_logits);
        EXPECT_EQ(one.argmax, same.argmax);
        EXPECT_EQ(one.top2, same.top2);
      });
    }
  }
}

}  // namespace
}  // namespace hayfork::engine
