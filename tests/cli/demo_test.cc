// What ships in demo/: its documents work from a clean clone, and the models answer them as their layers let them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/sanitizer.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using test::hayfork;
using test::ProcessResult;
using ::testing::HasSubstr;

class Documents : public ::testing::Test {
 protected:
  std::string demo(const std::string& name) const { return (test::source_dir() / "demo" / name).string(); }
  // The value of a task's first metric.
  double value(const std::string& model, const std::vector<std::string>& tasks, const std::string& metric) {
    std::vector<std::string> arguments = {"run",       "--model", demo(model), "--db", db_,       "--limit", "12",
                                          "--threads", "1",       "--name",    model,  "--dtype", "f32"};
    arguments.insert(arguments.end(), tasks.begin(), tasks.end());
    const ProcessResult result = hayfork(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    const json shown = json::parse(hayfork({"show", "@last", "--db", db_, "-o", "json"}).out);
    for (const json& row : shown["results"])
      if (row["metric"] == metric && row["slice"] == "") return row["value"];
    ADD_FAILURE() << "no " << metric << " in " << shown["results"];
    return -1;
  }
  test::TempDir folder_;
  const std::string db_ = (folder_.path() / "runs.db").string();
};

TEST_F(Documents, OptionsToldAnywhereAreFoundByFullAttentionAndNotByAWindow) {
  const std::vector<std::string> task = {"--tasks", demo("tasks/which_number.yaml")};
  EXPECT_EQ(value("full", task, "acc"), 1.0);
  EXPECT_LT(value("swa", task, "acc"), 0.7);
}

TEST_F(Documents, AnswersAreWrittenByFullAttentionAndNotByAWindow) {
  const std::vector<std::string> task = {"--tasks", demo("tasks/questions.yaml")};
  EXPECT_EQ(value("full", task, "contains"), 1.0);
  EXPECT_LT(value("swa", task, "contains"), 0.7);
}

TEST_F(Documents, SentencesEndingInOrderNeedNoFarContext) {
  for (const char* model : {"full", "swa"})
    EXPECT_GE(value(model, {"--tasks", demo("tasks/endings.yaml")}, "acc"), 0.9) << model;
}

TEST_F(Documents, TheCorpusHasALoss) {
  const double loss =
      value("swa", {"--tasks", "corpus_loss", "--corpus", "demo_corpus", "--data", demo("data")}, "loss_token");
  EXPECT_GT(loss, 0.2);
  EXPECT_LT(loss, 3.5);  // every token alike: ln 1,088 = 7.0
  EXPECT_THAT(hayfork({"data", "verify", "--data", demo("data")}).out, HasSubstr("demo_corpus"));
}

class OrthrosOfTheZoo : public Documents {
 protected:
  std::vector<json> lines(const std::vector<std::string>& arguments) {
    const ProcessResult result = hayfork(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<json> out;
    std::istringstream in(result.out);
    for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
    return out;
  }
  std::vector<json> probe(const std::string& verb, const std::vector<json>& requests) {
    const std::string file = (folder_.path() / "requests.jsonl").string();
    std::ofstream out(file);
    for (const json& request : requests) out << request.dump() << "\n";
    out.close();
    return lines({"probe", verb, "--model", demo("orthros"), "--requests", file, "--threads", "1", "--dtype", "f32"});
  }
};

TEST_F(OrthrosOfTheZoo, ScoresAnAnswerAsItWritesIt) {
  const auto prompts = lines({"show", "prompts", "niah", "--model", demo("orthros"), "--lengths", "512,1024",
                              "--depths", "0,50,100", "--samples", "1", "-o", "jsonl"});
  ASSERT_EQ(prompts.size(), 6u);
  std::vector<json> generate, whole, steps;
  for (const json& prompt : prompts)
    generate.push_back({{"prompt", prompt["context_ids"]}, {"max_new_tokens", 8}, {"stop", {"\n"}}});
  const auto written = probe("generate", generate);
  ASSERT_EQ(written.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    json context = prompts[i]["context_ids"];
    const json& ids = written[i]["ids"];
    ASSERT_GE(ids.size(), 6u);
    whole.push_back({{"context", context}, {"continuations", {ids}}});
    for (const json& id : ids) {
      steps.push_back({{"context", context}, {"continuations", {json::array({id})}}});
      context.push_back(id);
    }
  }
  const auto scored = probe("logprobs", whole), stepwise = probe("logprobs", steps);
  size_t step = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_TRUE(scored[i]["is_greedy"][0].get<bool>()) << i;
    for (const json& logprob : scored[i]["token_logprobs"][0])
      EXPECT_EQ(logprob, stepwise.at(step++)["token_logprobs"][0][0]) << "prompt " << i;
  }
  EXPECT_EQ(step, stepwise.size());
}

TEST_F(OrthrosOfTheZoo, ADepthSweepComputesOneHaystackAndWhatEachNeedleTouches) {
  const std::string length = test::kSanitized ? "2048" : "4096";  // what each needle touches is the same at any length
  const auto sweep = [&](const std::string& reuse) {
    const std::string db = (folder_.path() / (reuse + ".db")).string();
    const ProcessResult result =
        hayfork({"run", "--model", demo("orthros"), "--tasks", "niah", "--lengths", length, "--depths", "0-100+10",
                 "--samples", "1", "--prefix-reuse", reuse, "--db", db, "--threads", "1", "--dtype", "f32"});
    EXPECT_EQ(result.status, 0) << result.err;
    int64_t rows = 0, prompt = 0;
    for (const json& sample : lines({"export", "samples", "@last", "--db", db, "-o", "jsonl"})) {
      rows += sample["rows_base"].get<int64_t>() + sample["rows_output"].get<int64_t>();
      prompt = std::max(prompt, sample["prompt_tokens"].get<int64_t>());
      EXPECT_EQ(sample["recipe_json"]["placement"], "overwrite");
    }
    const json digest = json::parse(hayfork({"db", "digest", "@last", "--db", db, "-o", "json"}).out);
    return std::pair(static_cast<double>(rows) / static_cast<double>(prompt), digest["digest"]["sha256"]);
  };
  const auto [with, digest_with] = sweep("on");
  const auto [without, digest_without] = sweep("off");
  EXPECT_LE(with, test::kSanitized ? 2.3 : 1.7);
  EXPECT_GE(without, 10.9);
  EXPECT_EQ(digest_with, digest_without);
}

}  // namespace
}  // namespace hayfork::cli
