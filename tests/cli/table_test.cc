// hayfork table: models × tasks, the mark for the best, layouts of papers and their printed rows.
#include "runs/report/layouts.h"
#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

class TableTest : public test::CliTest {
 protected:
  static MadeTask mc(const std::string& name, int64_t right, int64_t n = 200) {
    return {.name = name, .protocol = "lm-eval/" + name + "/1.0", .scores = ones(right, n)};
  }
  json rows(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "table");
    return json_of(std::move(arguments))["table"];
  }
};

TEST_F(TableTest, MarksTheBestOnlyWhereItIsSignificant) {
  add({{.model = "a", .tasks = {mc("arc_easy", 60), mc("piqa", 100)}},
       {.model = "b", .tasks = {mc("arc_easy", 90), mc("piqa", 101)}},
       {.model = "c", .tasks = {mc("arc_easy", 150)}}});
  const json cells = rows({});
  ASSERT_EQ(cells.size(), 6u);
  std::string best;
  for (const json& cell : cells) {
    if (cell["best"].get<bool>())
      best += cell["model"].get<std::string>() + ":" + cell["column"].get<std::string>() + " ";
    if (cell["model"] == "c" && cell["column"] == "piqa") {
      EXPECT_TRUE(cell["value"].is_null());
    }
  }
  EXPECT_EQ(best, "c:arc_easy ");
  const ProcessResult table = run({"table"});
  EXPECT_THAT(table.out, HasSubstr("75.00* ["));
  EXPECT_THAT(table.out, HasSubstr("n=200"));
  EXPECT_THAT(table.out, HasSubstr("–"));
  EXPECT_THAT(table.out, HasSubstr("* best"));
  EXPECT_THAT(run({"table", "-o", "latex"}).out, HasSubstr("75.00*"));
}

TEST_F(TableTest, CellsOfAnotherProtocolAreMarkedAndNothingIsBest) {
  MadeTask shots = mc("arc_easy", 190);
  shots.num_fewshot = 5;
  add({{.model = "a", .tasks = {mc("arc_easy", 60)}}, {.model = "b", .tasks = {shots}}});
  const ProcessResult table = run({"table"});
  EXPECT_THAT(table.out, HasSubstr("95.00†"));
  EXPECT_THAT(table.out, HasSubstr("† not comparable"));
  EXPECT_EQ(table.out.find('*'), std::string::npos);
}

TEST_F(TableTest, LayoutsFillFromTheDatabaseBesideThePublishedRows) {
  add({{.model = "mine",
        .tasks = {mc("based_drop", 50), mc("based_nq_2048", 40), mc("based_swde", 60), mc("based_triviaqa", 120),
                  mc("based_fda", 20), mc("based_squad", 70)}}});
  const json cells = rows({"--layout", "orthros-table3", "--published"});
  ASSERT_EQ(cells.size(), 7u * 7u);
  EXPECT_EQ(cells[0]["model"], "mine");
  EXPECT_EQ(cells[0]["value"], 0.25);
  EXPECT_EQ(cells[6]["column"], "Avg(6)");
  EXPECT_NEAR(cells[6]["value"].get<double>(), (0.25 + 0.2 + 0.3 + 0.6 + 0.1 + 0.35) / 6, 1e-12);
  EXPECT_EQ(cells[7]["model"], "Transformer (published)");
  EXPECT_TRUE(cells[7]["published"].get<bool>());
  EXPECT_NEAR(cells[7]["value"].get<double>(), 0.232, 1e-12);
  EXPECT_THAT(run({"table", "--layout", "orthros-table3", "--published"}).out, HasSubstr("arXiv 2610.13735"));
  expect_error(run({"table", "--layout", "orthros-table9"}), 2, {"orthros-table9", "orthros-table3"});
  expect_error(run({"table", "--published"}), 2, {"--layout"});
}

TEST_F(TableTest, TimingsFillTheEndToEndLayout) {
  runs::Store store = test::open_new(path("runs.db"));
  const std::string id = test::make_run(store, {.model = "fast", .tasks = {}});
  runs::BenchRow bench;
  bench.run = store.find_run(id).id;
  bench.test = "pp131072+tg128";
  bench.n_prompt = 131072;
  bench.n_gen = 128;
  bench.batch = 2;
  bench.reps = 3;
  bench.ttft_ms = 17016;
  bench.tps_mean = 256 / 24.647;
  store.add_bench(std::vector<runs::BenchRow>{bench});
  store.close();
  const json cells = rows({"--layout", "orthros-table4"});
  EXPECT_NEAR(cells[0]["value"].get<double>(), 17.016, 1e-9);
  EXPECT_NEAR(cells[1]["value"].get<double>(), 24.647, 1e-9);
  EXPECT_NEAR(cells[2]["value"].get<double>(), 10.387, 1e-3);
  EXPECT_NEAR(cells[3]["value"].get<double>(), 2 * 127 / (24.647 - 17.016), 1e-9);
  EXPECT_TRUE(cells[4]["value"].is_null());
}

