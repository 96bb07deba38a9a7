// hayfork gate through the program: every exit status, the policy's rules, its files, baselines and what is recorded.
#include <cmath>

#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

class GateTest : public test::CliTest {
 protected:
  // A baseline with half of n right, and a candidate with `right` of n.
  std::vector<std::string> pair_of(int64_t right, int64_t n = 200) const {
    return add({{.model = "base", .tasks = {{.scores = ones(n / 2, n)}}},
                {.model = "cand", .tasks = {{.scores = ones(right, n)}}}});
  }
  std::string policy(const std::string& rules, const std::string& defaults = "{}") const {
    return write("gate.yaml", "schema: hayfork/gate/1\ndefaults: " + defaults + "\nrules:\n" + rules);
  }
  ProcessResult gate(const std::vector<std::string>& ids, const std::string& file,
                     const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"gate", ids[1], "--baseline", ids[0], "--policy", file};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  int64_t count(const std::string& table) const {
    runs::Store store = runs::Store::open(path("runs.db"), runs::OpenMode::read_only);
    return table == "baselines" ? static_cast<int64_t>(store.list_baselines().size()) : 0;
  }
};

TEST_F(GateTest, PassesFailsAndSaysWhatMayBeUnseen) {
  const std::string file = policy("  - {task: arc_easy, max_drop: 0.01}\n");
  const ProcessResult failed = gate(pair_of(60), file);
  EXPECT_EQ(failed.status, 1);
  EXPECT_THAT(failed.out, HasSubstr("FAIL          arc_easy acc  −0.200 (limit 0.01)"));
  EXPECT_THAT(failed.out, HasSubstr("fail: 1 FAIL"));
  EXPECT_EQ(gate(pair_of(130), file).status, 0);
  const ProcessResult unseen = gate(pair_of(98), file);  // 2 worse of 200: no evidence, but no proof either
  EXPECT_EQ(unseen.status, 0);
  EXPECT_THAT(unseen.out, HasSubstr("may be there unseen"));
  EXPECT_EQ(gate(pair_of(60), policy("  - {task: arc_easy, max_drop: 0.25}\n")).status, 0);
  EXPECT_EQ(gate(pair_of(60), policy("  - {task: arc_easy, max_rel: 0.5}\n")).status, 0);
  EXPECT_EQ(gate(pair_of(60), policy("  - {task: arc_easy, max_rel: 0.5, max_drop: 0.01}\n")).status, 1);
}

TEST_F(GateTest, TooFewPairsAreInconclusive) {
  const auto ids = pair_of(2, 30);
  const std::string rules = "  - {task: arc_easy, min_pairs: 50}\n";
  const ProcessResult result = gate(ids, policy(rules));
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.out, HasSubstr("30 pairs < 50"));
  EXPECT_EQ(gate(ids, policy(rules, "{on_inconclusive: pass}")).status, 0);
  EXPECT_EQ(gate(ids, policy("  - {task: arc_easy, min_pairs: 50, tier: warn}\n")).status, 0);
}

TEST_F(GateTest, NonInferiorityAsksForProof) {
  const std::string rules = "  - {task: arc_easy, rule: noninferior, max_drop: 0.04}\n";
  EXPECT_EQ(gate(pair_of(100), policy(rules)).status, 0);  // every pair equal
  EXPECT_EQ(gate(pair_of(99), policy(rules)).status, 0);   // 0.5 points, interval above −4
  EXPECT_EQ(gate(pair_of(95), policy(rules)).status, 3);   // the interval spans −4 points
  EXPECT_EQ(gate(pair_of(60), policy(rules)).status, 1);
}

TEST_F(GateTest, TiersDecideWhatStops) {
  const auto ids = pair_of(60);
  const ProcessResult warned = gate(ids, policy("  - {task: arc_easy}\n", "{tier: warn}"));
  EXPECT_EQ(warned.status, 0);
  EXPECT_THAT(warned.out, HasSubstr("WARN"));
  EXPECT_THAT(gate(ids, policy("  - {task: arc_easy, tier: info}\n")).out, HasSubstr("INFO"));
}

