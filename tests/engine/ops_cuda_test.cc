// CUDA twins against CPU twins on ragged shapes, with sentinels around outputs, twice the same bits, and rows alone
// equal to rows together. Tolerances: float32 differs by the order of sums only (1e-5 of the largest value); bf16
// results carry one rounding of 2⁻⁹ relative, the inputs' rounding is shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/cuda/devices.h"
#include "engine/kernels/ops.h"

namespace hayfork::engine {
namespace {

bool have_gpu() {
  for (const auto& device : cuda::list_devices().devices) {
    if (device.usable) return true;
  }
  return false;
}
#define NEED_GPU() \
  if (!have_gpu()) GTEST_SKIP() << "needs a GPU: " << cuda::list_devices().problem

class OpsCuda : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    NEED_GPU();
    gpu_ = cuda::make_cuda_context(0, GetParam());
    cpu_ = make_cpu_context(GetParam());
  }

  std::vector<float> noise(int64_t n, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = GetParam() == DType::bf16 ? round_to_bf16(normal(engine_)) : normal(engine_);
    return v;
  }
  // Device matrix holding `values`, surrounded by a guard column band is not needed: strides equal widths here.
  Matrix on_gpu(const std::vector<float>& values, int64_t rows, int64_t cols) {
    Matrix m = gpu_->matrix(rows, cols);
    if (m.dtype == DType::bf16) {
      std::vector<bf16> narrow(values.size());
      std::transform(values.begin(), values.end(), narrow.begin(), to_bf16);
      gpu_->upload(m.data, narrow.data(), narrow.size() * sizeof(bf16));
    } else {
      gpu_->upload(m.data, values.data(), values.size() * sizeof(float));
    }
    return m;
  }
  Matrix on_cpu(const std::vector<float>& values, int64_t rows, int64_t cols) {
    Matrix m = cpu_->matrix(rows, cols);
    std::copy(values.begin(), values.end(), m.f32(0));
    return m;
  }
  std::vector<float> from_gpu(Matrix m) {
    std::vector<float> out;
    std::vector<char> bytes(static_cast<size_t>(m.rows * m.stride * size_of(m.dtype)));
    gpu_->download(bytes.data(), m.data, bytes.size());
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t c = 0; c < m.cols; ++c) {
        const int64_t e = r * m.stride + c;
        out.push_back(m.dtype == DType::bf16 ? to_float(reinterpret_cast<const bf16*>(bytes.data())[e])
                                             : reinterpret_cast<const float*>(bytes.data())[e]);
      }
    }
    return out;
  }
  static std::vector<float> values(Matrix m) {
    std::vector<float> out;
    for (int64_t r = 0; r < m.rows; ++r) out.insert(out.end(), m.f32(r), m.f32(r) + m.cols);
    return out;
  }
  void expect_close(const std::vector<float>& got, const std::vector<float>& want, const std::string& what,
                    double loosen = 1) {
    ASSERT_EQ(got.size(), want.size()) << what;
    float largest = 1e-6f;
    for (const float w : want) largest = std::max(largest, std::fabs(w));
    const double bound = loosen * largest * (GetParam() == DType::bf16 ? 0x1p-7 : 2e-5);
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_LE(std::fabs(got[i] - want[i]), bound) << what << " at " << i << ": " << got[i] << " and " << want[i];
    }
  }
  Vector vector_on(Context& context, const std::vector<float>& v) {
    buffers_.push_back(context.make_buffer(v.size() * sizeof(float)));
    context.upload(buffers_.back()->data(), v.data(), v.size() * sizeof(float));
    return {static_cast<const float*>(buffers_.back()->data()), static_cast<int64_t>(v.size())};
  }

  std::unique_ptr<Context> gpu_, cpu_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::mt19937 engine_{7};
};

