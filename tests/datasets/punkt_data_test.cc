// Sentence spans of NLTK 3.9.1 and 3.10.4 on invented cases and on the essays.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "base/utf8.h"
#include "datasets/haystack.h"
#include "datasets/ruler/fit.h"
#include "datasets/ruler/punkt.h"
#include "datasets/ruler/sources.h"
#include "tests/support/paths.h"

namespace hayfork::datasets {
namespace {

using nlohmann::json;

std::vector<Span> spans(const json& value) {
  std::vector<Span> out;
  for (const json& s : value) out.emplace_back(s[0], s[1]);
  return out;
}

TEST(PunktData, SpansEqualNltks) {
  HAY_NEED_DATA(folder, "ruler");
  const json golden = json::parse(test::read_xz(folder / "golden_punkt.json.xz"));
  const Punkt older = Punkt::load(folder / "punkt_english"), newer = Punkt::load(folder / "punkt_english", true);
  int n = 0;
  for (const json& c : golden["cases"]) {
    const std::u32string text = to_code_points(c["text"].get<std::string>());
    EXPECT_EQ(older.sentences(text), spans(c["spans"])) << c["text"];
    EXPECT_EQ(newer.sentences(text), spans(c.value("spans_nltk_3_10_4", c["spans"]))) << c["text"];
    ++n;
  }
  EXPECT_EQ(n, 284);
}

TEST(PunktData, EssaySpansEqualNltks) {
  HAY_NEED_DATA(folder, "ruler");
  HAY_NEED_DATA(essays, "niah/PaulGrahamEssays");
  const json golden = json::parse(test::read_xz(folder / "golden_punkt.json.xz"));
  const Punkt punkt = Punkt::load(folder / "punkt_english");
  for (const auto& [name, want] : golden["files"].items())
    EXPECT_EQ(punkt.sentences(to_code_points(read_file(essays / name, ErrorSubject::data))), spans(want)) << name;
  const std::string all = load_haystack(essays).text;
  EXPECT_EQ(punkt.sentences(to_code_points(all)), spans(golden["essays_raw"]["spans"]));
  const std::vector<std::string> words = essay_words(all);
  EXPECT_EQ(words.size(), 111877u);
  EXPECT_EQ(punkt.sentences(to_code_points(join(words, " "))), spans(golden["essays_normalised"]["spans"]));
}

}  // namespace
}  // namespace hayfork::datasets
