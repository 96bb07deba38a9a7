#include <algorithm>
#include <numeric>

#include "engine/kernels/attention_block.h"
#include "engine/kernels/ops.h"
#include "tests/engine/op_support.h"

namespace hayfork::engine {
namespace {

using test::Guarded;
using test::same_bits;

struct Shape {
  int32_t kv_heads, per_kv_head, k_dim, v_dim;
  DType dtype = DType::f32;
};

// Keys and values of some sequences, in blocks dealt out backwards so that no block is where its position says.
class Kv {
 public:
  Kv(Context& context, const Shape& shape, const std::vector<int32_t>& lengths, uint64_t seed) : shape_(shape) {
    int32_t n_blocks = 0;
    for (const int32_t length : lengths) n_blocks += (length + kBlockTokens - 1) / kBlockTokens;
    const int64_t per_block = int64_t{shape.kv_heads} * kBlockTokens * size_of(shape.dtype);
    k_memory_ = context.make_buffer(static_cast<size_t>(n_blocks * per_block * shape.k_dim));
    v_memory_ = context.make_buffer(static_cast<size_t>(n_blocks * per_block * shape.v_dim));
    layer_ = {k_memory_->data(), v_memory_->data(), shape.dtype, shape.kv_heads, shape.k_dim, shape.v_dim, 0};
    // What was there before must not matter: NaN everywhere (0xFFFF is one in both types).
    std::fill_n(static_cast<uint16_t*>(k_memory_->data()), k_memory_->bytes() / 2, uint16_t{0xFFFF});
    std::fill_n(static_cast<uint16_t*>(v_memory_->data()), v_memory_->bytes() / 2, uint16_t{0xFFFF});
    Rng rng(seed);
    int32_t next = n_blocks;
    for (const int32_t length : lengths) {
      auto& table = tables_.emplace_back();
      for (int32_t i = 0; i < length; i += kBlockTokens) table.push_back(--next);
      k_.push_back(test::random_bf16s(rng, int64_t{length} * shape.kv_heads * shape.k_dim, 2));
      v_.push_back(test::random_bf16s(rng, int64_t{length} * shape.kv_heads * shape.v_dim));
    }
    for (const auto& table : tables_) pointers_.push_back(table.data());
    for (const auto& pointer : pointers_) views_.push_back({&pointer, -1, 0, 0});
    for (size_t s = 0; s < lengths.size(); ++s) write(context, static_cast<int32_t>(s), 0, lengths[s]);
  }
  void write(Context& context, int32_t seq, int32_t begin, int32_t end) {
    std::vector<Row> rows;
    for (int32_t pos = begin; pos < end; ++pos) rows.push_back({0, pos, seq, Stream::base, RowKind::prefill, -1});
    const auto at = static_cast<size_t>(seq);
    const int64_t kc = int64_t{shape_.kv_heads} * shape_.k_dim, vc = int64_t{shape_.kv_heads} * shape_.v_dim;
    kv_write(context, {rows, views_, 0}, 0, {k_[at].data() + begin * kc, DType::f32, end - begin, kc, kc},
             {v_[at].data() + begin * vc, DType::f32, end - begin, vc, vc}, layer_);
  }
  double k(int32_t seq, int64_t pos, int64_t head, int64_t d) const {
    return k_[static_cast<size_t>(seq)][static_cast<size_t>((pos * shape_.kv_heads + head) * shape_.k_dim + d)];
  }
  float& v(int32_t seq, int64_t pos, int64_t head, int64_t d) {
    return v_[static_cast<size_t>(seq)][static_cast<size_t>((pos * shape_.kv_heads + head) * shape_.v_dim + d)];
  }
  std::span<const SeqView> views() const { return views_; }
  const KvLayer& layer() const { return layer_; }
  int32_t* table(size_t seq) { return tables_[seq].data(); }