TEST_P(OpsCuda, LinearMatchesForEveryRowCountAndKind) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{14, 46}, {96, 64}, {130, 200}, {576, 576}, {1024, 1536}}) {
    const std::vector<float> w = noise(n * k, 0.1f), b = noise(n);
    const LinearPart cpu_part{w.data(), DType::f32, n, vector_on(*cpu_, b)},
        gpu_part{w.data(), DType::f32, n, vector_on(*gpu_, b)};
    const auto cpu_weight = make_linear(*cpu_, std::span(&cpu_part, 1), k),
               gpu_weight = make_linear(*gpu_, std::span(&gpu_part, 1), k);
    const std::vector<float> x = noise(300 * k);
    for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
      std::vector<float> all;
      for (const int64_t m : {300, 129, 65, 64, 17, 9, 8, 3, 1}) {
        const std::vector<float> rows(x.begin(), x.begin() + m * k);
        Matrix y = gpu_->matrix(m, n), z = cpu_->matrix(m, n);
        linear(*gpu_, y, on_gpu(rows, m, k), *gpu_weight, kind);
        linear(*cpu_, z, on_cpu(rows, m, k), *cpu_weight, kind);
        const std::vector<float> got = from_gpu(y);
        expect_close(got, values(z),
                     "linear " + std::to_string(n) + "x" + std::to_string(k) + " m " + std::to_string(m));
        if (all.empty()) all = got;
        EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin()))
            << "bits differ by row count at m " << m << " n " << n << " k " << k;
      }
    }
  }
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

struct AttentionCase {
  int n_heads, n_kv, dim, window, window_output;
  float softcap;
  bool sinks;
};

