// CUDA twins against CPU twins on ragged shapes, with sentinels around outputs, twice the same bits, and rows alone
// equal to rows together. Tolerances: float32 differs by the order of sums only (1e-5 of the largest value); bf16
// results carry one rounding of 2⁻⁹ relative, the inputs' rounding is shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/cuda/devices.h"
#include "engine/kernels/fused.h"
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

// Fused ops give the bits of the ops they stand for, and so the CPU twin's values within the same bounds.
TEST_P(OpsCuda, LinearActMulIsLinearThenActMul) {
  for (const auto& [width, k] : {std::pair<int64_t, int64_t>{14, 46}, {130, 200}, {520, 2560}, {1024, 6144}}) {
    const std::vector<float> w = noise(2 * width * k, 0.1f), b = noise(2 * width), x = noise(130 * k);
    const LinearPart part{w.data(), DType::f32, 2 * width, vector_on(*gpu_, b)};
    const auto weight = make_linear(*gpu_, std::span(&part, 1), k);
    for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
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
}

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

TEST_P(OpsCuda, FinishQkvIsItsSteps) {
  struct Case {
    int n_heads, n_kv, dim, half;
    bool norms, affine, affine_first;
  };
  const Case cases[] = {{6, 2, 128, 64, true, false, false}, {6, 2, 64, 32, false, true, false},
                        {4, 4, 256, 32, true, true, true},   {5, 1, 80, 40, true, true, false},
                        {3, 1, 46, 23, true, true, true},    {4, 2, 128, 0, true, false, false},
                        {4, 2, 96, 16, false, false, false}, {2, 1, 512, 64, true, false, false}};
  for (const Case& c : cases) {
    // Sequence 0 goes on from position 10, 1 begins, 2 decodes an Orthros pair at the start of a page.
    constexpr int32_t kBlocks = 8;
    const std::vector<int32_t> tables[3] = {{5, 0}, {3, 1}, {7, 2, 4}};
    const int32_t* blocks[3];
    std::vector<SeqView> seqs;
    for (int32_t s = 0; s < 3; ++s) {
      blocks[s] = tables[s].data();
      seqs.push_back({&blocks[s], -1, 130, s, 1, static_cast<int32_t>(tables[s].size())});
    }
    std::vector<Row> rows;
    for (int32_t p = 10; p < 75; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
    for (int32_t p = 0; p < 70; ++p) rows.push_back({0, p, 1, Stream::base, RowKind::prefill, -1});
    rows.push_back({0, 69, 1, Stream::output, RowKind::prefill, -1});
    rows.push_back({0, 128, 2, Stream::base, RowKind::decode, -1});
    rows.push_back({0, 128, 2, Stream::output, RowKind::decode, -1});
    const Pass pass{rows, seqs, 0};
    const auto n = static_cast<int64_t>(rows.size());
    const int64_t q_width = int64_t{c.n_heads} * c.dim, kv_width = int64_t{c.n_kv} * c.dim;
    const int64_t width = q_width + 2 * kv_width;
    const std::vector<float> qkv = noise(n * width), q_weight = noise(c.dim), k_weight = noise(c.dim),
                             scale = noise(q_width), offset = noise(q_width);
    RopeTable table;
    for (int i = 0; i < c.half; ++i) table.inv_freq.push_back(std::pow(10000.f, -static_cast<float>(i) / 32.f));
    const std::vector<int32_t> table_of_seq(3, 0);
    const auto run = [&](auto finish_op, std::vector<float>& q_out, std::vector<char>& k_out,
                         std::vector<char>& v_out) {
      gpu_->arena().reset();
      gpu_->begin_pass(pass);
      const size_t bytes = static_cast<size_t>(kBlocks * c.n_kv * kBlockTokens * c.dim * size_of(GetParam()));
      const auto k_buffer = gpu_->make_buffer(bytes), v_buffer = gpu_->make_buffer(bytes);
      const std::vector<char> poison(bytes, static_cast<char>(0xFF));
      gpu_->upload(k_buffer->data(), poison.data(), bytes);
      gpu_->upload(v_buffer->data(), poison.data(), bytes);
      const KvLayer layer{k_buffer->data(), v_buffer->data(), GetParam(), c.n_kv, c.dim, c.dim, 0};
      const Matrix fused = on_gpu(qkv, n, width);
      const Matrix q = fused.columns(0, q_width), k = fused.columns(q_width, kv_width),
                   v = fused.columns(q_width + kv_width, kv_width);
      QkvFinish finish{.head_dim = c.dim, .q_eps = 1e-6f, .k_eps = 1e-5f, .affine_first = c.affine_first};
      if (c.norms) {
        finish.q_norm = vector_on(*gpu_, q_weight);
        finish.k_norm = vector_on(*gpu_, k_weight);
        finish.k_kind = NormKind::one_cast;
      }
      if (c.affine) {
        finish.base = {vector_on(*gpu_, scale), vector_on(*gpu_, offset)};
        finish.output = {vector_on(*gpu_, offset), vector_on(*gpu_, scale)};
      }
      finish.angles = rope_angles(*gpu_, rows, std::span(&table, 1), table_of_seq);
      finish_op(*gpu_, pass, q, k, v, layer, finish);
      q_out = from_gpu(Matrix{q.data, q.dtype, n, q_width, width});
      k_out.resize(bytes);
      v_out.resize(bytes);
      gpu_->download(k_out.data(), k_buffer->data(), bytes);
      gpu_->download(v_out.data(), v_buffer->data(), bytes);
    };
    std::vector<float> q1, q2;
    std::vector<char> k1, k2, v1, v2;
    run(finish_qkv, q1, k1, v1);
    run(finish_qkv_in_steps, q2, k2, v2);
    EXPECT_EQ(q1, q2) << "q, d " << c.dim;
    EXPECT_EQ(k1, k2) << "k, d " << c.dim;
    EXPECT_EQ(v1, v2) << "v, d " << c.dim;
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

// A row's bits do not depend on where the query tile that holds it begins, nor on rows of the same pass elsewhere.
TEST_P(OpsCuda, AttentionTilesMayBeginAnywhere) {
  constexpr int32_t kLength = 4500, kKv = 1, kHeads = 2;
  std::vector<int32_t> table;
  for (int32_t i = 0; i * kBlockTokens < kLength; ++i) table.push_back(i ^ 1);
  table.back() = static_cast<int32_t>(table.size()) - 1;
  const int32_t* blocks = table.data();
  const std::vector<SeqView> seqs = {{&blocks, -1, kLength, 0, 1, static_cast<int32_t>(table.size())}};
  const size_t n_blocks = table.size() + 1;
  for (const int32_t dim : {64, 128, 256}) {
    const std::vector<float> k = noise(int64_t{kLength} * dim), v = noise(int64_t{kLength} * dim),
                             q = noise(int64_t{kLength} * kHeads * dim);
    const size_t bytes = n_blocks * kBlockTokens * static_cast<size_t>(dim) * static_cast<size_t>(size_of(GetParam()));
    const auto k_buffer = gpu_->make_buffer(bytes), v_buffer = gpu_->make_buffer(bytes);
    const KvLayer layer{k_buffer->data(), v_buffer->data(), GetParam(), kKv, dim, dim, 0};
    std::vector<Row> fill;
    for (int32_t p = 0; p < kLength; ++p) fill.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
    gpu_->arena().reset();
    const Pass fill_pass{fill, seqs, 0};
    gpu_->begin_pass(fill_pass);
    kv_write(*gpu_, fill_pass, 0, on_gpu(k, kLength, dim), on_gpu(v, kLength, dim), layer);
    for (const int32_t window : {0, 128, 1000}) {
      std::vector<float> reference;  // rows 4,096 … 4,499
      // Rows [first, last), and those from 4,330 on, where there is a gap between.
      for (const auto& [first, last] : {std::pair{4096, 4500}, {4112, 4500}, {4201, 4500}, {300, 700}, {4329, 4330}}) {
        std::vector<Row> rows(fill.begin() + first, fill.begin() + last);
        if (last < 4500) rows.insert(rows.end(), fill.begin() + 4330, fill.end());
        std::vector<float> queries;
        for (const Row& row : rows) {
          queries.insert(queries.end(), q.begin() + int64_t{row.pos} * kHeads * dim,
                         q.begin() + int64_t{row.pos + 1} * kHeads * dim);
        }
        gpu_->arena().reset();
        const Pass pass{rows, seqs, 0};
        gpu_->begin_pass(pass);
        const auto n = static_cast<int64_t>(rows.size());
        const Matrix o = gpu_->matrix(n, kHeads * dim);
        AttentionParams params;
        params.n_heads = kHeads;
        params.scale = 1.f / std::sqrt(static_cast<float>(dim));
        params.window_base = window;
        attention(*gpu_, pass, o, on_gpu(queries, n, kHeads * dim), layer, params);
        const std::vector<float> got = from_gpu(o);
        if (reference.empty()) reference = got;
        for (size_t i = 0; i < rows.size(); ++i) {
          if (rows[i].pos < 4096) continue;
          const auto at = got.begin() + static_cast<int64_t>(i) * kHeads * dim;
          const auto want = reference.begin() + int64_t{rows[i].pos - 4096} * kHeads * dim;
          ASSERT_TRUE(std::equal(at, at + kHeads * dim, want))
              << "d " << dim << " window " << window << " position " << rows[i].pos << " with rows from " << first;
        }
      }
    }
  }
}

// Kernels start early; an output row waits for the keys that the same pass writes, wherever they are.
TEST_P(OpsCuda, OutputRowSeesTheKeysOfItsPass) {
  constexpr int32_t kLength = 20000, kKv = 8, kHeads = 32, kDim = 128;
  std::vector<int32_t> table;
  for (int32_t i = 0; i * kBlockTokens < kLength; ++i) table.push_back(i);
  const int32_t* blocks = table.data();
  const std::vector<SeqView> seqs = {{&blocks, -1, kLength, 0, 1, static_cast<int32_t>(table.size())}};
  std::vector<Row> rows;
  for (int32_t p = 5000; p < 5600; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
  for (int32_t p = kLength - 20; p < kLength; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
  rows.push_back({0, kLength - 1, 0, Stream::output, RowKind::prefill, -1});
  const Pass pass{rows, seqs, 0};
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t width = int64_t{kHeads + 2 * kKv} * kDim;
  const size_t bytes = table.size() * kKv * kBlockTokens * kDim * static_cast<size_t>(size_of(GetParam()));
  const std::vector<float> qkv = noise(n * width);
  AttentionParams params;
  params.n_heads = kHeads;
  params.scale = 1.f / std::sqrt(static_cast<float>(kDim));
  params.window_base = 128;
  std::vector<float> first;
  for (const bool waits : {true, false, false, false}) {
    gpu_->arena().reset();
    gpu_->begin_pass(pass);
    const auto k = gpu_->make_buffer(bytes), v = gpu_->make_buffer(bytes);
    gpu_->zero(k->data(), bytes);
    gpu_->zero(v->data(), bytes);
    const KvLayer layer{k->data(), v->data(), GetParam(), kKv, kDim, kDim, 0};
    const Matrix fused = on_gpu(qkv, n, width), o = gpu_->matrix(n, kHeads * kDim);
    finish_qkv(*gpu_, pass, fused.columns(0, kHeads * kDim), fused.columns(kHeads * kDim, kKv * kDim),
               fused.columns((kHeads + kKv) * kDim, kKv * kDim), layer, {.head_dim = kDim});
    if (waits) from_gpu(o);
    attention(*gpu_, pass, o, fused.columns(0, kHeads * kDim), layer, params);
    const std::vector<float> got = from_gpu(o);
    if (first.empty()) first = got;
    EXPECT_EQ(got, first);
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

INSTANTIATE_TEST_SUITE_P(Types, OpsCuda, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace
}  // namespace hayfork::engine