 private:
  Shape shape_;
  std::unique_ptr<Buffer> k_memory_, v_memory_;
  KvLayer layer_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<const int32_t*> pointers_;
  std::vector<SeqView> views_;
  std::vector<std::vector<float>> k_, v_;
};

std::vector<Row> rows_of(int32_t seq, int32_t begin, int32_t end, Stream stream = Stream::base) {
  std::vector<Row> rows;
  for (int32_t pos = begin; pos < end; ++pos) rows.push_back({0, pos, seq, stream, RowKind::prefill, -1});
  return rows;
}

// One row and head by the formula, in double.
std::vector<double> expected(Kv& kv, const Shape& shape, const Row& row, const float* q, int64_t head,
                             const AttentionParams& params) {
  const int64_t kv_head = head / shape.per_kv_head;
  int64_t window = row.stream == Stream::base ? params.window_base : params.window_output;
  if (!params.kv_head_windows.empty()) window = params.kv_head_windows[static_cast<size_t>(kv_head)];
  const int64_t first = window > 0 ? std::max<int64_t>(0, row.pos - window + 1) : 0;
  std::vector<double> s, o(static_cast<size_t>(shape.v_dim));
  for (int64_t j = first; j <= row.pos; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < shape.k_dim; ++d) dot += static_cast<double>(q[d]) * kv.k(row.seq, j, kv_head, d);
    dot *= static_cast<double>(params.scale);
    s.push_back(params.softcap > 0 ? params.softcap * std::tanh(dot / params.softcap) : dot);
  }
  double sum = params.sinks ? std::exp(static_cast<double>(params.sinks.data[head])) : 0;
  for (const double x : s) sum += std::exp(x);
  for (size_t i = 0; i < s.size(); ++i) {
    for (int64_t d = 0; d < shape.v_dim; ++d) {
      const double v = kv.v(row.seq, first + static_cast<int64_t>(i), kv_head, d);
      o[static_cast<size_t>(d)] += std::exp(s[i]) / sum * v;
    }
  }
  return o;
}

void expect_formula(const Shape& shape, const std::vector<int32_t>& lengths, const std::vector<Row>& rows,
                    AttentionParams params) {
  const auto context = make_cpu_context(DType::f32);
  Kv kv(*context, shape, lengths, 7);
  params.n_heads = shape.kv_heads * shape.per_kv_head;
  params.scale = 1.0F / std::sqrt(static_cast<float>(shape.k_dim));
  Rng rng(8);
  const auto n = static_cast<int64_t>(rows.size());
  Guarded q(n, int64_t{params.n_heads} * shape.k_dim), o(n, int64_t{params.n_heads} * shape.v_dim);
  q.fill(rng, 2);
  for (int64_t m = 0; m < n; ++m) {
    for (int64_t c = 0; c < int64_t{params.n_heads} * shape.k_dim; ++c) q.at(m, c) = round_to_bf16(q.at(m, c));
  }
  attention(*context, {rows, kv.views(), 0}, o.matrix(), q.matrix(), kv.layer(), params);
  // bfloat16 rounds each weight by at most 2⁻⁹ of itself, and the weights sum to 1 while |v| ≤ 1.
  const double tolerance = shape.dtype == DType::bf16 ? 0x1p-9 : 2e-6;
  for (int64_t m = 0; m < n; ++m) {
    for (int64_t h = 0; h < params.n_heads; ++h) {
      const auto want =
          expected(kv, shape, rows[static_cast<size_t>(m)], q.matrix().f32(m) + h * shape.k_dim, h, params);
      for (int64_t d = 0; d < shape.v_dim; ++d) {
        ASSERT_NEAR(static_cast<double>(o.at(m, h * shape.v_dim + d)), want[static_cast<size_t>(d)], tolerance)
            << "row " << m << " head " << h << " of " << shape.kv_heads << "x" << shape.per_kv_head << " d "
            << shape.k_dim;
      }
    }
  }
  EXPECT_TRUE(o.intact());
}

const Shape kShapes[] = {{3, 3, 64, 64},
                         {1, 1, 2, 2},
                         {2, 1, 16, 48},
                         {1, 5, 33, 17},
                         {2, 4, 128, 32},
                         {1, 2, 512, 512},
                         {3, 3, 64, 64, DType::bf16},
                         {1, 5, 33, 17, DType::bf16},
                         {2, 1, 16, 8, DType::bf16},
                         {1, 2, 256, 128, DType::bf16}};

TEST(Attention, EqualsTheFormulaForEveryShape) {
  for (const Shape& shape : kShapes) {
    for (const int32_t length : {1, 3, 129}) expect_formula(shape, {length}, rows_of(0, 0, length), {});
  }
}

TEST(Attention, WindowsSinksAndSoftcaps) {
  std::vector<float> sinks = {0.5F, -1, 3, 0, 1, 2, -2, 0.1F, 10};
  const int32_t windows[] = {1, 0, 70};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shape shape{3, 3, 32, 32, dtype};
    for (const int32_t window : {1, 2, 63, 64, 65, 128, 500}) {
      expect_formula(shape, {200}, rows_of(0, 0, 200), {.window_base = window});
    }
    expect_formula(shape, {200}, rows_of(0, 0, 200), {.softcap = 2, .sinks = {sinks.data(), 9}});
    expect_formula(shape, {200}, rows_of(0, 0, 200), {.sinks = {sinks.data(), 9}, .kv_head_windows = windows});
    auto rows = rows_of(0, 100, 180);
    for (const Row& row : rows_of(0, 90, 175, Stream::output)) rows.push_back(row);
    expect_formula(shape, {200}, rows, {.window_base = 5});
    expect_formula(shape, {200}, rows, {.window_base = 5, .window_output = 77});
  }
}

