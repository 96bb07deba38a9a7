// hayfork compare through the program: verdicts, refusals, slices, several candidates, flips, every format.
#include <cmath>

#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

class CompareTest : public test::CliTest {
 protected:
  ProcessResult compare(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "compare");
    return run(arguments);
  }
  json compared(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "compare");
    return json_of(std::move(arguments));
  }
  static MadeRun of(const MadeTask& task, const std::string& model = "model") {
    return {.model = model, .tasks = {task}};
  }
};

TEST_F(CompareTest, SaysBetterWorseSameAndTooFew) {
  const auto ids = add({of({.scores = ones(40, 100)}), of({.scores = ones(60, 100)}, "b"),
                        of({.scores = ones(42, 100)}, "c"), of({.scores = ones(40, 100)}, "d")});
  const json better = compared({ids[0], ids[1]})["comparison"][0];
  EXPECT_EQ(better["verdict"], "better");
  EXPECT_EQ(better["test"], "mcnemar-exact");
  EXPECT_EQ(better["pairs"], 100);
  EXPECT_EQ(better["better"], 20);
  EXPECT_EQ(better["worse"], 0);
  EXPECT_NEAR(better["delta"].get<double>(), 0.2, 1e-12);
  EXPECT_NEAR(better["p"].get<double>(), std::pow(0.5, 19), 1e-12);
  EXPECT_GT(better["ci_low"].get<double>(), 0);
  EXPECT_EQ(better["ci_method"], "bca-b10000-splitmix64-seed0");
  EXPECT_EQ(compared({ids[1], ids[0]})["comparison"][0]["verdict"], "worse");
  const json unsure = compared({ids[0], ids[2]})["comparison"][0];
  EXPECT_EQ(unsure["verdict"], "same?");
  EXPECT_GT(unsure["mde"].get<double>(), 0.02);
  EXPECT_EQ(compared({ids[0], ids[3]})["comparison"][0]["verdict"], "same");
  const auto few = add({of({.scores = ones(0, 19)}), of({.scores = ones(19, 19)}, "b")});
  const json row = compared({few[0], few[1]})["comparison"][0];
  EXPECT_EQ(row["verdict"], "too few");
  EXPECT_TRUE(row["p_adj"].is_null());
}

TEST_F(CompareTest, LowerIsBetterForPerplexity) {
  MadeTask base{
      .name = "loss", .kind = "rolling", .protocol = "hayfork/loss/1", .metric = "nll", .higher_is_better = false};
  MadeTask cand = base;
  for (int i = 0; i < 40; ++i) {
    base.scores.push_back(3 + 0.01 * i);
    cand.scores.push_back(2.9 + 0.01 * i + 0.001 * (i % 3));
  }
  const auto ids = add({of(base), of(cand, "b")});
  const json row = compared({ids[0], ids[1]})["comparison"][0];
  EXPECT_EQ(row["verdict"], "better");
  EXPECT_LT(row["delta"].get<double>(), 0);
  EXPECT_GT(row["gain"].get<double>(), 0);
  EXPECT_LT(row["ci_high"].get<double>(), 0);
}

TEST_F(CompareTest, RefusesWhatIsNotComparableAndNamesTheColumns) {
  const MadeTask task{.scores = ones(5, 30)};
  MadeTask prompts = task, protocol = task, shots = task, version = task, settings = task, chat = task;
  prompts.prompt = "another";
  protocol.protocol = "lm-eval/arc_easy/2.0";
  shots.num_fewshot = 5;
  version.version = "2";
  version.config_json = R"({"v":2})";
  settings.config_json = R"({"answer_tokens":64,"lengths":[1]})";
  chat.chat = true;
  const auto ids = add({of(task), of(prompts, "b"), of(protocol, "c"), of(shots, "d"), of(version, "e"),
                        of(settings, "f"), of(chat, "g")});
  expect_error(compare({ids[0], ids[1]}), 2, {"arc_easy", "prompts (30 of 30"});
  expect_error(compare({ids[0], ids[2]}), 2, {"protocol (lm-eval/arc_easy/1.0 → lm-eval/arc_easy/2.0)"});
  expect_error(compare({ids[0], ids[3]}), 2, {"num_fewshot (0 → 5)"});
  expect_error(compare({ids[0], ids[4]}), 2, {"version (1 → 2)"});
  expect_error(compare({ids[0], ids[5]}), 2, {"config.answer_tokens"});
  expect_error(compare({ids[0], ids[6]}), 2, {"chat"});
}

