// Documents that cannot be used, through the program: each is named with file, line and field; the others go on.
#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

class BadDocumentsTest : public test::BadInputTest {
 protected:
  ProcessResult add(const std::string& text, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"data",       "add",  "--data",
                                      path("data"), "piqa", "validation=" + write("dev.jsonl", text)};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  ProcessResult evaluate(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"run",        "--model",      (test::source_dir() / "demo" / "full").string(),
                                      "--tasks",    "piqa",         "--data",
                                      path("data"), "--device",     "cpu",
                                      "--db",       path("runs.db")};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  std::map<std::string, json> samples() const {
    const ProcessResult result = run({"export", "samples", "@last", "--db", path("runs.db"), "-o", "json"});
    EXPECT_EQ(result.status, 0) << result.err;
    std::map<std::string, json> out;
    const json exported = json::parse(result.out);
    for (const json& row : exported["samples"]) {
      const json& id = row["doc_id"];
      out[id.is_string() ? id.get<std::string>() : id.dump()] = row;
    }
    return out;
  }
};

// A byte order mark, CRLF, a blank line; then one row of each fault between good ones.
const std::string kRows =
    "\xEF\xBB\xBF{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}\r\n"
    "{\"goal\":\"g\",\"sol1\":\r\n"
    "\r\n"
    "{\"goal\":\"g\",\"sol2\":\"b\",\"label\":0}\r\n"
    "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":\"yes\"}\r\n"
    "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"\",\"label\":0}\r\n"
    "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}\r\n"
    "{\"goal\":\"k\",\"sol1\":\"a\",\"sol2\":\"a\",\"label\":1}\r\n"
    "{\"goal\":7,\"sol1\":\"a\",\"sol2\":\"b\",\"label\":1}\r\n";

TEST_F(BadDocumentsTest, RowsThatNoTaskCouldUseAreNamedAndNotAdded) {
  const ProcessResult refused = add(kRows);
  expect_error(refused, 11, {"of 8 rows cannot be used", "dev.jsonl", "--keep-broken"});
  for (const char* words :
       {"dev.jsonl, line 2", "\"sol1\" is missing (", "dev.jsonl, line 4", "dev.jsonl, line 5", "found \"yes\""})
    EXPECT_THAT(refused.err, HasSubstr(words));
  expect_error(evaluate(), 11, {"validation", "hayfork data add piqa"});
}

TEST_F(BadDocumentsTest, KeptOnesFailAndTheOthersGoOn) {
  ASSERT_EQ(add(kRows, {"--keep-broken"}).status, 0);
  const ProcessResult result = evaluate();
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("HAY-W040"));  // the first and the sixth are equal
  EXPECT_THAT(result.err, HasSubstr("HAY-W041"));  // two equal options
  EXPECT_THAT(result.out, HasSubstr("5 failed"));
  auto rows = samples();
  ASSERT_EQ(rows.size(), 8u);
  // The data folder's file has a row a line: the blank line is gone.
  const std::map<std::string, std::vector<std::string>> faults = {{"1", {"line 2", "JSON"}},
                                                                  {"2", {"line 3", "sol1"}},
                                                                  {"3", {"line 4", "label", "yes"}},
                                                                  {"4", {"line 5", "option 2 is empty"}},
                                                                  {"7", {"line 8", "goal"}}};
  for (auto& [id, row] : rows) {
    const auto found = faults.find(id);
    EXPECT_EQ(row["status"], found == faults.end() ? "ok" : "failed") << id;
    if (found == faults.end()) continue;
    EXPECT_TRUE(row["score"].is_null());
    EXPECT_THAT(row["error"].get<std::string>(), HasSubstr("validation.jsonl"));
    for (const std::string& word : found->second) EXPECT_THAT(row["error"].get<std::string>(), HasSubstr(word));
  }
  expect_intact();
}

TEST_F(BadDocumentsTest, AQuestionPastTheWindowIsCutOnlyWhenAskedTo) {
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "one two ";
  ASSERT_EQ(add("{\"goal\":\"" + words +
                "\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}\n"
                "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}\n")
                .status,
            0);
  const ProcessResult failed = evaluate();
  EXPECT_EQ(failed.status, 4);
  EXPECT_THAT(failed.err, HasSubstr("longer than the model's window"));
  EXPECT_EQ(samples()["1"]["status"], "ok");
  const ProcessResult cut = evaluate({"--truncate", "left"});
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_THAT(cut.out, HasSubstr("1 cut prompt"));
  EXPECT_EQ(samples()["0"]["truncated"], true);
}

}  // namespace
}  // namespace hayfork::cli