TEST(Attention, LongContextsOfFewRowsAndSeveralSequences) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Shape shape{3, 3, 16, 16, dtype};
    expect_formula(shape, {1700}, rows_of(0, 1699, 1700), {});
    expect_formula(shape, {1700}, rows_of(0, 1690, 1700), {.window_base = 600});
    auto rows = rows_of(0, 4, 5);
    for (const auto& [seq, begin, end] : {std::tuple{1, 600, 633}, {2, 0, 1}, {3, 63, 66}}) {
      for (const Row& row : rows_of(seq, begin, end)) rows.push_back(row);
    }
    expect_formula(shape, {5, 633, 1, 66}, rows, {});
    std::vector<Row> sparse = {rows_of(0, 3, 4)[0], rows_of(0, 700, 701)[0], rows_of(0, 1100, 1101)[0]};
    expect_formula(shape, {1101}, sparse, {.window_base = 130});
  }
}

TEST(Attention, NoRowsIsNothing) {
  expect_formula({1, 1, 8, 8}, {4}, {}, {});
}

// A row alone, in chunks and among other sequences has the same bits, with one thread and two.
TEST(Attention, ARowsBitsDoNotDependOnTheOtherRowsOrThreads) {
  const float sinks[] = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int32_t window : {0, 100}) {
      const Shape shape{2, 3, 32, 32, dtype};
      const auto context = make_cpu_context(DType::f32);
      Kv kv(*context, shape, {1100, 70}, 3);
      const AttentionParams params{.n_heads = 6, .scale = 0.2F, .window_base = window, .sinks = {sinks, 6}};
      auto rows = rows_of(0, 0, 1100);
      for (const Row& row : rows_of(1, 0, 70)) rows.push_back(row);
      Rng rng(4);
      Guarded q(1170, 6 * 32), all(1170, 6 * 32), o(1170, 6 * 32);
      q.fill(rng, 3);
      test::with_threads(1, [&] {
        attention(*context, {rows, kv.views(), 0}, all.matrix(), q.matrix(), kv.layer(), params);
      });
      const auto some = [&](int64_t begin, int64_t end) {
        attention(
            *context,
            {std::span(rows).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), kv.views(), 0},
            o.rows(begin, end), q.rows(begin, end), kv.layer(), params);
        for (int64_t m = begin; m < end; ++m) {
          ASSERT_TRUE(same_bits(o.row(m), all.row(m))) << m << " in " << begin << " … " << end << " window " << window;
        }
      };
      for (const int threads : {1, 2}) {
        test::with_threads(threads, [&] {
          some(0, 1170);
          for (int64_t m = 0; m < 1170; m += m % 64 < 3 ? 1 : 23) some(m, m + 1);
          for (int64_t m = 0; m < 1170; m += 97) some(m, std::min<int64_t>(m + 97, 1170));
          some(1000, 1170);
        });
      }
    }
  }
}