TEST_F(TableTest, TimingsOfPromptAndGenerationAreAddedAndSpeedUpsAreToTheFirstRow) {
  runs::Store store = test::open_new(path("runs.db"));
  for (const double speed : {100.0, 150.0}) {
    const std::string id = test::make_run(store, {.model = speed > 100 ? "sparse" : "plain", .tasks = {}});
    runs::BenchRow prefill, decode, deep;
    prefill.run = decode.run = deep.run = store.find_run(id).id;
    prefill.test = "pp131072";
    prefill.n_prompt = 131072;
    prefill.batch = decode.batch = 2;
    prefill.ttft_ms = 20000;
    prefill.tps_mean = 13107.2;
    decode.test = "tg128";
    decode.n_gen = 128;
    decode.depth = 131072;
    decode.tps_mean = 32;  // 8 s
    deep.test = "tg64";
    deep.n_gen = 64;
    deep.depth = 65536;
    deep.batch = 4;
    deep.tps_mean = speed;
    store.add_bench(std::vector<runs::BenchRow>{prefill, decode, deep});
  }
  store.close();
  const json cells = rows({"--layout", "orthros-table4"});
  EXPECT_NEAR(cells[0]["value"].get<double>(), 20, 1e-9);
  EXPECT_NEAR(cells[1]["value"].get<double>(), 28, 1e-9);
  EXPECT_NEAR(cells[2]["value"].get<double>(), 256 / 28.0, 1e-9);
  EXPECT_NEAR(cells[3]["value"].get<double>(), 2 * 127 / 8.0, 1e-9);
  const json ratios = rows({"--layout", "sparse-table4"});
  EXPECT_EQ(ratios[2]["column"], "64k ×");
  EXPECT_NEAR(ratios[2]["value"].get<double>() * ratios[8]["value"].get<double>(), 1.5, 1e-9);  // 1 and 1.5
  EXPECT_TRUE(ratios[0]["value"].is_null());
}

TEST_F(TableTest, OtherPromptsAndOtherInputsAreMarked) {
  MadeTask other = mc("arc_easy", 190);
  other.prompt = "another";
  add({{.model = "a", .tasks = {mc("arc_easy", 60)}}, {.model = "b", .tasks = {other}}});
  std::string text = run({"table"}).out;
  EXPECT_THAT(text, HasSubstr("95.00†"));
  EXPECT_THAT(text, HasSubstr("another protocol, prompt"));
  EXPECT_THAT(text, Not(HasSubstr("95.00*")));
  EXPECT_THAT(text, Not(HasSubstr("‡")));
  add({{.model = "c", .tokenizer = "other", .tasks = {other}}});  // its prompts are other ids in any case
  text = run({"table", "--filter", "model=a"}).out;
  EXPECT_THAT(text, Not(HasSubstr("‡")));
  text = run({"table"}).out;
  EXPECT_THAT(text, HasSubstr("c ‡"));
  EXPECT_THAT(text, HasSubstr("‡ another tokenizer or dtype"));
}

TEST_F(TableTest, AMetricThatATaskDoesNotHaveIsNotReplacedByAnother) {
  MadeTask f1 = mc("squad", 50);
  f1.metric = "f1";
  add({{.model = "a", .tasks = {mc("arc_easy", 60), f1}}});
  const json table = rows({"--metric", "f1"});
  ASSERT_EQ(table.size(), 2u);
  EXPECT_TRUE(table[0]["value"].is_null());
  EXPECT_EQ(table[1]["value"], 0.25);
  EXPECT_EQ(run({"table", "--metric", "bleu"}).status, 5);
}

TEST_F(TableTest, NothingToShowIsExitFive) {
  add({{.model = "a", .tasks = {mc("arc_easy", 60)}}});
  EXPECT_EQ(run({"table", "--layout", "hybrid-table12"}).status, 5);
  EXPECT_EQ(run({"table", "--layout", "sparse-table6"}).status, 5);
  EXPECT_EQ(run({"table", "--layout", "hybrid-table12", "--published"}).status, 0);
}

TEST(Layouts, PrintedMeansFollowFromThePrintedColumns) {
  size_t n_rows = 0;
  for (const runs::Layout& layout : runs::layouts()) {
    SCOPED_TRACE(layout.name);
    n_rows += layout.published.size();
    for (const runs::PublishedRow& row : layout.published)
      EXPECT_EQ(row.values.size(), layout.columns.size()) << row.model;
    EXPECT_THAT(runs::check_published(layout), ::testing::IsEmpty());
  }
  EXPECT_EQ(n_rows, 6u + 6 + 6 + 4 + 18 + 9 + 6 + 4);
  runs::Layout wrong = runs::find_layout("orthros-table1");
  wrong.published[0].values.back() = 54.0;
  EXPECT_EQ(runs::check_published(wrong).size(), 1u);
}

}  // namespace
}  // namespace hayfork::cli
