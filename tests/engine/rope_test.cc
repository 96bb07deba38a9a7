#include "engine/kernels/ops.h"
#include "tests/engine/op_support.h"

namespace hayfork::engine {
namespace {

using test::Guarded;

std::vector<Row> rows_at(const std::vector<std::pair<int32_t, int32_t>>& seq_pos) {
  std::vector<Row> rows;
  for (const auto& [seq, pos] : seq_pos) rows.push_back({0, pos, seq, Stream::base, RowKind::prefill, -1});
  return rows;
}

TEST(Rope, RotatesHalfSplitPairsOfEachHeadAndLeavesTheRest) {
  const auto context = make_cpu_context(DType::f32);
  Rng rng(1);
  for (const auto& [head_dim, rotary] : {std::pair<int32_t, int32_t>{8, 8}, {64, 64}, {10, 6}, {33, 32}, {2, 2}}) {
    const int32_t half = rotary / 2;
    RopeTable tables[2];
    for (int32_t i = 0; i < half; ++i) {
      tables[0].inv_freq.push_back(static_cast<float>(std::pow(10000.0, -2.0 * i / rotary)));
      tables[1].inv_freq.push_back(tables[0].inv_freq.back() / 4);
    }
    tables[1].attention_factor = 1.25F;
    const auto rows = rows_at({{0, 0}, {0, 7}, {1, 131071}, {1, 3}});
    const int32_t table_of_seq[] = {0, 1};
    const RopeAngles angles = rope_angles(*context, rows, tables, table_of_seq);
    ASSERT_EQ(angles.half, half);
    Guarded x(3, 3 * head_dim);  // rows 1 … 3 of the pass
    x.fill(rng);
    Guarded before = x;
    rope(*context, x.matrix(), 1, angles, head_dim);
    for (int64_t m = 0; m < 3; ++m) {
      const Row& row = rows[static_cast<size_t>(m + 1)];
      const RopeTable& table = tables[row.seq];
      for (int64_t h = 0; h < 3 * head_dim; h += head_dim) {
        for (int64_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(row.pos) * table.inv_freq[static_cast<size_t>(i)];
          const double c = std::cos(static_cast<double>(angle)) * static_cast<double>(table.attention_factor);
          const double s = std::sin(static_cast<double>(angle)) * static_cast<double>(table.attention_factor);
          const double a = before.at(m, h + i), b = before.at(m, h + half + i);
          ASSERT_NEAR(x.at(m, h + i), a * c - b * s, 5e-7);
          ASSERT_NEAR(x.at(m, h + half + i), b * c + a * s, 5e-7);
        }
        for (int64_t i = rotary; i < head_dim; ++i) ASSERT_EQ(x.at(m, h + i), before.at(m, h + i));
      }
    }
    EXPECT_TRUE(x.intact());
    context->arena().reset();
  }
}

TEST(Rope, ThreadsChangeNothing) {
  const auto context = make_cpu_context(DType::f32);
  Rng rng(2);
  RopeTable table;
  for (int i = 0; i < 32; ++i) table.inv_freq.push_back(1.0F / static_cast<float>(1 + i));
  std::vector<std::pair<int32_t, int32_t>> positions;
  for (int32_t i = 0; i < 300; ++i) positions.emplace_back(0, i);
  const auto rows = rows_at(positions);
  const int32_t table_of_seq[] = {0};
  Guarded x(300, 640), y(0, 1);
  x.fill(rng);
  y = x;
  test::with_threads(1, [&] {
    rope(*context, x.matrix(), 0, rope_angles(*context, rows, {&table, 1}, table_of_seq), 64);
  });
  test::with_threads(2, [&] {
    rope(*context, y.matrix(), 0, rope_angles(*context, rows, {&table, 1}, table_of_seq), 64);
  });
  for (int64_t m = 0; m < 300; ++m) ASSERT_TRUE(test::same_bits(x.row(m), y.row(m)));
}

}  // namespace
}  // namespace hayfork::engine
