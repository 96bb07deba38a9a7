// Needle positions and contexts of the original program on its 49 essays with a byte tokenizer, file names sorted.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "datasets/haystack.h"
#include "tasks/haystack_ids.h"
#include "tasks/kamradt.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/paths.h"

namespace hayfork::tasks {
namespace {

TEST(KamradtData, InsertionEqualsTheOriginalByteForByte) {
  HAY_NEED_DATA(folder, "niah");
  const auto golden = nlohmann::json::parse(read_file(folder / "golden_insertion_bytes.json", ErrorSubject::data));
  const datasets::Haystack essays = datasets::load_haystack(folder / "PaulGrahamEssays");
  ASSERT_EQ(essays.files.size(), 49u);
  ASSERT_EQ(essays.text.size(), 644051u);
  const test::ByteTokenizer tokenizer;
  const std::vector<Ids> needle = {tokenizer.encode(golden["needle"].get<std::string>())};
  int n = 0;
  for (const auto& row : golden["rows"]) {
    const int64_t length = row["context_length"];
    const Ids hay = kamradt_haystack(tokenizer, std::string_view(essays.text).substr(0, 400000), length);
    const KamradtContext c =
        kamradt_context(hay, needle, Ids{'.'}, length, golden["final_context_length_buffer"], row["depth_percent"]);
    EXPECT_EQ(c.needle_at[0], row["needle_byte_offset"].get<int64_t>()) << row;
    EXPECT_EQ(static_cast<int64_t>(c.ids.size()), row["context_bytes"].get<int64_t>());
    std::string bytes;
    for (const int32_t id : c.ids) bytes += static_cast<char>(id);
    EXPECT_EQ(sha256_hex(bytes), row["sha256"].get<std::string>()) << row;
    ++n;
  }
  EXPECT_EQ(n, static_cast<int>(golden["rows"].size()));
  EXPECT_GE(n, 20);
}

// Sentence ends of the essays, against the rule written down again over characters.
TEST(KamradtData, SentenceEdgesFollowTheRuleOnTheEssays) {
  HAY_NEED_DATA(folder, "niah");
  const datasets::Haystack essays = datasets::load_haystack(folder / "PaulGrahamEssays");
  const test::ByteTokenizer tokenizer;
  const HaystackIds hay(essays, tokenizer);
  ASSERT_EQ(hay.size(), static_cast<int64_t>(essays.text.size()));
  Ids ids;
  std::vector<Edge> edges;
  hay.read(0, hay.size(), ids, edges);
  int64_t n_sentence = 0;
  const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  for (size_t i = 1; i < essays.text.size(); ++i) {
    size_t p = i;
    while (p > 0 && (essays.text[p - 1] == '"' || essays.text[p - 1] == '\'' || essays.text[p - 1] == ')' ||
                     essays.text[p - 1] == ']' || essays.text[p - 1] == '}'))
      --p;
    const bool stop = p > 0 && std::string_view(".!?").find(essays.text[p - 1]) != std::string_view::npos;
    const bool want = stop && is_blank(essays.text[i]);
    n_sentence += want;
    if (want) {
      ASSERT_EQ(edges[i], Edge::sentence) << i << " " << essays.text.substr(i - 10, 20);
    }
  }
  EXPECT_GT(n_sentence, 4000);
  EXPECT_LE(std::count(edges.begin(), edges.end(), Edge::sentence), n_sentence + 200);  // + those after “ … ” and …
}

}  // namespace
}  // namespace hayfork::tasks
