#include <gtest/gtest.h>

#include "datasets/csv.h"

namespace hayfork::datasets {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows read(std::string_view text, CsvOptions options = {.header = false}) {
  CsvReader reader(text, "f.csv", options);
  Rows rows;
  for (std::vector<std::string> row; reader.next(row);) rows.push_back(row);
  return rows;
}

std::string error_of(std::string_view text, CsvOptions options = {.header = false}) {
  try {
    const size_t n = read(text, options).size();
    ADD_FAILURE() << n << " rows read from " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    return error.what();
  }
  return {};
}

TEST(Csv, FieldsOfRfc4180) {
  EXPECT_EQ(read("aaa,bbb,ccc\r\nzzz,yyy,xxx"), (Rows{{"aaa", "bbb", "ccc"}, {"zzz", "yyy", "xxx"}}));
  EXPECT_EQ(read("\"aaa\",\"b \r\nbb\",\"ccc\"\r\n"), (Rows{{"aaa", "b \r\nbb", "ccc"}}));
  EXPECT_EQ(read("\"aaa\",\"b\"\"bb\",\"c,c\"\n"), (Rows{{"aaa", "b\"bb", "c,c"}}));
  EXPECT_EQ(read(",\"\", x \n,,\n"), (Rows{{"", "", " x "}, {"", "", ""}}));
  EXPECT_EQ(read("a\rb\r\nc\n\n\r\nd"), (Rows{{"a"}, {"b"}, {"c"}, {"d"}}));
  EXPECT_EQ(read("a\"b,5\" disk\n"), (Rows{{"a\"b", "5\" disk"}}));  // a quote inside a bare field is text
  EXPECT_EQ(read("a\tb,c\n", {.delimiter = '\t', .header = false}), (Rows{{"a", "b,c"}}));
  EXPECT_EQ(read("\xEF\xBB\xBF\"\xC3\xA9\",x"), (Rows{{"\xC3\xA9", "x"}}));
  EXPECT_TRUE(read("").empty());
  EXPECT_TRUE(read("\r\n\n").empty());
}

TEST(Csv, HeaderAndLines) {
  CsvReader reader("id,text\n1,\"two\nlines\"\n\n2,x\n", "f.csv");
  EXPECT_EQ(reader.header(), (std::vector<std::string>{"id", "text"}));
  std::vector<std::string> row;
  ASSERT_TRUE(reader.next(row));
  EXPECT_EQ(reader.line(), 2);
  ASSERT_TRUE(reader.next(row));
  EXPECT_EQ(reader.line(), 5);
  EXPECT_EQ(reader.where(), "f.csv, line 5");
  EXPECT_FALSE(reader.next(row));
  EXPECT_NE(error_of("a,b,a\n", {}).find("twice"), std::string::npos);
  EXPECT_NE(error_of("", {}).find("no header"), std::string::npos);
}

TEST(Csv, NamesTheLineOfAFault) {
  EXPECT_NE(error_of("a,b\n\"x\ny\",2\n1\n").find("line 4"), std::string::npos);
  EXPECT_NE(error_of("a,b\n1,2,3\n").find("3 fields, the first row 2"), std::string::npos);
  EXPECT_NE(error_of("a,b\n1,\"open\n\n\n").find("line 2"), std::string::npos);
  EXPECT_NE(error_of("a\n\"x\"y\n").find("behind the closing quote"), std::string::npos);
  EXPECT_NE(error_of("a\nb\xFF\n").find("byte 3 "), std::string::npos);
  EXPECT_NE(error_of(std::string_view("a\n\0\n", 4)).find("NUL"), std::string::npos);
  EXPECT_EQ(read("a\nb\xFF\n", {.header = false, .invalid_utf8 = InvalidUtf8::replace}),
            (Rows{{"a"}, {"b\xEF\xBF\xBD"}}));
}

TEST(Csv, LimitsFieldsAndRows) {
  EXPECT_EQ(read(std::string(100, 'x'), {.header = false, .max_field_bytes = 100}).size(), 1u);
  EXPECT_NE(error_of(std::string(101, 'x'), {.header = false, .max_field_bytes = 100}).find("too long"),
            std::string::npos);
  EXPECT_NE(error_of("\"" + std::string(101, '\n') + "\"", {.header = false, .max_field_bytes = 100}).find("too long"),
            std::string::npos);
  EXPECT_EQ(read(std::string(99, ','), {.header = false, .max_fields = 100}).at(0).size(), 100u);
  EXPECT_NE(error_of(std::string(100, ','), {.header = false, .max_fields = 100}).find("too many"), std::string::npos);
}

}  // namespace
}  // namespace hayfork::datasets