// A NaN or infinite value reaches the rows that see it and no other: not the earlier ones, nor those whose window has
// moved on.
TEST(Attention, ANonFiniteValueStaysWithTheRowsThatSeeIt) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const float bad : {NAN, INFINITY}) {
      const Shape shape{1, 2, 16, 16, dtype};
      const auto context = make_cpu_context(DType::f32);
      Kv kv(*context, shape, {200}, 5);
      const AttentionParams params{.n_heads = 2, .scale = 0.25F, .window_base = 20};
      const auto rows = rows_of(0, 0, 200);
      Rng rng(6);
      Guarded q(200, 32), before(200, 32), after(200, 32);
      q.fill(rng);
      attention(*context, {rows, kv.views(), 0}, before.matrix(), q.matrix(), kv.layer(), params);
      kv.v(0, 100, 0, 3) = bad;
      kv.write(*context, 0, 100, 101);
      attention(*context, {rows, kv.views(), 0}, after.matrix(), q.matrix(), kv.layer(), params);
      for (int64_t m = 0; m < 200; ++m) {
        if (m >= 100 && m < 120) {
          EXPECT_FALSE(std::isfinite(after.at(m, 3))) << m;
        } else {
          ASSERT_TRUE(same_bits(after.row(m), before.row(m))) << m;
        }
      }
    }
  }
}

TEST(Attention, FreedBlocksBehindTheWindowAreNotRead) {
  const Shape shape{1, 1, 8, 8};
  const auto context = make_cpu_context(DType::f32);
  Kv kv(*context, shape, {300}, 9);
  const AttentionParams params{.n_heads = 1, .scale = 0.3F, .window_base = 64};
  const auto rows = rows_of(0, 200, 300);
  Rng rng(10);
  Guarded q(100, 8), before(100, 8), after(100, 8);
  q.fill(rng);
  attention(*context, {rows, kv.views(), 0}, before.matrix(), q.matrix(), kv.layer(), params);
  kv.table(0)[0] = kv.table(0)[1] = -1;
  attention(*context, {rows, kv.views(), 0}, after.matrix(), q.matrix(), kv.layer(), params);
  for (int64_t m = 0; m < 100; ++m) ASSERT_TRUE(same_bits(after.row(m), before.row(m)));
}

TEST(KvRead, GivesBackWhatWasWritten) {
  for (const Shape& shape : kShapes) {
    const auto context = make_cpu_context(DType::f32);
    Kv kv(*context, shape, {130}, 11);
    Guarded k(130, int64_t{shape.kv_heads} * shape.k_dim), v(130, int64_t{shape.kv_heads} * shape.v_dim);
    kv_read(*context, kv.views()[0], k.matrix(), v.matrix(), kv.layer());
    for (int64_t t = 0; t < 130; ++t) {
      for (int64_t h = 0; h < shape.kv_heads; ++h) {
        for (int64_t d = 0; d < shape.k_dim; ++d) ASSERT_EQ(k.at(t, h * shape.k_dim + d), kv.k(0, t, h, d));
        for (int64_t d = 0; d < shape.v_dim; ++d) ASSERT_EQ(v.at(t, h * shape.v_dim + d), kv.v(0, t, h, d));
      }
    }
    EXPECT_TRUE(k.intact() && v.intact());
  }
}

}  // namespace
}  // namespace hayfork::engine
