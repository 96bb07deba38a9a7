// Mixtures of experts on CUDA beside the CPU twins: ragged shapes, every kind of weights, both kinds of rows; the same
// bits twice, for rows alone and for rows together. Tolerances as in ops_cuda_test.cc: float32 differs by the order of
// sums (2e-5 of the largest value), bf16 by the roundings of the activation and of each expert's output.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/cuda/devices.h"
#include "engine/kernels/moe.h"

namespace hayfork::engine {
namespace {

struct Case {
  int64_t n_experts, hidden, width;
  int32_t top_k;
  bool mxfp4 = false, bias = false;
  ExpertActivation act = {};
  int exponent = 119;  // the lowest of three
};

const Case kCases[] = {
    {.n_experts = 1, .hidden = 16, .width = 8, .top_k = 1},
    {.n_experts = 4, .hidden = 46, .width = 14, .top_k = 2},
    {.n_experts = 8, .hidden = 96, .width = 40, .top_k = 3, .act = {.act = Activation::gelu_tanh}},
    {.n_experts = 33, .hidden = 136, .width = 264, .top_k = 8, .bias = true, .act = {.limit = 1.5F}},
    {.n_experts = 4, .hidden = 32, .width = 96, .top_k = 4, .mxfp4 = true, .bias = true, .act = {.limit = 7}},
    {.n_experts = 32, .hidden = 320, .width = 288, .top_k = 4, .mxfp4 = true, .bias = true, .act = {.limit = 7}},
    {.n_experts = 6, .hidden = 576, .width = 160, .top_k = 2, .mxfp4 = true, .exponent = 126},  // past 128
};

class MoeCuda : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const auto found = cuda::list_devices();
    if (found.devices.empty()) GTEST_SKIP() << "needs a GPU: " << found.problem;
    gpu_ = cuda::make_cuda_context(0, GetParam());
    cpu_ = make_cpu_context(GetParam());
  }

