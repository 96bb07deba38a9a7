// The verbs that judge results, on databases that cannot be trusted: one clear message, exit status 6, the file as it
// was.
#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

class BadResultsTest : public test::BadInputTest {
 protected:
  BadResultsTest() {
    runs::Store store = test::open_new(path("runs.db"));
    for (const int64_t right : {60, 30})
      ids_.push_back(test::make_run(store, {.tasks = {{.scores = ones(right, 100)}}}));
    store.close();
    policy_ = write("gate.yaml", "schema: hayfork/gate/1\nrules: [{task: arc_easy}]\n");
  }
  void sql(const std::string& text) const { test::raw_sql(path("runs.db"), text); }
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

  std::vector<std::string> ids_;
  std::string policy_;
};

TEST_F(BadResultsTest, ADatabaseOfANewerVersion) {
  sql("pragma journal_mode = delete; pragma user_version = 99");
  expect_refused({"newer", "99"});
}

TEST_F(BadResultsTest, ADatabaseThatIsHalfMigrated) {
  sql("pragma journal_mode = delete; drop table comparisons; pragma user_version = 1");
  expect_refused({"comparisons"});
}

TEST_F(BadResultsTest, TablesWithoutAVersion) {
  sql("pragma journal_mode = delete; pragma user_version = 0");
  expect_refused({"no schema version"});
}

TEST_F(BadResultsTest, AMissingColumn) {
  sql("pragma journal_mode = delete; drop view v_scores; drop view v_runs; alter table run_tasks drop column "
      "seeds_json;"
      "create view v_scores as select 1 as model; create view v_runs as select 1");
  expect_refused({"column seeds_json of table run_tasks"});
  expect_error(run({"db", "check"}), 6, {"column seeds_json of table run_tasks"});
}

TEST_F(BadResultsTest, MissingTables) {
  sql("pragma journal_mode = delete; drop table metrics; drop table samples");
  expect_refused({"runs.db"});
}

TEST_F(BadResultsTest, APageFullOfRubbish) {
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

// Every reference that a merge follows, pointed at nothing.
TEST_F(BadResultsTest, MergingADatabaseWhoseRowsPointNowhere) {
  const std::string good = read("runs.db");
  const std::string as_new = "update runs set uuid = 'x' || uuid, run_id = 'z' || run_id, plan_sha256 = 'p' || id;";
  for (const std::string& damage :
       {"update runs set model_id = 99;" + as_new, "update run_tasks set task_id = 99;" + as_new,
        as_new +
            "insert into searches(run, model_id, algo, seed, space_json, started_at) values (1, 99, 'a', 0, '{}', '')",
        std::string(
            "insert into gates(cand, base, policy_sha256, policy_text, verdict, exit_code, made_at) values (99, "
            "99, '', '', 'pass', 0, '')")}) {
    SCOPED_TRACE(damage);
    write("other.db", good);
    test::raw_sql(path("other.db"), "pragma foreign_keys = off;" + damage);
    expect_error(run({"db", "merge", path("other.db")}), 6, {"other.db", "99"});
    expect_intact();
  }
  EXPECT_EQ(json::parse(run({"list", "runs", "-o", "json"}).out)["runs"].size(), 2u);
}

TEST_F(BadResultsTest, MergingTheSameRunWithOtherFigures) {
  write("other.db", read("runs.db"));
  const std::vector<std::string> merge = {"db", "merge", path("other.db")};
  EXPECT_EQ(run(merge).status, 0);  // the same
  test::raw_sql(path("other.db"), "update metrics set value = 0.99");
  expect_error(run(merge), 2, {"disagree", ids_[0], "acc", "0.99"});
  test::raw_sql(path("other.db"), "delete from samples");
  EXPECT_EQ(run(merge).status, 0);  // of other samples: those here stand
  EXPECT_THAT(run({"export", "metrics", ids_[0], "-o", "csv"}).out, HasSubstr(",0.6,100,"));
}

// SQLite has infinities, and a hand or a loss beyond all bounds may have written one.
TEST_F(BadResultsTest, ScoresThatAreInfinite) {
  sql("update samples set score = 9e999, ctx_len = 100 * id where id % 5 = 0; update sample_metrics set value = 9e999 "
      "where sample % 5 = 0; update metrics set value = 9e999, ci_low = 9e999, ci_high = -9e999");
  for (const auto& verb : verbs()) {
    SCOPED_TRACE(verb.front() + " … " + verb.back());
    if (verb[0] == "db" || verb[0] == "gate") continue;
    const ProcessResult result = run(verb);
    EXPECT_EQ(result.status, 0) << result.err;
  }
  EXPECT_EQ(run({"gate", ids_[1], "--baseline", ids_[0], "--policy", policy_}).status, 1);
  const ProcessResult result = run({"report", "-o", "site", "--include-samples", "all"});
  EXPECT_EQ(result.status, 0) << result.err;
}

TEST_F(BadResultsTest, ImportedRunsAreNotRunAgain) {
  runs::Store store = test::open_new(path("runs.db"));
  const std::string id = test::make_run(store, {.origin = "lm-eval", .tasks = {{.scores = ones(1, 2)}}});
  store.close();
  for (const char* verb : {"rescore", "resume"}) expect_error(run({verb, id}), 2, {id, "imported", "lm-eval"});
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