TEST_F(CompareTest, OtherTokenizersPairGeneratedDocumentsAndSaySo) {
  MadeTask base{
      .name = "niah", .kind = "generate", .family = "niah", .protocol = "niah/number/1", .scores = ones(20, 30)};
  base.lengths.assign(30, 1024);
  MadeTask cand = base;
  cand.prompt = "cut for another tokenizer";
  MadeRun other = of(cand, "b");
  other.tokenizer = "other";
  const auto ids = add({of(base), other, of(cand, "c")});
  EXPECT_EQ(compared({ids[0], ids[1]})["comparison"][0]["note"], "prompts differ: tokenizer");
  expect_error(compare({ids[0], ids[2]}), 2, {"prompts"});
}

TEST_F(CompareTest, DocumentsOfOneRunAloneNeedAllowPartial) {
  MadeTask part{.scores = ones(10, 30)};
  part.first_document = 10;
  const auto ids = add({of({.scores = ones(10, 30)}), of(part, "b")});
  expect_error(compare({ids[0], ids[1]}), 2, {"20 in both, 10 only in", "--allow-partial"});
  const json row = compared({ids[0], ids[1], "--allow-partial"})["comparison"][0];
  EXPECT_EQ(row["pairs"], 20);
  EXPECT_THAT(row["note"].get<std::string>(), HasSubstr("10 only in base"));
}

TEST_F(CompareTest, FailedSamplesAreLeftOutAndToldOf) {
  std::vector<double> some = ones(20, 40);
  some[3] = std::nan("");
  const auto ids = add({of({.scores = ones(20, 40)}), of({.scores = some}, "b")});
  const json row = compared({ids[0], ids[1]})["comparison"][0];
  EXPECT_EQ(row["pairs"], 39);
  EXPECT_EQ(row["note"], "1 failed");
  EXPECT_EQ(row["verdict"], "same");
}

TEST_F(CompareTest, SlicesByLengthAndAdjustsOverAllRows) {
  MadeTask base{.name = "niah", .kind = "generate", .family = "niah", .protocol = "niah/number/1"}, cand;
  for (const int64_t length : {16384, 4096}) {
    for (int i = 0; i < 50; ++i) {
      base.lengths.push_back(length);
      base.scores.push_back(1);
    }
  }
  cand = base;
  for (int i = 0; i < 12; ++i) cand.scores[static_cast<size_t>(i)] = 0;
  const auto ids = add({of(base), of(cand, "b")});
  const json rows = compared({ids[0], ids[1], "--by", "length"})["comparison"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["slice"], "ctx_len=4096");
  EXPECT_EQ(rows[0]["verdict"], "same");
  EXPECT_EQ(rows[1]["slice"], "ctx_len=16384");
  EXPECT_EQ(rows[1]["verdict"], "worse");
  EXPECT_NEAR(rows[1]["p_adj"].get<double>(), 2 * rows[1]["p"].get<double>(), 1e-15);
  expect_error(compare({ids[0], ids[1], "--by", "color"}), 2, {"color", "length, depth, subtask"});
}

TEST_F(CompareTest, ClustersAreKeptTogether) {
  MadeTask base{.scores = ones(0, 60)}, cand{.scores = ones(30, 60)};
  for (int i = 0; i < 60; ++i) base.clusters.push_back("article " + std::to_string(i / 10));
  cand.clusters = base.clusters;
  const auto ids = add({of(base), of(cand, "b")});
  const json row = compared({ids[0], ids[1]})["comparison"][0];
  EXPECT_EQ(row["clusters"], 6);
  EXPECT_EQ(row["test"], "sign-flip-exact");
  EXPECT_EQ(row["p"], 0.25);
  expect_error(compare({ids[0], ids[1], "--test", "mcnemar"}), 2, {"McNemar", "clusters"});
}