  std::vector<float> noise(int64_t n, float scale) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = round_to_bf16(normal(random_));
    return v;
  }

  // The same experts on both devices.
  void make(const Case& c) {
    const ExpertShape shape{c.n_experts, c.hidden, c.width, c.mxfp4, c.bias};
    gpu_experts_ = make_experts(*gpu_, shape);
    cpu_experts_ = make_experts(*cpu_, shape);
    for (int64_t e = 0; e < c.n_experts; ++e) {
      fill(c, Experts::Part::gate_up, e, 2 * c.width, c.hidden);
      fill(c, Experts::Part::down, e, c.hidden, c.width);
    }
  }
  void fill(const Case& c, Experts::Part part, int64_t e, int64_t n, int64_t k) {
    const std::vector<float> bias = c.bias ? noise(n, 0.5F) : std::vector<float>{};
    if (c.mxfp4) {
      std::vector<uint8_t> blocks(static_cast<size_t>(n * k / 2)), exponents(static_cast<size_t>(n * k / 32));
      for (uint8_t& b : blocks) b = static_cast<uint8_t>(random_());
      for (uint8_t& x : exponents) x = static_cast<uint8_t>(c.exponent + static_cast<int>(random_() % 3));
      for (const auto& [context, experts] : both())
        experts->set_mxfp4(*context, part, e, {blocks.data(), exponents.data()}, bias);
      return;
    }
    const std::vector<float> w = noise(n * k, 1 / std::sqrt(static_cast<float>(k)));
    const LinearPart rows[2] = {{w.data(), DType::f32, n / 2, {}}, {w.data() + n / 2 * k, DType::f32, n - n / 2, {}}};
    for (const auto& [context, experts] : both()) experts->set(*context, part, e, rows, bias);
  }
  std::vector<std::pair<Context*, Experts*>> both() {
    return {{gpu_.get(), gpu_experts_.get()}, {cpu_.get(), cpu_experts_.get()}};
  }

  // Distinct experts and weights for each row; some rows like the same few.
  void choose(const Case& c, int64_t rows) {
    expert_.clear();
    for (int64_t m = 0; m < rows; ++m) {
      std::vector<int32_t> all(static_cast<size_t>(c.n_experts));
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
      if (m % 3 != 0) std::shuffle(all.begin(), all.end(), random_);
      expert_.insert(expert_.end(), all.begin(), all.begin() + c.top_k);
    }
    weight_ = noise(rows * c.top_k, 0.5F);
  }

  // Rows [begin, end) of x.
  std::vector<float> run(Context& context, Experts& experts, const Case& c, const std::vector<float>& x, int64_t begin,
                         int64_t end, const RowGroups& groups) {
    context.arena().reset();
    const int64_t n = end - begin, guard = 64;
    const bool narrow = context.activation() == DType::bf16;
    Matrix in = context.matrix(n, c.hidden), out = context.matrix(n + 2, c.hidden);
    const auto upload = [&](void* to, const float* from, int64_t count) {
      if (!narrow) return context.upload(to, from, static_cast<size_t>(count) * sizeof(float));
      std::vector<bf16> values(static_cast<size_t>(count));
      std::transform(from, from + count, values.begin(), to_bf16);
      context.upload(to, values.data(), values.size() * sizeof(bf16));
    };
    upload(in.data, x.data() + begin * c.hidden, n * c.hidden);
    const std::vector<float> sentinel(static_cast<size_t>((n + 2) * c.hidden), 12345.0F);
    upload(out.data, sentinel.data(), (n + 2) * c.hidden);
    const int64_t bytes = experts.scratch_bytes(n, c.top_k);
    Matrix scratch = context.matrix(1, bytes + guard, DType::u8);
    const std::vector<uint8_t> poison(static_cast<size_t>(bytes + guard), 0xFF);  // NaN as floats
    context.upload(scratch.data, poison.data(), poison.size());
    Matrix experts_of = context.matrix(n, c.top_k, DType::i32), weights_of = context.matrix(n, c.top_k, DType::f32);
    const auto count = static_cast<size_t>(n * c.top_k) * 4;
    context.upload(experts_of.data, expert_.data() + begin * c.top_k, count);
    context.upload(weights_of.data, weight_.data() + begin * c.top_k, count);
    const Routing routing{static_cast<int32_t*>(experts_of.data), static_cast<float*>(weights_of.data), c.top_k};
    run_experts(context, out.row_range(1, n + 1), in, routing, experts, c.act, groups, scratch.data);
    std::vector<uint8_t> tail(static_cast<size_t>(guard));
    context.download(tail.data(), static_cast<char*>(scratch.data) + bytes, tail.size());
    EXPECT_TRUE(std::all_of(tail.begin(), tail.end(), [](uint8_t b) { return b == 0xFF; })) << "wrote past its scratch";
    std::vector<float> all((n + 2) * static_cast<size_t>(c.hidden));
    if (narrow) {
      std::vector<bf16> values(all.size());
      context.download(values.data(), out.data, values.size() * sizeof(bf16));
      std::transform(values.begin(), values.end(), all.begin(), [](bf16 v) { return to_float(v); });
    } else {
      context.download(all.data(), out.data, all.size() * sizeof(float));
    }
    const float kept = narrow ? round_to_bf16(12345.0F) : 12345.0F;
    for (int64_t i = 0; i < c.hidden; ++i) {
      EXPECT_EQ(all[static_cast<size_t>(i)], kept);
      EXPECT_EQ(all[all.size() - 1 - static_cast<size_t>(i)], kept);
    }
    return {all.begin() + c.hidden, all.end() - c.hidden};
  }

  static RowGroups of_kinds(int64_t prefill, int64_t decode) {
    RowGroups groups;
    const auto p = static_cast<int32_t>(prefill), d = static_cast<int32_t>(decode);
    if (p > 0) groups.group[groups.n++] = {RowKind::prefill, Stream::base, 0, p};
    if (d > 0) groups.group[groups.n++] = {RowKind::decode, Stream::base, p, p + d};
    return groups;
  }

  std::unique_ptr<Context> gpu_, cpu_;
  std::unique_ptr<Experts> gpu_experts_, cpu_experts_;
  std::vector<int32_t> expert_;
  std::vector<float> weight_;
  std::mt19937 random_{11};
};

