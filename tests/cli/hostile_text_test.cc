// Names, tags and notes made to break terminals, tables and pictures: every format gives them back escaped.
#include "base/utf8.h"
#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

// Every one in one name: escape sequences, markup, formulas, separators, text direction, a broken character.
const std::string kHostile =
    "=cmd|' /C calc'!A0,\"q\" <script>alert(1)</script> & $x_1^2$ \\end{tabular} \\input{/etc/passwd} | `a` "
    "\x1b]0;t\x07"
    "\x1b[31m\r\xE2\x80\xAE \xC2\x9B\x33\x31m";

// The flag takes a list, so no comma in it.
const std::string kTag = "<b>=1 \x1b[31m $x$";

class HostileTextTest : public test::BadInputTest {
 protected:
  void SetUp() override {
    model_ = copy_of_demo("m \x1b[31m<b>&_$%#=1,\"x\"");
    const ProcessResult result =
        run_niah(model_, {"--name", kHostile, "--tag", kTag, "--note", kHostile + "\nsecond line"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out.find('\x1b'), std::string::npos);
    EXPECT_EQ(result.err.find('\x1b'), std::string::npos);
  }
  static void expect_clean(const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      EXPECT_TRUE(c >= 0x20 || c == '\n' || c == '\t') << "control character " << int{c} << " at " << i;
      EXPECT_NE(c, 0x7F);
    }
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt);
    EXPECT_EQ(text.find("\xC2\x9B"), std::string::npos);
    EXPECT_EQ(text.find("\xE2\x80\xAE"), std::string::npos) << "a change of text direction reached the reader";
  }
  std::string model_;
};

TEST_F(HostileTextTest, InEveryFormatOfEveryVerb) {
  const std::vector<std::vector<std::string>> verbs = {
      {"list", "runs"}, {"list", "models"}, {"show", "@last"}, {"show", "sample", "1"}};
  for (const auto& verb : verbs) {
    for (const char* format : {"table", "md", "csv", "json", "jsonl", "latex"}) {
      std::vector<std::string> words = verb;
      words.insert(words.end(), {"--db", "runs.db", "-o", format});
      const ProcessResult result = run(words);
      SCOPED_TRACE(verb[1] + " " + format);
      ASSERT_EQ(result.status, 0) << result.err;
      const bool exact = std::string(format) == "csv" || std::string(format).starts_with("json");
      if (!exact) expect_clean(result.out);
      if (std::string(format) == "json") {
        EXPECT_TRUE(json::accept(result.out));
      }
      if (std::string(format) == "latex") {
        EXPECT_THAT(result.out, Not(HasSubstr("\\input{")));
        EXPECT_THAT(result.out, Not(HasSubstr(" $x_1")));
      }
      if (std::string(format) == "md") {
        EXPECT_THAT(result.out, Not(HasSubstr("<script>")));
      }
      if (std::string(format) == "csv") {
        EXPECT_THAT(result.out, Not(HasSubstr("\n=cmd")));
        EXPECT_THAT(result.out, Not(HasSubstr(",\"=cmd")));
      }
    }
  }
}

TEST_F(HostileTextTest, InPictures) {
  for (const char* out : {"map.svg", "map.png"}) {
    const ProcessResult result = run({"heatmap", "@last", "--db", "runs.db", "-o", out});
    EXPECT_EQ(result.status, 0) << result.err;
  }
  const std::string svg = read("map.svg");
  expect_clean(svg);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  EXPECT_THAT(svg, Not(HasSubstr("&_")));
  const ProcessResult terminal = run({"heatmap", "@last", "--db", "runs.db"});
  EXPECT_EQ(terminal.status, 0) << terminal.err;
  expect_clean(terminal.out);
}

TEST_F(HostileTextTest, NamesComeBackFromTheDatabaseAsTheyWere) {
  const json runs = json::parse(run({"list", "runs", "--db", "runs.db", "-o", "json"}).out);
  EXPECT_EQ(runs["runs"].size(), 1u);
  const ProcessResult by_name = run({"show", kHostile, "--db", "runs.db"});
  EXPECT_EQ(by_name.status, 0) << by_name.err;
  const ProcessResult by_tag = run({"show", "@tag:" + kTag, "--db", "runs.db"});
  EXPECT_EQ(by_tag.status, 0) << by_tag.err;
}

// Tasks are columns here: their names stand in the heads.
TEST_F(HostileTextTest, InHeadsOfTables) {
  test::MadeTask task{.name = kHostile, .protocol = kHostile, .metric = kHostile, .scores = test::ones(1, 30)};
  test::make_runs(path("heads.db"), {{.model = kHostile, .tasks = {task}}});
  for (const std::vector<std::string>& verb :
       {std::vector<std::string>{"table"}, {"export", "metrics"}, {"show", "@last"}}) {
    for (const char* format : {"table", "md", "latex"}) {
      std::vector<std::string> words = verb;
      words.insert(words.end(), {"--db", "heads.db", "-o", format});
      const ProcessResult result = run(words);
      SCOPED_TRACE(verb[0] + " " + format);
      ASSERT_EQ(result.status, 0) << result.err;
      expect_clean(result.out);
    }
  }
}

TEST_F(HostileTextTest, InTheGatesFiles) {
  test::MadeTask task{.name = kHostile, .metric = "acc\xEF\xBF\xBF", .scores = test::ones(10, 30)};
  const auto ids = test::make_runs(path("gate.db"), {{.model = kHostile, .tasks = {task}}, {.tasks = {task}}});
  write("gate.yaml", "schema: hayfork/gate/1\nrules: [{task: \"*\"}]\n");
  const ProcessResult result = run({"gate", ids[0], "--baseline", ids[1], "--policy", "gate.yaml", "--db", "gate.db",
                                    "--junit", path("junit.xml"), "--md", path("gate.md")});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const std::string& text : {result.out, read("junit.xml"), read("gate.md")}) {
    expect_clean(text);
    EXPECT_THAT(text, HasSubstr("script"));
  }
  for (const char* name : {"junit.xml", "gate.md"}) EXPECT_THAT(read(name), Not(HasSubstr("<script>")));
  EXPECT_EQ(read("junit.xml").find("\xEF\xBF\xBF"), std::string::npos);  // no character of XML
}

TEST_F(HostileTextTest, InMessages) {
  const ProcessResult result = run({"show", "no\x1b[31m\nsuch", "--db", "runs.db"});
  test::expect_error(result, result.status, {});
  expect_clean(result.err);
  const ProcessResult completed = run({"__complete", "bash", "--", "show", ""});
  EXPECT_EQ(completed.out.find('\x1b'), std::string::npos);
}

TEST_F(HostileTextTest, NamesThatAreNoText) {
  for (const std::string& name :
       {std::string("\xFF\xFE"), std::string(100000, 'n'), std::string("@last"), std::string("a:b"), std::string("")}) {
    SCOPED_TRACE(name.substr(0, 20));
    const ProcessResult result = run_niah(model_, {"--name", name, "--lengths", "128", "--depths", "0"});
    if (result.status != 0) test::expect_error(result, 2, {});
    expect_intact();
    EXPECT_EQ(run({"list", "runs", "--db", "runs.db", "-o", "json"}).status, 0);
  }
}

}  // namespace
}  // namespace hayfork::cli
