// The verbs that judge results, on databases that cannot be trusted: one clear message, exit status 6, the file as it
// was.
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/support/bad_input.h"
#include "tests/support/made_runs.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::MadeTask;
using test::ones;
using test::ProcessResult;
using ::testing::HasSubstr;

class BadResultsTest : public test::BadInputTest {
 protected:
  BadResultsTest() {
    runs::Store store = test::open_new(path("runs.db"));
    for (const int64_t right : {60, 30})
      ids_.push_back(test::make_run(store, {.tasks = {{.scores = ones(right, 100)}}}));
    store.close();
    policy_ = write("gate.yaml", "schema: hayfork/gate/1\nrules: [{task: arc_easy}]\n");
  }
  std::string sql(const std::string& text) const {
    return test::run_process("/usr/bin/sqlite3", {path("runs.db"), text}).out;
  }
  // Every verb that reads results, and those that write.
  std::vector<std::vector<std::string>> verbs() const {
    return {{"compare", ids_[0], ids_[1]},
            {"gate", ids_[1], "--baseline", ids_[0], "--policy", policy_},
            {"table"},
            {"export", "samples", ids_[0], "-o", "csv"},
            {"export", "metrics", ids_[0]},
            {"baseline", "set", "main", ids_[0]},
            {"tag", "add", ids_[0], "x"},
            {"db", "merge", path("runs.db")}};
  }
  void expect_refused(const std::vector<std::string>& words) const {
    const std::string before = read("runs.db");
    for (const auto& verb : verbs()) {
      if (verb[0] == "db") continue;
      SCOPED_TRACE(verb.front() + " … " + verb.back());
      expect_error(run(verb), 6, words);
      EXPECT_EQ(read("runs.db"), before);
    }
  }
  static bool no_sqlite() { return !fs::exists("/usr/bin/sqlite3"); }

  std::vector<std::string> ids_;
  std::string policy_;
};

TEST_F(BadResultsTest, ADatabaseOfANewerVersion) {
  if (no_sqlite()) GTEST_SKIP() << "needs the sqlite3 program, which is not here";
  sql("pragma journal_mode = delete; pragma user_version = 99");
  expect_refused({"newer", "99"});
}

TEST_F(BadResultsTest, ADatabaseThatIsHalfMigrated) {
  if (no_sqlite()) GTEST_SKIP() << "needs the sqlite3 program, which is not here";
  sql("pragma journal_mode = delete; drop table comparisons; pragma user_version = 1");
  expect_refused({"comparisons"});
}

TEST_F(BadResultsTest, MissingTables) {
  if (no_sqlite()) GTEST_SKIP() << "needs the sqlite3 program, which is not here";
  sql("pragma journal_mode = delete; drop table metrics; drop table samples");
  expect_refused({"runs.db"});
}

TEST_F(BadResultsTest, APageFullOfRubbish) {
  if (no_sqlite()) GTEST_SKIP() << "needs the sqlite3 program, which is not here";
  sql("pragma journal_mode = delete; vacuum");
  std::string bytes = read("runs.db");
  for (size_t page = 2; page * 4096 < bytes.size(); ++page) bytes.replace(page * 4096, 2048, std::string(2048, '\xEE'));
  write("runs.db", bytes);
  for (const auto& verb : verbs()) {
    SCOPED_TRACE(verb.front() + " … " + verb.back());
    const ProcessResult result = run(verb);
    EXPECT_EQ(result.status, 6) << result.err;
    EXPECT_THAT(result.err, HasSubstr("runs.db"));
    EXPECT_EQ(read("runs.db"), bytes);
  }
}

TEST_F(BadResultsTest, NoDatabaseAndAFileThatIsNone) {
  fs::remove(path("runs.db"));
  for (const auto& verb : verbs()) {
    if (verb[0] == "db") continue;
    SCOPED_TRACE(verb[0]);
    expect_error(run(verb), 6, {"runs.db"});
    EXPECT_FALSE(fs::exists(path("runs.db")));
  }
  write("runs.db", std::string(8192, 'x'));
  expect_refused({"runs.db"});
}

TEST_F(BadResultsTest, MergingADatabaseWithItself) {
  expect_error(run({"db", "merge", path("runs.db")}), 2, {"itself"});
  expect_error(run({"import", "hayfork", path("gate.yaml")}), 6, {"gate.yaml"});
  expect_intact();
}

TEST_F(BadResultsTest, OutputsThatCannotBeWritten) {
  const std::vector<std::string> gate = {"gate", ids_[1], "--baseline", ids_[0], "--policy", policy_};
  for (const char* flag : {"--junit", "--md"}) {
    std::vector<std::string> arguments = gate;
    arguments.insert(arguments.end(), {flag, path("no/such/folder/file")});
    expect_error(run(arguments), 6, {"no/such/folder"});
  }
  write("taken", "a file where a folder should be");
  expect_error(run({"export", "lm-eval", ids_[0], "--out", path("taken")}), 6, {"taken"});
}

}  // namespace
}  // namespace hayfork::cli
