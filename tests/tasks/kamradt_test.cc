#include "tasks/kamradt.h"

#include <gtest/gtest.h>

#include "tests/support/byte_tokenizer.h"

namespace hayfork::tasks {
namespace {

Ids bytes(std::string_view text) {
  return test::ByteTokenizer().encode(text);
}
std::string text_of(const Ids& ids) {
  return test::ByteTokenizer().decode(ids);
}
const Ids kStop = {'.'};

TEST(Kamradt, WalksBackToAFullStopOrToTheStart) {
  const std::vector<Ids> needle = {bytes("[N]")};
  const auto at = [&](double depth) {
    return text_of(kamradt_context(bytes("One. Two three. Four five six"), needle, kStop, 100, 0, depth).ids);
  };
  EXPECT_EQ(at(0), "[N]One. Two three. Four five six");
  EXPECT_EQ(at(10), "[N]One. Two three. Four five six");
  EXPECT_EQ(at(50), "One.[N] Two three. Four five six");
  EXPECT_EQ(at(99), "One. Two three.[N] Four five six");
  EXPECT_EQ(at(100), "One. Two three. Four five six[N]");
}

TEST(Kamradt, CutsTheHaystackToLengthMinusBufferAndNeedle) {
  const std::vector<Ids> needle = {bytes("[N]")};
  EXPECT_EQ(kamradt_context(bytes(std::string(500, 'a')), needle, kStop, 300, 200, 50).ids.size(), 100u);
  EXPECT_THROW(kamradt_context(bytes("aaa"), needle, kStop, 203, 200, 50), Error);
}

TEST(Kamradt, SeveralNeedlesStandApartAndMoveTheEarlierOnes) {
  const std::vector<Ids> needles = {bytes("[1]"), bytes("[2]")};
  const KamradtContext c = kamradt_context(bytes("Aa. Bb. Cc. Dd. Ee. Ff."), needles, kStop, 100, 0, 20);
  EXPECT_EQ(text_of(c.ids), "Aa.[1] Bb. Cc.[2] Dd. Ee. Ff.");
  EXPECT_EQ(c.needle_at, (std::vector<int64_t>{3, 14}));
}

TEST(Kamradt, SigmoidDepthsAreTheOriginals) {
  const std::vector<double> d = sigmoid_depths(35);
  ASSERT_EQ(d.size(), 35u);
  const std::vector<double> head = {0,      0.896, 1.199,  1.602,  2.138,  2.849,  3.786, 5.016, 6.617, 8.683,
                                    11.316, 14.62, 18.685, 23.569, 29.269, 35.704, 42.7,  50,    57.3};
  for (size_t i = 0; i < head.size(); ++i) EXPECT_DOUBLE_EQ(d[i], head[i]) << i;
  EXPECT_DOUBLE_EQ(d[33], 99.104);
  EXPECT_EQ(d[34], 100);
}

}  // namespace
}  // namespace hayfork::tasks
