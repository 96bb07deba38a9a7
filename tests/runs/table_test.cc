// The table renderer: every format on values of every type, and hostile text in each.
#include "runs/report/table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "runs/report/row_table.h"

namespace hayfork::runs {
namespace {

using nlohmann::json;

Table sample_table() {
  Table table;
  table.columns = {{"task"},
                   {"n", Align::left, CellType::integer},
                   {"value", Align::left, CellType::real, 3},
                   {"mem", Align::left, CellType::bytes},
                   {"ok", Align::left, CellType::boolean}};
  table.rows = {{std::string("niah"), int64_t{12345}, 0.93612, int64_t{1} << 30, true},
                {std::string("ruler"), int64_t{7}, Cell{}, Cell{}, false}};
  return table;
}

TEST(Table, AlignsColumnsForPeople) {
  EXPECT_EQ(render("list", "rows", sample_table(), Format::table),
            "task        n  value      mem  ok\n"
            "niah   12 345  0.936  1.0 GiB  yes\n"
            "ruler       7                  no\n");
}

TEST(Table, MarkdownSaysAlignment) {
  EXPECT_EQ(render("list", "rows", sample_table(), Format::md),
            "| task  |      n | value |     mem | ok  |\n"
            "|-------|-------:|------:|--------:|-----|\n"
            "| niah  | 12 345 | 0.936 | 1.0 GiB | yes |\n"
            "| ruler |      7 |       |         | no  |\n");
}

TEST(Table, CsvGivesWholeValues) {
  EXPECT_EQ(render("list", "rows", sample_table(), Format::csv),
            "task,n,value,mem,ok\r\nniah,12345,0.93612,1073741824,1\r\nruler,7,,,0\r\n");
}

TEST(Table, JsonNamesItsSchemaAndKeepsNull) {
  const json out = json::parse(render("list", "runs", sample_table(), Format::json));
  EXPECT_EQ(out["schema"], "hayfork/list/1");
  EXPECT_EQ(out["runs"][0]["mem"], int64_t{1} << 30);
  EXPECT_EQ(out["runs"][0]["ok"], true);
  EXPECT_TRUE(out["runs"][1]["value"].is_null());
  const std::string lines = render("list", "runs", sample_table(), Format::jsonl);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_EQ(json::parse(lines.substr(0, lines.find('\n')))["schema"], "hayfork/list/1");
}

TEST(Table, RecordsAndSectionsShowAsObjectsAndBlocks) {
  Table record;
  record.columns = {{"run_id"}, {"config_json", Align::left, CellType::json}, {"note"}};
  record.rows = {{std::string("r7f3k"), std::string(R"({"a":[1]})"), Cell{}}};
  Document document{"show", {{"run", record, true, "Run", {}}, {"tasks", sample_table(), false, "", {"a note"}}}};
  const json out = json::parse(render(document, Format::json));
  EXPECT_EQ(out["run"]["config_json"]["a"][0], 1);
  EXPECT_EQ(out["tasks"].size(), 2u);
  EXPECT_EQ(render(document, Format::table).substr(0, 55),
            "Run\nrun_id       r7f3k\nconfig_json  {\"a\":[1]}\n\ntask    ");
  EXPECT_NE(render(document, Format::jsonl).find("\"section\":\"tasks\""), std::string::npos);
}

TEST(Table, TerminalsNeverSeeControlCharacters) {
  Table table;
  table.columns = {{"text"}};
  table.rows = {{std::string("a\x1b[31mred\x07\nb\tc\0e\xff", 17)}, {std::string("\u202Eabc")}};
  const std::string out = render("show", "rows", table, Format::table);
  EXPECT_EQ(out, "text\na\\x1b[31mred\\x07\\nb\\tc\\x00e\xEF\xBF\xBD\n\\u202eabc\n");
}

TEST(Table, HeadsAreTextToo) {
  Table table;
  table.columns = {{"a\x1b[2J\u200F\u2028b"}};
  EXPECT_EQ(render("show", "rows", table, Format::table), "a\\x1b[2J\\u200f\\u2028b\n");
  table.rows = {{std::string("x")}};
  Document record{"show", {{"run", table, true, "", {}}}};
  EXPECT_EQ(render(record, Format::table), "a\\x1b[2J\\u200f\\u2028b  x\n");
}

TEST(Table, LongTextIsCutOnlyOnTerminals) {
  Table table;
  table.columns = {{"text"}};
  table.rows = {{std::string(500, 'x')}};
  EXPECT_EQ(render("v", "rows", table, Format::table), "text\n" + std::string(59, 'x') + "…\n");
  EXPECT_NE(render("v", "rows", table, Format::csv).find(std::string(500, 'x')), std::string::npos);
}

TEST(Table, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("e\u0301"), 1);
  EXPECT_EQ(display_width("→"), 1);
}

TEST(CsvField, QuotesAsRfc4180) {
  EXPECT_EQ(csv_field("plain"), "plain");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"hi\"\n"), "\"say \"\"hi\"\"\n\"");
  EXPECT_EQ(csv_field(std::string("a\0b", 3)), "ab");
  EXPECT_EQ(csv_field("\xff"), "\xEF\xBF\xBD");
}