TEST_F(CompareTest, SeveralCandidatesAndTheBestOfThem) {
  const auto ids =
      add({of({.scores = ones(40, 200)}), of({.scores = ones(80, 200)}, "b"), of({.scores = ones(150, 200)}, "c")});
  const json rows = compared({ids[0], ids[1], ids[2]})["comparison"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["candidate"], ids[1]);
  EXPECT_FALSE(rows[0]["best"].get<bool>());
  EXPECT_TRUE(rows[1]["best"].get<bool>());
  const auto near =
      add({of({.scores = ones(40, 200)}), of({.scores = ones(80, 200)}, "b"), of({.scores = ones(81, 200)}, "c")});
  const json close = compared({near[0], near[1], near[2]})["comparison"];
  ASSERT_EQ(close.size(), 2u);
  for (const json& row : close) EXPECT_FALSE(row["best"].get<bool>());
}

TEST_F(CompareTest, AGroupStandsForItsMembersEachCountingTheSame) {
  MadeTask group{.name = "ruler", .kind = "group", .family = "ruler", .protocol = "ruler/p1/group", .metric = "score"};
  MadeTask large{.name = "ruler_vt",
                 .kind = "generate",
                 .family = "ruler",
                 .protocol = "ruler/p1/vt",
                 .metric = "score",
                 .scores = ones(0, 60)};
  MadeTask small{.name = "ruler_cwe",
                 .kind = "generate",
                 .family = "ruler",
                 .protocol = "ruler/p1/cwe",
                 .metric = "score",
                 .scores = ones(0, 20)};
  MadeRun base{.tasks = {group, large, small}}, cand{.model = "b", .tasks = {group, large, small}};
  cand.tasks[2].scores = ones(20, 20);
  const auto ids = add({base, cand});
  const json rows = compared({ids[0], ids[1]})["comparison"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["task"], "ruler");
  EXPECT_NEAR(rows[0]["delta"].get<double>(), 0.5, 1e-12);  // the mean of 0 and 1, not 20 of 80
  EXPECT_EQ(compared({ids[0], ids[1], "--members"})["comparison"].size(), 3u);
  EXPECT_EQ(compared({ids[0], ids[1], "--tasks", "ruler_cwe"})["comparison"][0]["task"], "ruler_cwe");
}

TEST_F(CompareTest, NothingInCommonIsExitFive) {
  const auto ids =
      add({of({.scores = ones(5, 30)}), of({.name = "piqa", .protocol = "lm-eval/piqa/1.0", .scores = ones(5, 30)}),
           of({.scores = {}}, "c")});
  EXPECT_EQ(compare({ids[0], ids[1]}).status, 5);
  const ProcessResult empty = compare({ids[0], ids[2]});
  EXPECT_EQ(empty.status, 5);
  EXPECT_THAT(empty.err, HasSubstr("no samples of it are stored"));
  expect_error(compare({ids[0], ids[1], "--tasks", "nope"}), 2, {"nope", "arc_easy"});
  expect_error(compare({ids[0], ids[0], "--metric", "f1"}), 2, {"f1", "acc"});
  expect_error(compare({ids[0], "rzzzz"}), 6, {"rzzzz"});
}

