// The whole program on a shipped checkpoint: plan, run, stop, resume, look.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/sanitizer.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::hayfork;
using test::ProcessOptions;
using test::ProcessResult;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kGrid = {"--tasks",  "niah",     "--lengths", "256,512",
                                        "--depths", "0,50,100", "--samples", "2"};

// A run to be stopped in, which takes seconds in every build.
const std::vector<std::string> kStopped = {"--tasks",  "niah",     "--lengths", test::kSanitized ? "512,1k" : "1k,2k",
                                           "--depths", "0-100+10", "--samples", "2"};

constexpr const char* kBegun = "run r";  // the plan line: the run is in the database and its samples are next

class RunTest : public ::testing::Test {
 protected:
  std::string model(const std::string& name = "full") const { return (test::source_dir() / "demo" / name).string(); }
  std::string db(const std::string& name = "runs.db") const { return (folder_.path() / name).string(); }
  ProcessResult run(std::vector<std::string> more = {}, const std::vector<std::string>& grid = kGrid,
                    ProcessOptions options = {}) {
    std::vector<std::string> arguments = {"run", "--model", model(), "--db", db(), "--threads", "1"};
    arguments.insert(arguments.end(), grid.begin(), grid.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    options.environment["HAYFORK_CACHE"] = (folder_.path() / "cache").string();
    return hayfork(arguments, options);
  }
  std::string digest(const std::string& file, const std::string& reference = "@last") const {
    const ProcessResult result = hayfork({"db", "digest", reference, "--db", file, "-o", "json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return result.status == 0 ? json::parse(result.out)["digest"]["sha256"].get<std::string>() : "";
  }
  // The digest of kStopped as a run that nothing stopped leaves it; made once.
  std::string whole() {
    static const std::string wanted = [this] {
      EXPECT_EQ(run({}, kStopped).status, 0);
      const std::string seen = digest(db());
      fs::remove(db());
      return seen;
    }();
    return wanted;
  }
  json runs() const { return json::parse(hayfork({"list", "runs", "--db", db(), "-o", "json"}).out)["runs"]; }
  test::TempDir folder_;
};

TEST_F(RunTest, GivesResultsAndAGrid) {
  const ProcessResult result = run({"--name", "first", "--tag", "t1"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("niah"));
  EXPECT_THAT(result.out, HasSubstr("95 % CI"));
  EXPECT_THAT(result.err, HasSubstr("next: hayfork show"));
  const json rows = runs();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["status"], "done");
  EXPECT_EQ(rows[0]["done"], 12);
  EXPECT_EQ(rows[0]["failed"], 0);

  for (const char* reference : {"@last", "first", "@tag:t1"}) {
    EXPECT_EQ(hayfork({"show", reference, "--db", db()}).status, 0) << reference;
  }
  const json shown = json::parse(hayfork({"show", "@last", "--db", db(), "-o", "json"}).out);
  EXPECT_EQ(shown["schema"], "hayfork/show-run/1");
  EXPECT_EQ(shown["run"]["digest"], digest(db()));
  EXPECT_FALSE(shown["results"].empty());
  EXPECT_EQ(hayfork({"show", "sample", "1", "--db", db()}).status, 0);
  EXPECT_EQ(hayfork({"db", "check", "--db", db()}).status, 0);
  EXPECT_EQ(hayfork({"db", "vacuum", "--db", db()}).status, 0);

  const std::string svg = (folder_.path() / "map.svg").string(), png = (folder_.path() / "map.png").string();
  EXPECT_EQ(hayfork({"heatmap", "@last", "--db", db(), "-o", svg}).status, 0);
  EXPECT_EQ(hayfork({"heatmap", "@last:niah", "--db", db(), "-o", png}).status, 0);
  EXPECT_GT(fs::file_size(svg), 1000u);
  EXPECT_GT(fs::file_size(png), 1000u);
  EXPECT_THAT(hayfork({"heatmap", "--db", db()}).out, HasSubstr("512"));
  EXPECT_THAT(hayfork({"heatmap", "@last", "@last", "--diff", "--db", db()}).out, HasSubstr("+0.00"));
  EXPECT_EQ(hayfork({"heatmap", "@last:nonsense", "--db", db()}).status, 2);
  EXPECT_EQ(hayfork({"heatmap", "--db", db(), "-o", "x.gif"}).status, 2);
}

TEST_F(RunTest, OnlyWhatCanBeDrawnIsSaidToBeDrawn) {
  EXPECT_THAT(run().err, HasSubstr("hayfork heatmap r"));
  const std::string questions = (test::source_dir() / "demo/tasks/questions.yaml").string();
  const ProcessResult result = run({}, {"--tasks", questions, "--limit", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("next: hayfork show r"));
  EXPECT_THAT(result.err, Not(HasSubstr("heatmap")));
  const ProcessResult heatmap = hayfork({"heatmap", "@last", "--db", db()});
  EXPECT_EQ(heatmap.status, 2);
  EXPECT_THAT(heatmap.err, HasSubstr("hayfork show @last"));
}

TEST_F(RunTest, EveryFormatIsPrinted) {
  ASSERT_EQ(run().status, 0);
  for (const char* format : {"table", "md", "csv", "json", "jsonl", "latex"}) {
    const ProcessResult result = hayfork({"show", "@last", "--db", db(), "-o", format});
    EXPECT_EQ(result.status, 0) << format;
    EXPECT_THAT(result.out, HasSubstr("niah")) << format;
  }
}

TEST_F(RunTest, BatchAndOrderChangeNothing) {
  ASSERT_EQ(run().status, 0);
  const std::string wanted = digest(db());
  ASSERT_EQ(run({"--batch-size", "1", "--order", "reverse", "--prefix-reuse", "off", "--chunk", "16"}).status, 0);
  EXPECT_EQ(digest(db()), wanted);
  ASSERT_EQ(run({"--order", "shuffle:3", "--threads", "2"}).status, 0);
  EXPECT_EQ(digest(db()), wanted);
}

TEST_F(RunTest, ADryRunRunsNothing) {
  const ProcessResult result = run({"--dry-run"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nothing was run"));
  EXPECT_THAT(result.out, HasSubstr("256"));
  EXPECT_FALSE(fs::exists(db()));
  const json plan = json::parse(run({"--dry-run", "-o", "json"}).out);
  EXPECT_EQ(plan["plan"].size(), 2u);
  EXPECT_EQ(plan["plan"][0]["samples"], 6);
}

TEST_F(RunTest, TasksMayStandInAFile) {
  const std::string file = (folder_.path() / "tasks.yaml").string();
  std::ofstream(file) << "tasks: [niah]\n";
  EXPECT_EQ(run({"--dry-run"}, {"--tasks", file, "--lengths", "256", "--samples", "1"}).status, 0);
  std::ofstream(file) << "tasks: {niah: 1}\n";
  EXPECT_EQ(run({"--dry-run"}, {"--tasks", file}).status, 2);
}

TEST_F(RunTest, PruningKeepsResults) {
  ASSERT_EQ(run().status, 0);
  EXPECT_EQ(hayfork({"db", "prune", "--db", db()}).status, 2);
  ASSERT_EQ(hayfork({"db", "prune", "--keep", "0", "--db", db()}).status, 0);
  EXPECT_EQ(json::parse(hayfork({"db", "check", "--db", db(), "-o", "json"}).out)["check"]["samples"], 0);
  EXPECT_FALSE(json::parse(hayfork({"show", "--db", db(), "-o", "json"}).out)["results"].empty());
}

TEST_F(RunTest, RefusesLengthsPastTheWindow) {
  const ProcessResult result = run({}, {"--tasks", "niah", "--lengths", "256,1m", "--depths", "0", "--samples", "1"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("model window is"));
  EXPECT_THAT(result.err, HasSubstr("1 of 2 samples"));
  EXPECT_THAT(result.err, HasSubstr("--allow-beyond-window"));
}

TEST_F(RunTest, AStoppedRunGoesOnToTheSameEnd) {
  const std::string wanted = whole();
  const ProcessResult stopped =
      run({"--batch-size", "2"}, kStopped, {.signal_after_s = 0.5, .once_it_says = kBegun, .signal = SIGINT});
  ASSERT_EQ(stopped.status, 130) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("hayfork resume"));
  EXPECT_EQ(runs()[0]["status"], "interrupted");
  const ProcessResult resumed = hayfork({"resume", "--db", db()});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(runs().size(), 1u);
  EXPECT_EQ(runs()[0]["status"], "done");
  EXPECT_EQ(digest(db()), wanted);
  EXPECT_THAT(hayfork({"resume", "--db", db()}).err, HasSubstr("nothing is left to do"));
}

TEST_F(RunTest, SigtermIsACleanStopToo) {
  const std::vector<std::string> grid = {"--tasks", "niah", "--lengths", "2k", "--depths", "0-100+5", "--samples", "4"};
  EXPECT_EQ(run({"--batch-size", "1"}, grid, {.signal_after_s = 0.5, .once_it_says = kBegun, .signal = SIGTERM}).status,
            143);
  EXPECT_EQ(runs()[0]["status"], "interrupted");
  EXPECT_EQ(hayfork({"db", "check", "--db", db()}).status, 0);
}

TEST_F(RunTest, TwoSignalsStopAtOnce) {
  const std::vector<std::string> grid = {"--tasks",  "niah",    "--lengths", "4k",
                                         "--depths", "0-100+5", "--samples", "20"};
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result =
      run({}, grid, {.signal_after_s = 0.5, .once_it_says = kBegun, .signal = SIGINT, .twice = true});
  EXPECT_EQ(result.status, 130);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // of minutes
  EXPECT_EQ(hayfork({"db", "check", "--db", db()}).status, 0);
}

TEST_F(RunTest, WhatTwoSignalsLeftGoesOnToTheSameEnd) {
  const std::string wanted = whole();
  ASSERT_EQ(run({"--batch-size", "1"}, kStopped,
                {.signal_after_s = 0.5, .once_it_says = kBegun, .signal = SIGINT, .twice = true})
                .status,
            130);
  EXPECT_EQ(hayfork({"db", "check", "--db", db()}).status, 0);
  const ProcessResult resumed = hayfork({"resume", "--db", db()});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(runs().size(), 1u);
  EXPECT_EQ(digest(db()), wanted);
}

TEST_F(RunTest, ATimeLimitStopsCleanly) {
  const std::vector<std::string> grid = {"--tasks",  "niah",    "--lengths", "4k",
                                         "--depths", "0-100+5", "--samples", "20"};
  const ProcessResult result = run({"--time-limit", "1s"}, grid);
  EXPECT_EQ(result.status, 4);
  EXPECT_THAT(result.err, HasSubstr("time limit"));
}

TEST_F(RunTest, ShardsMergeToTheWhole) {
  ASSERT_EQ(run().status, 0);
  const std::string wanted = digest(db());
  fs::remove(db());
  ASSERT_EQ(run({"--shard", "0/2"}).status, 0);
  fs::rename(db(), db("first.db"));
  ASSERT_EQ(run({"--shard", "1/2"}).status, 0);
  const ProcessResult merged = hayfork({"db", "merge", db("first.db"), "--db", db()});
  EXPECT_EQ(merged.status, 0) << merged.err;
  EXPECT_EQ(runs().size(), 1u);
  EXPECT_EQ(digest(db()), wanted);
  EXPECT_EQ(run({"--shard", "2/2"}).status, 2);

  // Behind the last shard, in the database of the others, comes what takes no shard.
  fs::remove(db());
  ASSERT_EQ(run({"--shard", "0/2"}).status, 0);
  const ProcessResult last = run({"--shard", "1/2"});
  EXPECT_THAT(last.err, HasSubstr("next: hayfork show r"));
  EXPECT_THAT(last.err, Not(HasSubstr("--shard")));
  EXPECT_EQ(digest(db()), wanted);
}

TEST_F(RunTest, EventsAreJsonLines) {
  const ProcessResult result = run({"--events", "jsonl", "--quiet"});
  ASSERT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("\"event\":\"begin\""));
  EXPECT_THAT(result.err, HasSubstr("\"event\":\"end\""));
}

TEST_F(RunTest, ShowPromptMakesThePromptOfThePlan) {
  const ProcessResult result = hayfork({"show", "prompts", "niah", "--model", model(), "--lengths", "256", "--depths",
                                        "50", "--samples", "1", "-o", "jsonl"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json prompt = json::parse(result.out);
  EXPECT_EQ(prompt["context_ids"].size(), prompt["prompt_tokens"].get<size_t>());
  EXPECT_THAT(prompt["context"].get<std::string>(), HasSubstr("The secret number of"));
  const ProcessResult people = hayfork({"show", "prompt", "niah", "--model", model(), "--index", "0", "--ids"});
  EXPECT_EQ(people.status, 0);
  EXPECT_THAT(people.out, HasSubstr("ids  ["));
  EXPECT_EQ(hayfork({"show", "prompt", "niah", "--model", model(), "--index", "100000"}).status, 2);
}

TEST_F(RunTest, ShowModelMapsItsLayers) {
  const ProcessResult result = hayfork({"show", "model", model("swa")});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("swa"));
  EXPECT_THAT(result.out, HasSubstr("0-3"));
  const json shown = json::parse(hayfork({"show", "model", model("swa"), "-o", "json"}).out);
  EXPECT_EQ(shown["layers"].size(), 4u);
  EXPECT_EQ(shown["layers"][0]["window"], 64);
}

TEST_F(RunTest, TheRemoteCacheLayoutIsAModelPath) {
  const fs::path repo = folder_.path() / "models--demo--full";
  fs::create_directories(repo / "snapshots");
  fs::create_directories(repo / "refs");
  fs::create_directory_symlink(model(), repo / "snapshots" / "abc");
  std::ofstream(repo / "refs" / "main") << "abc";
  EXPECT_EQ(hayfork({"show", "model", repo.string()}).status, 0);
  EXPECT_EQ(hayfork({"show", "model", (repo / "snapshots" / "abc").string()}).status, 0);
}

}  // namespace
}  // namespace hayfork::cli
