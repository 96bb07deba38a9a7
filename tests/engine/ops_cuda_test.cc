// CUDA twins of linears, row-wise ops and the head against CPU twins on ragged shapes, and rows alone equal to rows
// together.
#include <cstring>

#include "engine/kernels/fused.h"
#include "tests/engine/ops_cuda_fixture.h"

namespace hayfork::engine {
namespace {

// Prefill rows go through cuBLASLt, decode rows through kernels of ours: tests apart, so that tools can look at one.
class LinearCuda : public OpsCuda {
 protected:
  void linears_match(RowKind kind);
  void act_mul_is_two_steps(RowKind kind);
};

void LinearCuda::linears_match(RowKind kind) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{14, 46}, {96, 64}, {130, 200}, {576, 576}, {1024, 1536}}) {
    const std::vector<float> w = noise(n * k, 0.1f), b = noise(n);
    const LinearPart cpu_part{w.data(), DType::f32, n, vector_on(*cpu_, b)},
        gpu_part{w.data(), DType::f32, n, vector_on(*gpu_, b)};
    const auto cpu_weight = make_linear(*cpu_, std::span(&cpu_part, 1), k),
               gpu_weight = make_linear(*gpu_, std::span(&gpu_part, 1), k);
    const std::vector<float> x = noise(300 * k);
    std::vector<float> all;
    for (const int64_t m : {300, 129, 65, 64, 17, 9, 8, 3, 1}) {
      const std::vector<float> rows(x.begin(), x.begin() + m * k);
      Matrix y = gpu_->matrix(m, n), z = cpu_->matrix(m, n);
      linear(*gpu_, y, on_gpu(rows, m, k), *gpu_weight, kind);
      linear(*cpu_, z, on_cpu(rows, m, k), *cpu_weight, kind);
      const std::vector<float> got = from_gpu(y);
      expect_close(got, values(z), "linear " + std::to_string(n) + "x" + std::to_string(k) + " m " + std::to_string(m));
      if (all.empty()) all = got;
      EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin()))
          << "bits differ by row count at m " << m << " n " << n << " k " << k;
    }
  }
}

void LinearCuda::act_mul_is_two_steps(RowKind kind) {
  for (const auto& [width, k] : {std::pair<int64_t, int64_t>{14, 46}, {130, 200}, {520, 2560}, {1024, 6144}}) {
    const std::vector<float> w = noise(2 * width * k, 0.1f), b = noise(2 * width), x = noise(130 * k);
    const LinearPart part{w.data(), DType::f32, 2 * width, vector_on(*gpu_, b)};
    const auto weight = make_linear(*gpu_, std::span(&part, 1), k);
    for (const Activation act : {Activation::silu, Activation::gelu_tanh}) {
      for (const int64_t m : {130, 64, 33, 17, 9, 8, 1}) {
        gpu_->arena().reset();
        const Matrix in = on_gpu({x.begin(), x.begin() + m * k}, m, k);
        Matrix fused = gpu_->matrix(m, 2 * width), steps = gpu_->matrix(m, 2 * width), y = gpu_->matrix(m, width);
        linear_act_mul(*gpu_, fused.columns(0, width), fused, in, *weight, act, kind);
        linear_then_act_mul(*gpu_, y, steps, in, *weight, act, kind);
        EXPECT_EQ(from_gpu(fused.columns(0, width)), from_gpu(y)) << width << "x" << k << " m " << m;
      }
    }
  }
}

TEST_P(LinearCuda, PrefillRowsMatchForEveryCount) {
  linears_match(RowKind::prefill);
}
TEST_P(LinearCuda, DecodeRowsMatchForEveryCount) {
  linears_match(RowKind::decode);
}
TEST_P(LinearCuda, ActMulOfPrefillRowsIsItsSteps) {
  act_mul_is_two_steps(RowKind::prefill);
}
TEST_P(LinearCuda, ActMulOfDecodeRowsIsItsSteps) {
  act_mul_is_two_steps(RowKind::decode);
}