TEST_F(GateTest, PatternsSlicesAndUnknownTasks) {
  MadeTask base{.name = "niah", .kind = "generate", .family = "niah", .protocol = "niah/number/1"};
  for (int i = 0; i < 80; ++i) {
    base.scores.push_back(1);
    base.lengths.push_back(i < 40 ? 1024 : 2048);
  }
  MadeTask cand = base;
  for (int i = 40; i < 60; ++i) cand.scores[static_cast<size_t>(i)] = 0;
  const auto ids = add({{.tasks = {base}}, {.model = "b", .tasks = {cand}}});
  EXPECT_EQ(gate(ids, policy("  - {task: ni*, slice: length=1k}\n")).status, 0);
  EXPECT_EQ(gate(ids, policy("  - {task: \"*\", slice: length=2k}\n")).status, 1);
  EXPECT_EQ(gate(ids, policy("  - {task: niah, slice: length=4k}\n")).status, 5);
  EXPECT_EQ(gate(ids, policy("  - {task: ruler_vt}\n")).status, 5);  // known, but neither run has it
  // With another rule that matches, a task that is missing is no pass.
  const ProcessResult missing = gate(ids, policy("  - {task: niah, slice: length=1k}\n  - {task: ruler_vt}\n"));
  EXPECT_EQ(missing.status, 3);
  expect_error(gate(ids, policy("  - {task: nosuchtask}\n")), 2, {"nosuchtask", "hayfork list tasks"});
}

TEST_F(GateTest, WritesJUnitAndMarkdownAndJson) {
  const auto ids = pair_of(60);
  const ProcessResult result =
      gate(ids, policy("  - {task: arc_easy}\n"), {"--junit", path("gate.xml"), "--md", path("gate.md"), "-o", "json"});
  EXPECT_EQ(result.status, 1);
  const json document = json::parse(result.out, nullptr, false);
  EXPECT_EQ(document["schema"], "hayfork/gate/1");
  EXPECT_EQ(document["gate"]["verdict"], "fail");
  EXPECT_EQ(document["rules"][0]["result"], "FAIL");
  const std::string xml = read("gate.xml");
  EXPECT_THAT(xml, HasSubstr("tests=\"1\" failures=\"1\""));
  EXPECT_THAT(xml, HasSubstr("<failure message="));
  EXPECT_THAT(read("gate.md"), HasSubstr("| FAIL"));
}

TEST_F(GateTest, BaselinesAreAppendOnlyAndADeletedOneIsTold) {
  const auto ids = pair_of(60);
  const std::string file = policy("  - {task: arc_easy}\n");
  EXPECT_EQ(run({"baseline", "set", "main", ids[0]}).status, 0);
  const std::vector<std::string> by_name = {"@main", ids[1]};
  EXPECT_EQ(gate(by_name, file).status, 1);
  EXPECT_EQ(run({"baseline", "set", "main", ids[1]}).status, 0);
  EXPECT_EQ(gate(by_name, file).status, 0);
  EXPECT_EQ(run({"baseline", "clear", "main"}).status, 0);
  expect_error(gate(by_name, file), 6, {"@main", "the baseline was cleared"});
  EXPECT_EQ(count("baselines"), 1);
  expect_error(run({"baseline", "clear", "main"}), 2, {"main"});
  expect_error(run({"baseline", "set", "no name"}), 2, {"no name"});
  expect_error(run({"baseline", "set", "main", "rzzzz"}), 6, {"rzzzz"});
  runs::Store store = test::open_new(path("runs.db"));
  const std::string half = test::make_run(store, {.status = "interrupted", .tasks = {{.scores = ones(1, 2)}}});
  store.close();
  expect_error(run({"baseline", "set", "main", half}), 2, {half, "interrupted"});
  EXPECT_EQ(run({"baseline", "set", "main", ids[0]}).status, 0);
  test::raw_sql(path("runs.db"), "pragma foreign_keys = on; delete from runs where run_id = '" + ids[0] + "'");
  expect_error(gate(by_name, file), 6, {"@main", ids[0] + " is no longer in the database"});
}