TEST_P(OpsCuda, RopeWriteAndAttentionMatch) {
  const AttentionCase cases[] = {
      {4, 2, 64, 0, 0, 0, false},     {6, 2, 128, 0, 0, 0, true},  {10, 1, 64, 100, 100, 0, false},
      {4, 4, 256, 64, 64, 30, false}, {3, 1, 46, 7, 7, 0, true},   {8, 2, 128, 16, 0, 0, false},
      {40, 2, 64, 0, 0, 0, false},    {2, 1, 512, 0, 0, 0, false}, {4, 2, 80, 33, 0, 50, true}};
  for (const AttentionCase& c : cases) {
    // Three sequences; sequence 0 and 1 prefill a chunk, sequence 2 decodes an Orthros pair and an output row of
    // prefill kind.
    const int32_t lengths[] = {200, 71, 333};
    constexpr int32_t kBlocks = 12;
    std::vector<int32_t> tables[3];
    int32_t next = 0;
    for (int s = 0; s < 3; ++s) {
      for (int i = 0; i * kBlockTokens < lengths[s]; ++i) tables[s].push_back(kBlocks - 1 - next++);
    }
    const int32_t* blocks[3];
    std::vector<SeqView> seqs;
    for (int s = 0; s < 3; ++s) {
      blocks[s] = tables[s].data();
      seqs.push_back({&blocks[s], -1, lengths[s], s, 1, static_cast<int32_t>(tables[s].size())});
    }
    std::vector<Row> fill, rows;
    for (int s = 0; s < 3; ++s) {
      for (int32_t p = 0; p < lengths[s]; ++p) fill.push_back({0, p, s, Stream::base, RowKind::prefill, -1});
    }
    for (int32_t p = 10; p < 200; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
    for (int32_t p = 64; p < 71; ++p) rows.push_back({0, p, 1, Stream::base, RowKind::prefill, -1});
    rows.push_back({0, 70, 1, Stream::output, RowKind::prefill, -1});
    rows.push_back({0, 300, 2, Stream::output, RowKind::prefill, -1});
    rows.push_back({0, 332, 2, Stream::base, RowKind::decode, -1});
    rows.push_back({0, 332, 2, Stream::output, RowKind::decode, -1});
    const Pass fill_pass{fill, seqs, 0}, pass{rows, seqs, 0};
    const auto kv_values = noise(static_cast<int64_t>(fill.size()) * c.n_kv * c.dim),
               v_values = noise(static_cast<int64_t>(fill.size()) * c.n_kv * c.dim);
    const auto q_values = noise(static_cast<int64_t>(rows.size()) * c.n_heads * c.dim);
    const std::vector<float> sink = noise(c.n_heads);
    RopeTable table;
    for (int i = 0; i < c.dim / 2; ++i)
      table.inv_freq.push_back(std::pow(10000.f, -2.f * static_cast<float>(i) / static_cast<float>(c.dim)));
    const std::vector<int32_t> table_of_seq(3, 0);

    const auto run = [&](Context& context, bool gpu, const Pass& wanted, const std::vector<float>& queries) {
      context.arena().reset();
      const DType kv_type = GetParam();
      const size_t bytes =
          static_cast<size_t>(kBlocks) * c.n_kv * kBlockTokens * c.dim * static_cast<size_t>(size_of(kv_type));
      const auto k_buffer = context.make_buffer(bytes), v_buffer = context.make_buffer(bytes);
      const std::vector<char> poison(bytes,
                                     static_cast<char>(0xFF));  // NaN: unwritten keys must never be read into a result
      context.upload(k_buffer->data(), poison.data(), bytes);
      context.upload(v_buffer->data(), poison.data(), bytes);
      const KvLayer layer{k_buffer->data(), v_buffer->data(), kv_type, c.n_kv, c.dim, c.dim, 0};
      const auto matrix = [&](const std::vector<float>& v, int64_t r, int64_t w) {
        return gpu ? on_gpu(v, r, w) : on_cpu(v, r, w);
      };
      context.begin_pass(fill_pass);
      const Matrix k = matrix(kv_values, static_cast<int64_t>(fill.size()), c.n_kv * c.dim);
      const Matrix v = matrix(v_values, static_cast<int64_t>(fill.size()), c.n_kv * c.dim);
      rope(context, k, 0, rope_angles(context, fill, std::span(&table, 1), table_of_seq), c.dim);
      kv_write(context, fill_pass, 0, k, v, layer);
      context.begin_pass(wanted);
      const Matrix q = matrix(queries, static_cast<int64_t>(wanted.rows.size()), c.n_heads * c.dim);
      rope(context, q, 0, rope_angles(context, wanted.rows, std::span(&table, 1), table_of_seq), c.dim);
      Matrix o = context.matrix(q.rows, q.cols);
      AttentionParams params;
      params.n_heads = c.n_heads;
      params.scale = 1.f / std::sqrt(static_cast<float>(c.dim));
      params.window_base = c.window;
      params.window_output = c.window_output;
      params.softcap = c.softcap;
      if (c.sinks) params.sinks = vector_on(context, sink);
      attention(context, wanted, o, q, layer, params);
      return gpu ? from_gpu(o) : values(o);
    };
    const std::string what =
        "attention d " + std::to_string(c.dim) + " heads " + std::to_string(c.n_heads) + "/" + std::to_string(c.n_kv);
    const std::vector<float> got = run(*gpu_, true, pass, q_values);
    expect_close(got, run(*cpu_, false, pass, q_values), what, 2);
    EXPECT_EQ(got, run(*gpu_, true, pass, q_values)) << what << ": twice";
    // Each row alone gives the same bits as all together.
    const int64_t width = c.n_heads * c.dim;
    for (const size_t i : {size_t{0}, size_t{77}, size_t{189}, size_t{196}, size_t{197}, size_t{198}, rows.size() - 2,
                           rows.size() - 1}) {
      const Pass one{std::span(rows).subspan(i, 1), seqs, 0};
      const std::vector<float> query(q_values.begin() + static_cast<int64_t>(i) * width,
                                     q_values.begin() + static_cast<int64_t>(i + 1) * width);
      const std::vector<float> alone = run(*gpu_, true, one, query);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), got.begin() + static_cast<int64_t>(i) * width))
          << what << ": row " << i << " alone";
    }
  }
}

TEST_P(OpsCuda, HeadMatches) {
  for (const int64_t vocab : {97, 8192, 20000}) {
    const int64_t k = 64;
    const std::vector<float> w = noise(vocab * k, 0.3f), x = noise(33 * k);
    const LinearPart part{w.data(), DType::f32, vocab, {}};
    const auto cpu_weight = make_linear(*cpu_, std::span(&part, 1), k),
               gpu_weight = make_linear(*gpu_, std::span(&part, 1), k);
    const std::vector<int32_t> targets = {0, 5, static_cast<int32_t>(vocab - 1)};
    std::vector<float> logits(static_cast<size_t>(vocab)), cpu_logits(static_cast<size_t>(vocab));
    for (const float softcap : {0.f, 20.f}) {
      std::vector<HeadRow> gpu_rows(33, HeadRow{targets, nullptr}), cpu_rows = gpu_rows;
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

INSTANTIATE_TEST_SUITE_P(Types, OpsCuda, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace
}  // namespace hayfork::engine
