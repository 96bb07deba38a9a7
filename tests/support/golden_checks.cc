#include "tests/support/golden_checks.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/parallel.h"
#include "tests/support/golden_model.h"

namespace hayfork::test {

void check_golden(const std::filesystem::path& folder, double tolerance) {
  SCOPED_TRACE(folder.filename().string());
  set_threads(1);  // matrices this small are slower on several
  GoldenModel golden(folder, engine::DType::f32);
  double worst = 0, worst_decode = 0;
  for (const GoldenModel::Sequence& sequence : golden.sequences()) {
    ASSERT_FALSE(sequence.logits64.empty());
    const auto whole = golden.logits(sequence.ids, 0);
    ASSERT_EQ(whole.size(), sequence.logits64.size());
    worst = std::max(worst, relative_max(whole, sequence.logits64));
    EXPECT_LE(relative_max(whole, sequence.logits64), tolerance) << sequence.ids.size() << " ids";
    EXPECT_LE(relative_l2(whole, sequence.logits64), 1e-5) << sequence.ids.size() << " ids";
    for (const int32_t chunk : {1, 16}) {
      EXPECT_TRUE(golden.logits(sequence.ids, chunk) == whole) << "other bits in passes of " << chunk;
    }
    const std::vector<float> last_row(whole.end() - golden.model().info().vocab_size, whole.end());
    EXPECT_TRUE(golden.last_logits(sequence.ids, 0) == last_row) << "other bits when one row is wanted";
    EXPECT_TRUE(golden.last_logits(sequence.ids, 16) == last_row) << "other bits when one row is wanted";
    set_threads(3);
    EXPECT_TRUE(golden.logits(sequence.ids, 0) == whole) << "other bits with three threads";
    set_threads(1);
    const auto decoded = golden.logits(sequence.ids, 1, engine::RowKind::decode);
    worst_decode = std::max(worst_decode, relative_max(decoded, sequence.logits64));
    EXPECT_LE(relative_max(decoded, sequence.logits64), tolerance) << "decode rows";
    if (sequence.k_last.empty()) continue;
    std::vector<float> k, v;
    const auto last = static_cast<int32_t>(golden.model().state_specs().size()) - 1;
    golden.kv(sequence.ids, 16, last, k, v);
    EXPECT_LE(relative_l2(k, sequence.k_last), tolerance);
    EXPECT_LE(relative_l2(v, sequence.v_last), tolerance);
  }
  std::printf("  %-28s largest error %.1e of the largest logit (decode rows %.1e)\n", folder.filename().c_str(), worst,
              worst_decode);
}

void check_golden_bf16(const std::filesystem::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  set_threads(1);
  GoldenModel golden(folder, engine::DType::bf16);
  for (const GoldenModel::Sequence& sequence : golden.sequences()) {
    if (sequence.logits_bf16.empty() || sequence.ids.size() < 2) continue;  // one position says little
    const double ours = rms(golden.logits(sequence.ids, 0), sequence.logits64);
    const double theirs = rms(sequence.logits_bf16, sequence.logits64);
    std::printf("  %-28s bf16 rms %.4f, reference %.4f\n", folder.filename().c_str(), ours, theirs);
    EXPECT_LE(ours, 1.5 * theirs) << sequence.ids.size() << " ids";
  }
}

}  // namespace hayfork::test