TEST_P(OpsCuda, RowOpsMatch) {
  for (const int64_t rows : {1, 3, 129}) {
    const int64_t cols = 6 * 22;
    const std::vector<float> x = noise(rows * cols), y = noise(rows * cols), w = noise(22), wide = noise(cols);
    for (const NormKind kind : {NormKind::llama, NormKind::one_cast, NormKind::zero_centred}) {
      Matrix g = on_gpu(x, rows, cols), c = on_cpu(x, rows, cols);
      rmsnorm(*gpu_, g, g, vector_on(*gpu_, w), 1e-6f, kind, 22);
      rmsnorm(*cpu_, c, c, vector_on(*cpu_, w), 1e-6f, kind, 22);
      expect_close(from_gpu(g), values(c), "rmsnorm");
    }
    for (const Activation act : {Activation::silu, Activation::gelu_tanh}) {
      Matrix g = on_gpu(x, rows, cols), c = on_cpu(x, rows, cols);
      act_mul(*gpu_, g, g, on_gpu(y, rows, cols), act);
      act_mul(*cpu_, c, c, on_cpu(y, rows, cols), act);
      expect_close(from_gpu(g), values(c), "act_mul");
    }
    Matrix g = on_gpu(x, rows, cols), c = on_cpu(x, rows, cols);
    add(*gpu_, g, on_gpu(y, rows, cols), 0.5f);
    add(*cpu_, c, on_cpu(y, rows, cols), 0.5f);
    affine(*gpu_, g, vector_on(*gpu_, wide), vector_on(*gpu_, wide));
    affine(*cpu_, c, vector_on(*cpu_, wide), vector_on(*cpu_, wide));
    expect_close(from_gpu(g), values(c), "add, affine", 2);
    std::vector<float> bad = x;
    bad[static_cast<size_t>((rows - 1) * cols + 5)] = INFINITY;
    Matrix marks = gpu_->matrix(rows, 1, DType::i32);
    mark_nonfinite(*gpu_, marks, on_gpu(x, rows, cols), 0);
    EXPECT_TRUE(read_marks(*gpu_, marks).empty());
    mark_nonfinite(*gpu_, marks, on_gpu(bad, rows, cols), 3);
    mark_nonfinite(*gpu_, marks, on_gpu(bad, rows, cols), 4);
    std::vector<int32_t> want(static_cast<size_t>(rows), -1);
    want.back() = 3;
    EXPECT_EQ(read_marks(*gpu_, marks), want);
  }
}

// Fused ops give the bits of the ops they stand for, and so the CPU twin's values within the same bounds.
TEST_P(OpsCuda, AddRmsnormIsAddThenRmsnorm) {
  for (const int64_t cols : {132, 1032, 2048, 4096, 5120, 10240}) {
    for (const int64_t rows : {1, 3, 600}) {
      std::vector<float> h = noise(rows * cols);
      const std::vector<float> y = noise(rows * cols), w = noise(cols);
      h[static_cast<size_t>((rows - 1) * cols + 7)] = INFINITY;
      for (const NormKind kind : {NormKind::llama, NormKind::one_cast, NormKind::zero_centred}) {
        gpu_->arena().reset();
        cpu_->arena().reset();
        const Vector weight = vector_on(*gpu_, w);
        Matrix h1 = on_gpu(h, rows, cols), h2 = on_gpu(h, rows, cols), added = on_gpu(y, rows, cols);
        Matrix x1 = gpu_->matrix(rows, cols), x2 = gpu_->matrix(rows, cols);
        Matrix marks1 = gpu_->matrix(rows, 1, DType::i32), marks2 = gpu_->matrix(rows, 1, DType::i32);
        for (const int32_t layer : {0, 1}) {
          add_rmsnorm(*gpu_, x1, h1, added, layer == 0 ? 1.f : 0.7f, weight, 1e-6f, kind, {marks1, layer});
          add_then_rmsnorm(*gpu_, x2, h2, added, layer == 0 ? 1.f : 0.7f, weight, 1e-6f, kind, {marks2, layer});
          const auto finite = [&](Matrix m) {  // the last row holds an infinity: bits of NaN are not compared
            std::vector<float> v = from_gpu(m);
            v.resize(static_cast<size_t>((rows - 1) * cols));
            return v;
          };
          EXPECT_EQ(finite(h1), finite(h2)) << rows << "x" << cols;
          EXPECT_EQ(finite(x1), finite(x2)) << rows << "x" << cols;
          EXPECT_EQ(read_marks(*gpu_, marks1), read_marks(*gpu_, marks2));
          EXPECT_EQ(read_marks(*gpu_, marks1).back(), 0);
        }
        if (rows == 1) continue;
        Matrix hc = on_cpu(h, rows, cols), xc = cpu_->matrix(rows, cols), yc = on_cpu(y, rows, cols);
        Matrix hg = on_gpu(h, rows, cols);
        add_rmsnorm(*gpu_, x1, hg, added, 1.f, weight, 1e-6f, kind, {});
        add_rmsnorm(*cpu_, xc, hc, yc, 1.f, vector_on(*cpu_, w), 1e-6f, kind, {});
        expect_close(from_gpu(x1.row_range(0, rows - 1)), values(xc.row_range(0, rows - 1)), "add_rmsnorm", 2);
      }
    }
  }
}

