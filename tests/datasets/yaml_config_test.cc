#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "datasets/yaml_config.h"

namespace hayfork::datasets {
namespace {

std::string read(std::string_view text, YamlOptions options = {}) {
  return parse_yaml(text, "f.yaml", options).dump();
}

std::string error_of(std::string_view text, YamlOptions options = {}) {
  try {
    ADD_FAILURE() << text << "\nread as " << read(text, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), options.code) << error.what();
    EXPECT_NE(std::string(error.what()).find("f.yaml"), std::string::npos) << error.what();
    return error.what();
  }
  return {};
}

TEST(YamlConfig, ScalarsOfTheCoreSchema) {
  EXPECT_EQ(read("a: 1\nb: -2\nc: 0x1F\nd: 0o17\ne: +5\nf: 010"), R"({"a":1,"b":-2,"c":31,"d":15,"e":5,"f":10})");
  EXPECT_EQ(read("[1.5, .5, 1., 1e3, -2.5E-2, 1e, .e1, '1', \"2\", 1_000, 1:30]"),
            R"([1.5,0.5,1.0,1000.0,-0.025,"1e",".e1","1","2","1_000","1:30"])");
  EXPECT_EQ(read("[null, ~, Null, '', 'null', , ]"), R"([null,null,null,"","null",null])");
  EXPECT_EQ(read("[true, False, TRUE, yes, no, on, off, y]"), R"([true,false,true,"yes","no","on","off","y"])");
  EXPECT_EQ(read("[!!str 1, !!int '7', !!float 2, !!bool 'true', !!null '']"), R"(["1",7,2.0,true,null])");
  EXPECT_EQ(read("[2024-01-01, 512-2k*2, 0-100+10, a b]"), R"(["2024-01-01","512-2k*2","0-100+10","a b"])");
  EXPECT_EQ(read("a: 1\nb: true\nc: ~", {.typed = false}), R"({"a":"1","b":"true","c":null})");
}

TEST(YamlConfig, StructureAndOrder) {
  EXPECT_EQ(read("z: 1\na:\n  - x\n  - {k: v, l: [1, 2]}\nm: {}\n"), R"({"z":1,"a":["x",{"k":"v","l":[1,2]}],"m":{}})");
  EXPECT_EQ(read("text: |\n  two\n  lines\nfolded: >-\n  one\n  line\n"),
            R"({"text":"two\nlines\n","folded":"one line"})");
  EXPECT_EQ(read("base: &b {x: 1}\ncopy: *b\nlist: [&s 5, *s]"), R"({"base":{"x":1},"copy":{"x":1},"list":[5,5]})");
  EXPECT_EQ(read("1: a\ntrue: b\n'q r': c"), R"({"1":"a","true":"b","q r":"c"})");
  EXPECT_EQ(read(""), "null");
  EXPECT_EQ(read("# only a comment\n"), "null");
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "a: 1"),
            R"({"a":1})");
  EXPECT_EQ(read("---\na: 1\n...\n"), R"({"a":1})");
}

TEST(YamlConfig, RefusesWithALine) {
  EXPECT_NE(error_of("a: 1\nb: 2\na: 3\n").find("line 3"), std::string::npos);
  EXPECT_NE(error_of("a: 1\n b: 2\n").find("line 2"), std::string::npos);
  EXPECT_NE(error_of("x: &a {b: 1}\ny: {<<: *a}").find("merge"), std::string::npos);
  EXPECT_NE(error_of("? [1, 2]\n: x").find("key"), std::string::npos);
  EXPECT_NE(error_of("a: !custom x").find("tag"), std::string::npos);
  EXPECT_NE(error_of("a: !custom [x]").find("tag"), std::string::npos);
  EXPECT_NE(error_of("a: *nope").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("a: &x [*x]").find("alias"), std::string::npos);
  EXPECT_NE(error_of("a: .inf").find("finite"), std::string::npos);
  EXPECT_NE(error_of("a: -.INF").find("finite"), std::string::npos);
  EXPECT_NE(error_of("a: 9223372036854775808").find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("a: 1e999").find("range"), std::string::npos);
  EXPECT_NE(error_of("a: !!int x").find("int"), std::string::npos);
  EXPECT_NE(error_of("a: 1\n---\nb: 2\n").find("document"), std::string::npos);
  EXPECT_NE(error_of("a: \xFF").find("UTF-8"), std::string::npos);
  EXPECT_NE(error_of(std::string_view("a: \0", 4)).find("NUL"), std::string::npos);
  EXPECT_FALSE(error_of("a: [1, 2").empty());
  EXPECT_FALSE(error_of("a: \"open").empty());
  EXPECT_FALSE(error_of("\tb: 1").empty());
}

TEST(YamlConfig, LimitsSizeDepthAndAliases) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string previous = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 9; ++k) bomb += (k > 0 ? ", " : "") + previous;
    bomb += "]\n";
  }
  EXPECT_NE(error_of(bomb).find("values"), std::string::npos);
  EXPECT_NE(error_of(std::string(40, '[') + std::string(40, ']')).find("deeper"), std::string::npos);
  EXPECT_FALSE(error_of(std::string(100'000, '[')).empty());
  EXPECT_FALSE(error_of(std::string(100'000, '{')).empty());
  std::string stairs = "a0: &a0 [[[[x]]]]\n";  // each alias deepens what it stands in
  for (int i = 1; i < 12; ++i)
    stairs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [[[*a" + std::to_string(i - 1) + "]]]\n";
  EXPECT_NE(error_of(stairs).find("deeper"), std::string::npos);
  EXPECT_NE(error_of(std::string(2 << 20, 'a')).find("larger"), std::string::npos);
  EXPECT_EQ(error_of("a: [", {.code = ErrorCode::corrupt, .subject = ErrorSubject::data}).empty(), false);
}

}  // namespace
}  // namespace hayfork::datasets