TEST_P(MoeCuda, ExpertsMatchTheCpuAndARowAloneHasTheSameBits) {
  constexpr int64_t kRows = 300;
  for (const Case& c : kCases) {
    const std::string what = std::to_string(c.n_experts) + " experts of " + std::to_string(c.hidden) + "x" +
                             std::to_string(c.width) + (c.mxfp4 ? " mxfp4" : "");
    make(c);
    choose(c, kRows);
    const std::vector<float> x = noise(kRows * c.hidden, 1);
    const auto want = run(*cpu_, *cpu_experts_, c, x, 0, kRows, of_kinds(kRows, 0));
    float largest = 0;
    for (const float v : want) largest = std::max(largest, std::fabs(v));
    const double bound = largest * (GetParam() == DType::bf16 ? 0x1p-6 : 2e-5);
    for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
      const auto groups = [&](int64_t n) { return kind == RowKind::prefill ? of_kinds(n, 0) : of_kinds(0, n); };
      const auto got = run(*gpu_, *gpu_experts_, c, x, 0, kRows, groups(kRows));
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_LE(std::fabs(got[i] - want[i]), bound)
            << what << (kind == RowKind::decode ? " decode" : " prefill") << " row "
            << i / static_cast<size_t>(c.hidden) << " column " << i % static_cast<size_t>(c.hidden) << ": " << got[i]
            << " and " << want[i];
      }
      EXPECT_EQ(run(*gpu_, *gpu_experts_, c, x, 0, kRows, groups(kRows)), got) << what << " twice";
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1},
                                       {5, 12},
                                       {7, 16},
                                       {3, 20},
                                       {11, 40},
                                       {90, 150},
                                       {100, 228},
                                       {128, 299},
                                       {299, 300}}) {
        const auto few = run(*gpu_, *gpu_experts_, c, x, begin, end, groups(end - begin));
        EXPECT_TRUE(std::equal(few.begin(), few.end(), got.begin() + begin * c.hidden))
            << what << ": rows " << begin << " to " << end << " have other bits";
      }
    }
  }
}

TEST_P(MoeCuda, APassMayHoldBothKindsAndRowsAreCounted) {
  const Case& c = kCases[3];
  make(c);
  choose(c, 40);
  const std::vector<float> x = noise(40 * c.hidden, 1);
  const auto mixed = run(*gpu_, *gpu_experts_, c, x, 0, 40, of_kinds(25, 15));
  const auto prefill = run(*gpu_, *gpu_experts_, c, x, 0, 25, of_kinds(25, 0));
  const auto decode = run(*gpu_, *gpu_experts_, c, x, 25, 40, of_kinds(0, 15));
  EXPECT_TRUE(std::equal(prefill.begin(), prefill.end(), mixed.begin()));
  EXPECT_TRUE(std::equal(decode.begin(), decode.end(), mixed.begin() + 25 * c.hidden));
  run(*cpu_, *cpu_experts_, c, x, 0, 40, of_kinds(25, 15));
  run(*cpu_, *cpu_experts_, c, x, 0, 40, of_kinds(40, 0));
  EXPECT_EQ(gpu_experts_->load(*gpu_), cpu_experts_->load(*cpu_));
}

TEST_P(MoeCuda, RoutingMatchesTheCpu) {
  for (const int64_t n : {1, 5, 32, 100, 513}) {
    constexpr int64_t kRows = 37;
    std::vector<float> logits = noise(kRows * n, 1);  // bf16 numbers: ties among many experts
    logits[static_cast<size_t>(3 * n)] = std::nanf("");
    const std::vector<float> scale = noise(n, 1);
    for (const RouterParams base : {RouterParams{}, {.softmax_over_chosen = true}, {.renormalise = true}}) {
      for (const int32_t k : {1, 4, 9}) {
        if (k > n) continue;
        RouterParams params = base;
        params.top_k = k;
        std::vector<int32_t> expert[2];
        std::vector<float> weight[2];
        for (int device = 0; device < 2; ++device) {
          Context& context = device == 0 ? *gpu_ : *cpu_;
          context.arena().reset();
          Matrix in = context.matrix(kRows, n, DType::f32), factors = context.matrix(1, n, DType::f32);
          context.upload(in.data, logits.data(), logits.size() * sizeof(float));
          context.upload(factors.data, scale.data(), scale.size() * sizeof(float));
          Matrix experts = context.matrix(kRows, k, DType::i32), weights = context.matrix(kRows, k, DType::f32);
          route(context, {static_cast<int32_t*>(experts.data), static_cast<float*>(weights.data), k}, in, params,
                {static_cast<const float*>(factors.data), n});
          expert[device].resize(static_cast<size_t>(kRows * k));
          weight[device].resize(static_cast<size_t>(kRows * k));
          context.download(expert[device].data(), experts.data, expert[device].size() * sizeof(int32_t));
          context.download(weight[device].data(), weights.data, weight[device].size() * sizeof(float));
        }
        EXPECT_EQ(expert[0], expert[1]) << n << " experts, top " << k;
        for (size_t i = 0; i < weight[0].size(); ++i) {
          if (std::isnan(weight[1][i])) {
            EXPECT_TRUE(std::isnan(weight[0][i]));
          } else {
            EXPECT_NEAR(weight[0][i], weight[1][i], 1e-5 * std::fabs(weight[1][i]) + 1e-7)
                << n << " experts, top " << k;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MoeCuda, testing::Values(DType::f32, DType::bf16),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace hayfork::engine