TEST(CsvField, DisarmsFormulas) {
  for (const char* text : {"=1+1", "+1", "-2+3", "@SUM(A1)", " =1", "\t=1", "\tx", "\r=1", "\r\n x", "\n=1",
                           "\uFF1D1+1", "\uFF0B1", "\uFF0D1", "\uFF20A1", "\u00A0=1", "\uFEFF=1"}) {
    const std::string field = csv_field(text);
    EXPECT_EQ(field[field[0] == '"' ? 1 : 0], '\'') << text;
  }
  for (const char* text : {"1-2", " x", "\u00A0x", "", " "}) EXPECT_EQ(csv_field(text).find('\''), std::string::npos);
}

TEST(Csv, NegativeNumbersStayNumbers) {
  Table table;
  table.columns = {{"delta", Align::right, CellType::real}};
  table.rows = {{-0.25}};
  EXPECT_EQ(render("compare", "rows", table, Format::csv), "delta\r\n-0.25\r\n");
}

TEST(LatexText, EscapesEverySpecialCharacter) {
  EXPECT_EQ(latex_text("50% & $x_1^2$ #{~}\\input{/etc/passwd}<>"),
            "50\\% \\& \\$x\\_1\\textasciicircum{}2\\$ \\#\\{\\textasciitilde{}\\}"
            "\\textbackslash{}input\\{/etc/passwd\\}\\textless{}\\textgreater{}");
  EXPECT_EQ(latex_text("a\nb"), "a b");
  EXPECT_EQ(latex_text("[1ex] a [b]"), "{[}1ex] a [b]");  // would be an argument of the row's end above
  EXPECT_EQ(latex_text(" *a*"), " {*}a*");
}

TEST(Latex, TabularHasOneLetterAColumn) {
  const std::string out = render("export", "metrics", sample_table(), Format::latex);
  EXPECT_EQ(out.substr(0, 22), "\\begin{tabular}{lrrrl}");
  EXPECT_NE(out.find("niah & 12 345 & 0.936 & 1.0 GiB & yes \\\\\n"), std::string::npos);
}

TEST(Markdown, EscapesPipesAndTags) {
  Table table;
  table.columns = {{"t"}};
  table.rows = {{std::string("a|b <script>*x*\nc")}};
  EXPECT_NE(render("v", "r", table, Format::md).find("a\\|b &lt;script>\\*x\\* c"), std::string::npos);
}

TEST(Json, InfinityBecomesNullAndBrokenTextIsReplaced) {
  Table table;
  table.columns = {{"x", Align::right, CellType::real}, {"t"}};
  table.rows = {{1.0 / 0.0, std::string("\xc3(")}};
  const json out = json::parse(render("v", "r", table, Format::json));
  EXPECT_TRUE(out["r"][0]["x"].is_null());
  EXPECT_EQ(out["r"][0]["t"], "\xEF\xBF\xBD(");
}

TEST(ParseFormat, ListsWhatThereIs) {
  EXPECT_EQ(parse_format("latex"), Format::latex);
  try {
    parse_format("xml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
    EXPECT_NE(error.detail().next.find("jsonl"), std::string::npos);
  }
}

TEST(TableOf, TakesColumnsFromTheFieldTable) {
  RunListRow row;
  row.run_id = "r7f3k";
  row.wall_s = 72.0;
  row.n_done = 3;
  const Table table = table_of(std::vector<RunListRow>{row}, {"run_id", "wall_s", "n_done", "arch"});
  EXPECT_EQ(render("list", "runs", table, Format::csv), "run_id,wall_s,n_done,arch\r\nr7f3k,72,3,\r\n");
  EXPECT_EQ(display(table.rows[0][1], table.columns[1]), "1m12s");
  EXPECT_THROW(table_of(std::vector<RunListRow>{row}, {"nonsense"}), Error);
}

TEST(Render, RaggedRowsAreOurMistake) {
  Table table = sample_table();
  table.rows.front().pop_back();
  EXPECT_THROW(render("v", "r", table, Format::json), Error);
}

}  // namespace
}  // namespace hayfork::runs
