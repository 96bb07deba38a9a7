#include "engine/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file_map.h"
#include "tests/support/paths.h"

namespace hayfork::engine {
namespace {

using testing::HasSubstr;

// A file with this header text and so many data bytes.
std::string file_of(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t n = header.size();
  std::memcpy(file.data(), &n, 8);
  return file + header + std::string(data_bytes, '\1');
}

std::vector<TensorInfo> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "file");
}

std::string refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_EQ(error.subject(), ErrorSubject::model);
    return error.render();
  }
  return "accepted";
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, int64_t begin,
                  int64_t end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(Safetensors, ListsTensorsInFileOrder) {
  const auto tensors =
      parse(file_of("{" + entry("b", "BF16", "[2,3]", 8, 20) + "," + entry("a", "F32", "[2]", 0, 8) + "," +
                        entry("scalar", "U8", "[]", 20, 21) + "," + entry("none", "F32", "[0,4]", 21, 21) +
                        R"(,"__metadata__":{"format":"pt"}}  )",
                    21));
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[1].dtype, DType::bf16);
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensors[1].end - tensors[1].begin, 12);
  EXPECT_EQ(tensors[2].n_elements(), 1);
  EXPECT_EQ(tensors[3].n_elements(), 0);
}

TEST(Safetensors, KnowsFourBitTypesBySize) {
  EXPECT_EQ(parse(file_of("{" + entry("x", "F4", "[4]", 0, 2) + "}", 2))[0].dtype, DType::other);
  EXPECT_THAT(refusal(file_of("{" + entry("x", "F4", "[3]", 0, 2) + "}", 2)), HasSubstr("12 bits"));
}

TEST(Safetensors, RefusesWhatIsNotOne) {
  EXPECT_THAT(refusal("abc"), HasSubstr("3 bytes"));
  EXPECT_THAT(refusal(file_of("[]", 0)), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal(file_of(" {}", 0)), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal(file_of("{\"a\":", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(file_of("{\"\xff\":1}", 0)), HasSubstr("not valid JSON"));
  EXPECT_EQ(refusal(file_of("{}", 0)), "accepted");
}

TEST(Safetensors, RefusesHugeHeaders) {
  std::string file = file_of("{}", 0);
  uint64_t n = 100'000'001;
  std::memcpy(file.data(), &n, 8);
  EXPECT_THAT(refusal(file), HasSubstr("100000001"));
  n = ~uint64_t{0};
  std::memcpy(file.data(), &n, 8);
  EXPECT_THAT(refusal(file), HasSubstr("header claims"));
}

TEST(Safetensors, RefusesOverlapsHolesAndTails) {
  EXPECT_THAT(refusal(file_of("{" + entry("a", "F32", "[2]", 0, 8) + "," + entry("b", "F32", "[2]", 4, 12) + "}", 12)),
              HasSubstr("overlap"));
  EXPECT_THAT(refusal(file_of("{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "F32", "[1]", 8, 12) + "}", 12)),
              HasSubstr("holes"));
  EXPECT_THAT(refusal(file_of("{" + entry("a", "F32", "[1]", 4, 8) + "}", 8)), HasSubstr("begins at byte 4"));
  EXPECT_THAT(refusal(file_of("{" + entry("a", "F32", "[2]", 0, 8) + "}", 7)), HasSubstr("cut short"));
  EXPECT_THAT(refusal(file_of("{" + entry("a", "F32", "[2]", 0, 8) + "}", 9)), HasSubstr("the data at 9"));
}

TEST(Safetensors, RefusesWrongEntries) {
  const auto with = [](const std::string& text) { return refusal(file_of("{\"t\":" + text + "}", 4)); };
  EXPECT_THAT(with("3"), HasSubstr("no valid object"));
  EXPECT_THAT(with(R"({"dtype":"F33","shape":[1],"data_offsets":[0,4]})"), HasSubstr("unknown dtype"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), HasSubstr("no valid shape"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), HasSubstr("no valid shape"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), HasSubstr("data_offsets give"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), HasSubstr("no valid data_offsets"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), HasSubstr("takes 64 bits"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]})"), HasSubstr("overflows"));
  EXPECT_THAT(with(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})"), HasSubstr("key \"x\""));
  EXPECT_THAT(refusal(file_of("{" + entry("a", "U8", "[4]", 0, 4) + "," + entry("a", "U8", "[4]", 0, 4) + "}", 4)),
              HasSubstr("stands twice"));
  EXPECT_THAT(refusal(file_of(R"({"__metadata__":{"a":1}})", 0)), HasSubstr("not a string"));
}

TEST(Safetensors, ReadsBackWhatItWrites) {
  const test::TempDir dir;
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<bf16> b = {to_bf16(0.5F), to_bf16(-2)};
  const std::vector<TensorOut> out = {{"b", DType::bf16, {2}, b.data()}, {"a", DType::f32, {2, 3}, a.data()}};
  write_safetensors(dir.path() / "x.safetensors", out);
  const SafetensorsFile file(dir.path() / "x.safetensors");
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");  // larger types first
  EXPECT_EQ(file.tensors()[0].begin % 8, 0);
  const TensorInfo* found = file.find("a");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(std::memcmp(file.bytes(*found).data(), a.data(), sizeof(float) * a.size()), 0);
  EXPECT_EQ(file.find("c"), nullptr);
  file.drop(*found);
  EXPECT_EQ(std::memcmp(file.bytes(*found).data(), a.data(), sizeof(float) * a.size()), 0);  // read again from disk
}

TEST(Safetensors, WritingToAMissingFolderIsADiskError) {
  try {
    write_safetensors("/nonexistent/x.safetensors", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.subject(), ErrorSubject::disk);
  }
}

}  // namespace
}  // namespace hayfork::engine