TEST_P(OpsCuda, HeadMatches) {
  for (const int64_t vocab : {97, 8192, 20000}) {
    const int64_t k = vocab == 97 ? 46 : 64;
    const std::vector<float> w = noise(vocab * k, 0.3f), x = noise(33 * k);
    const LinearPart part{w.data(), DType::f32, vocab, {}};
    const auto cpu_weight = make_linear(*cpu_, std::span(&part, 1), k),
               gpu_weight = make_linear(*gpu_, std::span(&part, 1), k);
    const std::vector<int32_t> targets = {0, 5, static_cast<int32_t>(vocab - 1)};
    std::vector<float> logits(static_cast<size_t>(vocab)), cpu_logits(static_cast<size_t>(vocab));
    for (const auto& [softcap, kind] : {std::pair{0.f, RowKind::prefill},
                                        {20.f, RowKind::prefill},
                                        {0.f, RowKind::decode},
                                        {20.f, RowKind::decode}}) {
      std::vector<HeadRow> gpu_rows(33, HeadRow{targets, nullptr, kind}), cpu_rows = gpu_rows;
      gpu_rows[3].kind = RowKind::decode;  // kinds may stand side by side
      gpu_rows[7].logits = logits.data();
      cpu_rows[7].logits = cpu_logits.data();
      const auto got = head(*gpu_, on_gpu(x, 33, k), *gpu_weight, softcap, gpu_rows);
      const auto want = head(*cpu_, on_cpu(x, 33, k), *cpu_weight, softcap, cpu_rows);
      for (size_t r = 0; r < 33; ++r) {
        EXPECT_EQ(got[r].argmax, want[r].argmax) << r;
        EXPECT_NEAR(got[r].log_sum_exp, want[r].log_sum_exp, 1e-4);
        EXPECT_NEAR(got[r].top1, want[r].top1, 1e-4);
        EXPECT_NEAR(got[r].top2, want[r].top2, 1e-4);
        for (size_t t = 0; t < 3; ++t) EXPECT_NEAR(got[r].target_logits[t], want[r].target_logits[t], 1e-4);
        EXPECT_TRUE(got[r].finite);
      }
      for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], cpu_logits[i], 1e-4) << i;
    }
  }
}

// A row's results are its own: alone, in any company, at any place.
TEST_P(OpsCuda, HeadRowsAloneGiveTheSameBits) {
  const int64_t vocab = 1003, k = 200, n = 300;
  const std::vector<float> w = noise(vocab * k, 0.3f), x = noise(n * k);
  const LinearPart part{w.data(), DType::f32, vocab, {}};
  const auto weight = make_linear(*gpu_, std::span(&part, 1), k);
  const std::vector<int32_t> targets = {3, 700, 1002, 3};
  std::vector<float> bad = x;
  bad[5 * k] = NAN;
  bad[6 * k + 1] = INFINITY;
  for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
    const std::vector<HeadRow> queries(static_cast<size_t>(n), HeadRow{targets, nullptr, kind});
    const auto all = head(*gpu_, on_gpu(x, n, k), *weight, 0, queries);
    for (const int64_t r : {0, 63, 64, 127, 128, 200, 299}) {
      gpu_->arena().reset();
      const std::vector<float> row(x.begin() + r * k, x.begin() + (r + 1) * k);
      const HeadRowResult one = head(*gpu_, on_gpu(row, 1, k), *weight, 0, std::span(queries).first(1))[0];
      const HeadRowResult& same = all[static_cast<size_t>(r)];
      EXPECT_EQ(one.log_sum_exp, same.log_sum_exp);
      EXPECT_EQ(one.top1, same.top1);
      EXPECT_EQ(one.top2, same.top2);
      EXPECT_EQ(one.argmax, same.argmax);
      EXPECT_EQ(one.target_logits, same.target_logits);
    }
    const auto some = head(*gpu_, on_gpu(bad, n, k), *weight, 0, queries);
    for (size_t r = 0; r < 9; ++r) EXPECT_EQ(some[r].finite, r != 5 && r != 6) << r;
  }
}

// Pairs in one lane, one tile, neighbouring tiles, tiles far apart.
TEST_P(OpsCuda, EqualLogitsGiveTheLowestIdAndNoMargin) {
  const int64_t vocab = 1003, k = 200;
  for (const auto& [low, high] : {std::pair<int64_t, int64_t>{0, 1}, {10, 18}, {300, 309}, {511, 512}, {3, 1002}}) {
    std::vector<float> w = noise(vocab * k, 0.3f);
    std::copy_n(w.begin() + low * k, k, w.begin() + high * k);
    std::vector<float> x(w.begin() + low * k, w.begin() + (low + 1) * k);  // its own logit is by far the largest
    for (float& v : x) v *= 4;
    const LinearPart part{w.data(), DType::f32, vocab, {}};
    const auto weight = make_linear(*gpu_, std::span(&part, 1), k);
    for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
      const std::vector<HeadRow> row(1, HeadRow{{}, nullptr, kind});
      const HeadRowResult result = head(*gpu_, on_gpu(x, 1, k), *weight, 0, row)[0];
      EXPECT_EQ(result.argmax, low);
      EXPECT_EQ(result.top1, result.top2) << low << " and " << high;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearCuda, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name(type.param)); });
INSTANTIATE_TEST_SUITE_P(Types, OpsCuda, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace
}  // namespace hayfork::engine
