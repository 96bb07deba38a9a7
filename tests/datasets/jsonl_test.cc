#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "datasets/jsonl.h"
#include "tests/support/paths.h"

namespace hayfork::datasets {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Json> read(std::string_view text, JsonlOptions options = {}) {
  JsonlReader reader(text, "f.jsonl", options);
  std::vector<Json> values;
  for (Json value; reader.next(value);) values.push_back(value);
  return values;
}

std::string error_of(std::string_view text, JsonlOptions options = {}) {
  try {
    const size_t n = read(text, options).size();
    ADD_FAILURE() << n << " values read from " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    EXPECT_EQ(error.subject(), ErrorSubject::data) << error.what();
    return error.what();
  }
  return {};
}

TEST(Jsonl, ReadsLinesWithEveryEnd) {
  EXPECT_EQ(read("{\"a\":1}\n{\"a\":2}\r\n\n  \t\r\n{\"a\":3}").size(), 3u);
  EXPECT_EQ(read("\xEF\xBB\xBF{\"a\":1}\n").at(0).at("a"), 1);
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("\xEF\xBB\xBF").empty());
  EXPECT_TRUE(read("\n\n\r\n").empty());
  EXPECT_EQ(read(R"({"b":1,"a":{"z":1,"y":2}})").at(0).dump(), R"({"b":1,"a":{"z":1,"y":2}})");  // order kept
  EXPECT_EQ(read("{\"t\":\"\\u0000 \\ud83d\\ude00\"}").at(0).at("t").get<std::string>(),
            std::string("\0 \xF0\x9F\x98\x80", 6));
}

TEST(Jsonl, NamesLineAndByteOfAFault) {
  EXPECT_NE(error_of("{\"a\":1}\n\n{\"a\":}\n").find("f.jsonl, line 3"), std::string::npos);
  EXPECT_NE(error_of("{\"a\":1} {\"a\":2}\n").find("line 1"), std::string::npos);
  const std::string utf8 = error_of("{\"a\":1}\n{\"a\":\"x\xFFy\"}\n");
  EXPECT_NE(utf8.find("line 2"), std::string::npos) << utf8;
  EXPECT_NE(utf8.find("0xFF"), std::string::npos) << utf8;
  EXPECT_NE(utf8.find("byte 15 "), std::string::npos) << utf8;
  const std::string marked = error_of("\xEF\xBB\xBF{\"a\":\"\xC3\"}");  // the mark's three bytes count
  EXPECT_NE(marked.find("byte 9 "), std::string::npos) << marked;
  EXPECT_NE(error_of(std::string_view("{\"a\":\"\0\"}", 9)).find("NUL byte at byte 6 "), std::string::npos);
  EXPECT_NE(error_of("[1]\n").find("no JSON object"), std::string::npos);
  EXPECT_NE(error_of(std::string_view("\xFF\xFE{\0", 4)).find("UTF-16"), std::string::npos);
}

TEST(Jsonl, OptionsSayWhatIsLetThrough) {
  EXPECT_EQ(read("{\"a\":\"x\xFFy\"}", {.invalid_utf8 = InvalidUtf8::replace}).at(0).at("a"), "x\xEF\xBF\xBDy");
  EXPECT_NE(error_of(R"({"a":1,"a":2})").find("stands twice"), std::string::npos);
  EXPECT_EQ(read(R"({"a":1,"b":3,"a":2})", {.duplicate_keys = DuplicateKeys::last}).at(0).dump(), R"({"a":2,"b":3})");
  EXPECT_EQ(read("[1]\n\"x\"\nnull", {.objects_only = false}).size(), 3u);
  EXPECT_NE(error_of("{\"a\":[[[[1]]]]}", {.max_depth = 3}).find("deeper"), std::string::npos);
  EXPECT_NE(error_of("{\"a\":NaN}").find("line 1"), std::string::npos);
  EXPECT_EQ(read("{\"a\":NaN}", {.python_literals = true}).size(), 1u);
}

TEST(Jsonl, LimitsALineAndNotTheFile) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "{\"a\":\"" + std::string(90, 'x') + "\"}\n";
  EXPECT_EQ(read(text, {.max_line_bytes = 100}).size(), 100u);
  const std::string error = error_of(text, {.max_line_bytes = 97});
  EXPECT_NE(error.find("line 1"), std::string::npos) << error;
  EXPECT_NE(error_of(std::string(100'000, '['), {.objects_only = false}).find("line 1"), std::string::npos);
}

TEST(Jsonl, ReadsFilesBlockByBlock) {
  const test::TempDir folder;
  const auto path = folder.path() / "long.jsonl";
  {
    std::ofstream file(path, std::ios::binary);
    for (int i = 0; i < 3000; ++i) file << "{\"i\":" << i << ",\"t\":\"" << std::string(i % 200, 'y') << "\"}\r\n";
    file << "{\"i\":3000,\"t\":\"" << std::string(300'000, 'z') << "\"}";
  }
  JsonlReader reader(path);
  Json value;
  for (int i = 0; i <= 3000; ++i) {
    ASSERT_TRUE(reader.next(value));
    EXPECT_EQ(value.at("i"), i);
    EXPECT_EQ(reader.line(), i + 1);
  }
  EXPECT_EQ(value.at("t").get<std::string>().size(), 300'000u);
  EXPECT_FALSE(reader.next(value));
  EXPECT_THROW(JsonlReader(folder.path() / "none.jsonl"), Error);
  EXPECT_THROW(JsonlReader(folder.path()), Error);
}

}  // namespace
}  // namespace hayfork::datasets
