#include "base/base.h"

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/support/paths.h"

namespace hayfork {
namespace {

TEST(Units, RangesStepOrMultiply) {
  EXPECT_EQ(parse_counts("512-2k*2", "--lengths"), (std::vector<int64_t>{512, 1024, 2048}));
  EXPECT_EQ(parse_counts("4k,8K,100", "--lengths"), (std::vector<int64_t>{4096, 8192, 100}));
  EXPECT_EQ(parse_numbers("0-100+25", "--depths"), (std::vector<double>{0, 25, 50, 75, 100}));
}

TEST(Units, RefusesWhatItCannotRead) {
  for (const char* text : {"", "a", "1,,2", "10-5+1", "1-9", "0-8*2", "1-2*1", "-3", "1.5", "nan", "1e999"}) {
    EXPECT_THROW(parse_counts(text, "--lengths"), Error) << text;
  }
}

TEST(Sha256, MatchesTheStandardsExample) {  // FIPS 180-2, appendix B.1
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(CanonicalJson, SortsKeysAndDropsBlanks) {
  EXPECT_EQ(canonical_json(nlohmann::json::parse(R"({"b": 1.5, "a": ["x", null]})")), R"({"a":["x",null],"b":1.5})");
}

TEST(Errors, AreFourLinesAtMostWhateverTheyName) {
  const std::string hostile = "a\nb" + std::string(5000, 'x') + "\xC3\xA9";
  const std::string text =
      Error(ErrorCode::corrupt, ErrorSubject::data, hostile, {.where = hostile, .why = hostile, .next = hostile})
          .render();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_LT(text.size(), 4 * 620u);
  EXPECT_EQ(text.find("error: a\\nbxxx"), 0u);
  EXPECT_EQ(find_invalid_utf8(text), std::nullopt);
}

TEST(Files, AreWholeOrAbsentAndNeverReplaceADevice) {
  const test::TempDir folder;
  const auto file = folder.path() / "file", link = folder.path() / "link";
  write_file_atomically(file, "one");
  std::filesystem::create_symlink("file", link);
  write_file_atomically(link, "two");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_file(file, ErrorSubject::data), "two");
  write_file_atomically("/dev/null", "three");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(read_file("/dev/null", ErrorSubject::data), "");
  EXPECT_THROW(write_file_atomically(folder.path(), "x"), Error);
  EXPECT_THROW(write_file_atomically(folder.path() / "no" / "file", "x"), Error);
  EXPECT_THROW(read_file(file, ErrorSubject::data, 2), Error);
  EXPECT_THROW(read_file("/dev/zero", ErrorSubject::data, 1 << 20), Error);
  EXPECT_THROW(read_file(folder.path(), ErrorSubject::data), Error);
  EXPECT_THROW(FileMap(folder.path() / "none", ErrorSubject::data), Error);
  { const AtomicFile abandoned(folder.path() / "abandoned"); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(Files, ThatCannotBeLookedAtAreNeitherThereNorNot) {
  const test::TempDir folder;
  const auto circle = folder.path() / "circle";
  std::filesystem::create_symlink("circle", circle);
  EXPECT_THROW(file_exists(circle, ErrorSubject::model), Error);
  EXPECT_FALSE(file_exists(folder.path() / "none", ErrorSubject::model));
  EXPECT_TRUE(folder_exists(folder.path(), ErrorSubject::model));
}

TEST(ParseJson, RefusesDuplicatesAndDepth) {
  EXPECT_THROW(parse_json(R"({"a":1,"a":2})", "x.json", ErrorSubject::model), Error);
  EXPECT_NO_THROW(parse_json(R"([{"a":1},{"a":2}])", "x.json", ErrorSubject::model));
  EXPECT_THROW(parse_json(std::string(100, '[') + std::string(100, ']'), "x.json", ErrorSubject::model), Error);
  EXPECT_THROW(parse_json("{", "x.json", ErrorSubject::model), Error);
}

TEST(ParseJson, ReadsPythonLiteralsOutsideStrings) {
  const auto v =
      parse_json(R"({"a": -Infinity, "b": "Infinity", "c": NaN})", "x", ErrorSubject::model, {.python_literals = true});
  EXPECT_EQ(v["a"]["__float__"], "-Infinity");
  EXPECT_EQ(v["b"], "Infinity");
  EXPECT_EQ(v["c"]["__float__"], "NaN");
}

TEST(Utf8, ReplacesByMaximalSubparts) {  // Unicode 15, table 3-8
  EXPECT_EQ(replace_invalid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63"), "a\uFFFD\uFFFD\uFFFDb\uFFFDc");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(find_invalid_utf8("ok\xFF"), std::optional<size_t>(2));
  EXPECT_EQ(incomplete_utf8_tail("a\xE4\xB8"), 2u);
  EXPECT_EQ(incomplete_utf8_tail("a\xE4\xB8\xAD"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\xED\xA0"), 0u);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f).bits, to_bf16(1.0f).bits);
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f + 0x1p-12f).bits, 0x3F81);
  EXPECT_EQ(to_float(f16{0x3C00}), 1.0f);
  EXPECT_EQ(to_float(f16{0x0001}), 0x1p-24f);
}

TEST(ParallelFor, CoversEveryItemOnceAndRethrows) {
  std::vector<int> seen(1000);
  parallel_for(1000, 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) ++seen[static_cast<size_t>(i)];
  });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 1000);
  EXPECT_THROW(
      parallel_for(8, 1, [](int64_t, int64_t) { throw Error(ErrorCode::internal, ErrorSubject::general, "x"); }),
      Error);
}

TEST(ErrorText, HasAtMostFourLines) {
  const Error e(ErrorCode::corrupt, ErrorSubject::model, "bad file", {"here", "because", "do that"});
  EXPECT_EQ(e.render(), "error: bad file\n  where here\n  why   because\n  next  do that\n");
  EXPECT_EQ(exit_code(e), 7);
  EXPECT_STREQ(e.what(), "bad file (here; because)");
}

}  // namespace
}  // namespace hayfork