TEST_F(CompareTest, FlipsAreListedLossesFirstAndHostileTextIsHarmless) {
  MadeTask base{.scores = ones(30, 60)}, cand{.scores = ones(25, 60)};
  cand.scores[59] = 1;
  const std::string hostile = "<script>alert(1)</script>\u2028\u202E\x1b[31m=cmd()|'\\input{x}' & 100 % _{}";
  base.answer = "=HYPERLINK(\"http://x\")";
  cand.answer = hostile;
  cand.target = std::string("a\0b", 3) + std::string(1 << 20, 'x');
  const auto ids = add({of(base), of(cand, "b")});
  const json document = compared({ids[0], ids[1], "--flips", "3"});
  ASSERT_EQ(document["flips"].size(), 4u);  // three losses of five, one win
  EXPECT_EQ(document["flips"][0]["base"], 1);
  EXPECT_EQ(document["flips"][3]["cand"], 1);
  EXPECT_EQ(document["flips"][0]["cand_answer"], hostile);
  for (const char* format : {"table", "md", "csv", "latex"}) {
    const ProcessResult result = compare({ids[0], ids[1], "--flips", "3", "-o", format});
    EXPECT_EQ(result.status, 0) << format << result.err;
    if (std::string_view(format) != "csv") {  // which holds data as it is, but for formulas and NULs
      EXPECT_EQ(result.out.find('\x1b'), std::string::npos) << format;
    }
    EXPECT_EQ(result.out.find('\0'), std::string::npos) << format;
    if (std::string_view(format) == "csv") {
      EXPECT_THAT(result.out, HasSubstr("'=HYPERLINK"));
      EXPECT_THAT(result.out, Not(HasSubstr(",=HYPERLINK")));
    }
    if (std::string_view(format) == "latex") {
      EXPECT_THAT(result.out, Not(HasSubstr("\\input{")));
    }
    if (std::string_view(format) == "md") {
      EXPECT_THAT(result.out, Not(HasSubstr("<script>")));
    }
  }
}

TEST_F(CompareTest, EveryFormatNamesVersionAndWhatDiffers) {
  const auto ids = add({of({.scores = ones(40, 100)}), of({.scores = ones(60, 100)}, "b")});
  const json document = compared({ids[0], ids[1]});
  EXPECT_EQ(document["schema"], "hayfork/compare/1");
  bool weights = false;
  for (const json& column : document["identity"]) {
    if (column["column"] == "weights") weights = !column["same"].get<bool>();
  }
  EXPECT_TRUE(weights);
  const ProcessResult table = compare({ids[0], ids[1]});
  EXPECT_THAT(table.out, HasSubstr("differs: model (model→b), weights"));
  EXPECT_THAT(table.out, HasSubstr("better"));
  EXPECT_THAT(compare({ids[0], ids[1], "-o", "latex"}).out, HasSubstr("\\begin{tabular}"));
}

TEST_F(CompareTest, DiffConfigListsWhatIsNotTheSame) {
  MadeRun a = of({.scores = ones(1, 2)}), b = of({.scores = ones(1, 2)}, "other");
  a.config_json = R"({"lengths":[256],"task_options":{"window":4096,"only":1},"seed":7})";
  b.config_json = R"({"lengths":[512],"task_options":{"window":4096},"seed":7})";
  const auto ids = add({a, b});
  const json diff = json_of({"show", "diff-config", ids[0], ids[1]})["diff"];
  std::map<std::string, std::pair<json, json>> rows;
  for (const json& row : diff)
    rows[row["part"].get<std::string>() + " " + row["key"].get<std::string>()] = {row["a"], row["b"]};
  EXPECT_EQ(rows.size(), 4u) << diff.dump(1);
  EXPECT_EQ(rows["identity model"], std::pair(json("model"), json("other")));
  EXPECT_TRUE(rows.contains("identity weights"));
  EXPECT_EQ(rows["config lengths"], std::pair(json("[256]"), json("[512]")));
  EXPECT_EQ(rows["config task_options.only"], std::pair(json("1"), json()));
  const json all = json_of({"show", "diff-config", ids[0], ids[1], "--all"})["diff"];
  EXPECT_GT(all.size(), diff.size());
  EXPECT_EQ(run({"show", "diff-config", ids[0], ids[0]}).status, 0);
  expect_error(run({"show", "diff-config", ids[0]}), 2, {"two runs"});
}

}  // namespace
}  // namespace hayfork::cli