TEST_F(GateTest, OnlyTheGateStoresComparisons) {
  const auto ids = pair_of(60);
  using Rows = std::vector<std::string>;
  const auto stored = [&](const std::string& sql) { return test::raw_sql(path("runs.db"), sql); };
  run({"compare", ids[0], ids[1]});
  EXPECT_EQ(stored("select count(*) from comparisons"), Rows{"0"});
  gate(ids, policy("  - {task: arc_easy}\n"), {"--record", "off"});
  EXPECT_EQ(stored("select count(*) from gates"), Rows{"0"});
  gate(ids, policy("  - {task: arc_easy}\n"));
  EXPECT_EQ(stored("select verdict || '|' || exit_code from gates"), Rows{"fail|1"});
  EXPECT_EQ(stored("select format('%s|%d|%d|%d|%s', task, n_pairs, worse, better, verdict) from comparisons"),
            Rows{"arc_easy|200|40|0|worse"});
  EXPECT_EQ(stored("select verdict from v_timeline where run_id = '" + ids[1] + "'"), Rows{"worse"});
}

TEST_F(GateTest, PoliciesThatCannotBeReadSayWhereAndWhy) {
  const auto ids = pair_of(60);
  const auto refused = [&](const std::string& text, const std::vector<std::string>& words) {
    SCOPED_TRACE(text);
    expect_error(gate(ids, write("bad.yaml", text)), 2, words);
  };
  const std::string head = "schema: hayfork/gate/1\n";
  refused("", {"bad.yaml"});
  refused("rules: [{task: niah}]\n", {"schema"});
  refused("schema: hayfork/gate/9\nrules: [{task: niah}]\n", {"hayfork/gate/9"});
  refused(head, {"rules"});
  refused(head + "rules: []\n", {"rules"});
  refused(head + "rules: [{max_drop: 0.1}]\n", {"rule 1", "task"});
  refused(head + "rules: [{task: niah, max_dorp: 0.1}]\n", {"max_dorp", "max_drop"});
  refused(head + "rules: [{task: niah, max_drop: -1}]\n", {"max_drop"});
  refused(head + "rules: [{task: niah, max_drop: many}]\n", {"max_drop"});
  refused(head + "rules: [{task: niah, min_pairs: 1.5}]\n", {"min_pairs"});
  refused(head + "rules: [{task: niah, tier: maybe}]\n", {"tier", "block, warn, info"});
  refused(head + "rules: [{task: niah, slice: color=red}]\n", {"color"});
  refused(head + "rules: [{task: niah, confirm: 1000}]\n", {"confirm"});
  refused(head + "defaults: {alpha: 2}\nrules: [{task: niah}]\n", {"alpha"});
  refused(head + "rules: [[niah]]\n", {"rule 1"});
  refused(head + "rules: [{task: niah\n", {"bad.yaml"});
  expect_error(gate(ids, path("none.yaml")), 2, {"none.yaml"});
}

TEST_F(GateTest, ConfirmRunsBothModelsAgainWithNewSeeds) {
  const std::string demo = (test::source_dir() / "demo").string();
  for (const char* model : {"full", "swa"}) {
    const ProcessResult result =
        run({"run", "--model", demo + "/" + model, "--tasks", "niah", "--lengths", "512", "--depths", "0-100+50",
             "--samples", "8", "--db", path("runs.db"), "--name", model, "--threads", "1"});
    ASSERT_EQ(result.status, 0) << result.err;
  }
  const std::string file = policy("  - {task: niah, confirm: 2}\n", "{min_pairs: 5, alpha: 0.2}");
  const ProcessResult result = gate({"full", "swa"}, file, {"--threads", "1", "-o", "json"});
  EXPECT_EQ(result.status, 1) << result.err;
  const json rule = json::parse(result.out, nullptr, false)["rules"][0];
  EXPECT_EQ(rule["reruns"], 2);
  EXPECT_EQ(rule["pairs"], 72);
}

}  // namespace
}  // namespace hayfork::cli
