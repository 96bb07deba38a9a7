#include "runs/token_losses.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/half.h"
#include "runs/zstd.h"

namespace hayfork::runs {
namespace {

using ::testing::ElementsAre;

std::vector<float> round_trip(const std::vector<float>& nll) {
  const std::vector<ArtefactRow> artefacts = {token_nll_artefact(nll)};
  return token_losses(artefacts).value().nll;
}

TEST(TokenLosses, EveryHalfComesBackAsItWas) {
  std::vector<float> all;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(f16{static_cast<uint16_t>(bits)});
    if (!std::isnan(value)) all.push_back(value);
  }
  EXPECT_EQ(round_trip(all), all);
}

TEST(TokenLosses, OthersGoToTheNearestHalfTiesToEven) {
  const float step = 0x1p-10F;  // between halves from 1 to 2
  EXPECT_THAT(round_trip({1 + step / 4, 1 + step / 2, 1 + step * 1.5F, 1 + step * 0.75F, 65519.0F, 65520.0F, 0x1p-26F}),
              ElementsAre(1, 1, 1 + 2 * step, 1 + step, 65504, std::numeric_limits<float>::infinity(), 0));
  EXPECT_TRUE(std::isnan(round_trip({NAN}).front()));
}

TEST(TokenLosses, ASampleWithoutThemHasNone) {
  EXPECT_FALSE(token_losses({}).has_value());
  const std::vector<ArtefactRow> other = {token_places_artefact(std::vector<TextRange>{{0, 1}})};
  EXPECT_FALSE(token_losses(other).has_value());
}

void expect_corrupt(const std::vector<ArtefactRow>& artefacts) {
  try {
    token_losses(artefacts);
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_EQ(error.subject(), ErrorSubject::database);
  }
}

TEST(TokenLosses, DamagedBytesAreRefused) {
  const std::vector<float> nll = {1, 2, 3};
  const ArtefactRow good = token_nll_artefact(nll);
  ArtefactRow bad = good;
  bad.body->bytes.resize(bad.body->bytes.size() - 1);
  expect_corrupt({bad});
  bad.body = Blob{"not a frame"};
  expect_corrupt({bad});
  bad.body.reset();
  expect_corrupt({bad});
  bad.body = Blob{zstd_compress("odd")};
  expect_corrupt({bad});
  bad.body = Blob{zstd_compress(std::string(size_t{1} << 26, '\0'))};  // a small frame that claims 64 MB
  expect_corrupt({bad});
  expect_corrupt({good, token_places_artefact(std::vector<TextRange>{{0, 1}, {1, 2}})});
}

// The example of LongPPL's slices: tokens 9, 10 and 12 of one character each, merged where they touch.
TEST(KeyMarks, ATokenIsKeyWhenAllOfItLiesInOneSlice) {
  const std::vector<TextRange> spans = key_spans("[[8, 10], [11, 12]]");
  EXPECT_THAT(spans, ElementsAre(TextRange{8, 10}, TextRange{11, 12}));
  const std::vector<TextRange> places = {{0, 8}, {8, 9},  {9, 10}, {10, 11}, {11, 12}, {8, 10},
                                         {7, 9}, {9, 11}, {9, 12}, {8, 8},   {12, 13}};
  EXPECT_THAT(key_marks(places, spans), ElementsAre(0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(key_marks(places, {}), ::testing::Each(0));
}

TEST(KeySpans, OthersThanAscendingPairsAreRefused) {
  EXPECT_TRUE(key_spans("[]").empty());
  for (const char* bad : {"", "{}", "[1]", "[[1]]", "[[1,2,3]]", "[[2,1]]", "[[-1,2]]", "[[0,5],[4,6]]", "[[0,1.5]]",
                          "[[0,9999999999]]", "[[0,1]"}) {
    SCOPED_TRACE(bad);
    EXPECT_THROW(key_spans(bad), Error);
  }
}

}  // namespace
}  // namespace hayfork::runs
