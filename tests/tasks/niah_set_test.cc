// Needle sets of the user's own; what a run says aloud before it starts.
#include "tasks/niah_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/text/tokenizer.h"
#include "tasks/niah.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/paths.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class NiahSet : public testing::Test {
 protected:
  NiahSet() {
    options.events = [this](const Event& e) { events.push_back(e); };
    std::ofstream haystack(dir.path() / "zh.txt");
    for (int i = 0; i < 60; ++i) haystack << "话说天下大势，分久必合，合久必分。山中有一座古庙，庙里有一口井。";
    options.extra["haystack"] = (dir.path() / "zh.txt").string();
  }
  void write(const std::string& contents) {
    std::ofstream(dir.path() / "set.json") << contents;
    options.extra["set"] = (dir.path() / "set.json").string();
  }
  std::string refusal() const {
    try {
      make_task("niah", options, text);
    } catch (const Error& e) {
      return e.render();
    }
    return "nothing was refused";
  }
  std::map<std::string, std::optional<double>> judged(const Task& task, const std::string& response) const {
    engine::Answer answer;
    answer.result = engine::GenerateAnswer{.text = response};
    std::map<std::string, std::optional<double>> out;
    for (const MetricValue& v : task.score(task.sample(0), std::span(&answer, 1)).metrics) out[v.metric] = v.value;
    return out;
  }

  test::TempDir dir;
  test::ByteTokenizer tokenizer;
  TextContext text{.tokenizer = &tokenizer};
  std::vector<Event> events;
  TaskOptions options = {
      .lengths = {2048}, .depths = {0, 50, 100}, .samples = 6, .share_dirs = {test::source_dir() / "datasets"}};
};

constexpr const char* kTwo = R"({"after": "\n\n{question}", "answer_start": "答案是", "answer_tokens": 40, "items": [
  {"needles": ["悟空把金箍棒藏在了东海的石洞里。"], "question": "金箍棒在哪里？", "answers": ["东海的石洞"]},
  {"needles": ["八戒的钉耙是老君打造的。答案是"], "question": "谁打造了钉耙？", "answers": ["老君", "太上老君"]}]})";

TEST_F(NiahSet, ChineseNeedlesStandAtSentenceEndsOfAChineseText) {
  write(kTwo);
  const auto task = make_task("niah", options, text);
  EXPECT_EQ(task->info().protocol, "niah/set/1");
  EXPECT_EQ(json::parse(task->info().config_json)["set_sha256"].get<std::string>().size(), 64u);
  std::set<std::string> questions;
  for (int64_t i = 0; i < task->n_samples(); ++i) {
    const Sample s = task->sample(i);
    EXPECT_EQ(s.prompt_tokens + s.max_new_tokens, 2048);
    const auto& ids = std::get<engine::GenerateRequest>(s.requests[0]).prompt;
    const std::string whole = tokenizer.decode(ids);
    EXPECT_TRUE(whole.ends_with("？ 答案是")) << whole.substr(whole.size() - 60);
    questions.insert(whole.substr(whole.rfind("\n\n")));
    EXPECT_EQ(json::parse(s.recipe_json)["needles"][0]["edge"], "sentence");
  }
  EXPECT_EQ(questions.size(), 2u);  // both items are drawn
}

// The second needle ends as the answer begins: only generated text is scored, and the question's place is known.
TEST_F(NiahSet, ANeedleThatHoldsTheAnswersBeginningChangesNothing) {
  write(kTwo);
  const auto task = make_task("niah", options, text);
  for (int64_t i = 0; i < task->n_samples(); ++i) {
    const Sample s = task->sample(i);
    const auto question = json::parse(s.recipe_json)["question_tok"].get<int64_t>();
    const auto& ids = std::get<engine::GenerateRequest>(s.requests[0]).prompt;
    EXPECT_TRUE(tokenizer.decode(std::span(ids).subspan(static_cast<size_t>(question))).find("\n\n") < 4);
    engine::Answer answer;
    answer.result = engine::GenerateAnswer{.text = "不知道。"};
    EXPECT_EQ(task->score(s, std::span(&answer, 1)).score, 0);
  }
}

TEST_F(NiahSet, SubstringExactAndRouge) {
  write(R"({"items": [{"needles": [" Figs are the first ingredient.", " Honey is the second ingredient."],
    "question": "Which ingredients?", "answers": ["figs", "Honey and figs"]}]})");
  options.extra.erase("haystack");
  const auto task = make_task("niah", options, text);
  EXPECT_EQ(task->sample(0).requests.size(), 1u);
  auto m = judged(*task, " Honey and figs.\nMore text");
  EXPECT_EQ(m["acc"], 1);
  EXPECT_EQ(m["all_found"], 1);
  EXPECT_EQ(m["exact"], 1);
  EXPECT_NEAR(*m["rouge1"], 2 * 0.6 * 1 / 1.6, 1e-9);  // three of the five words of the response are the reference's
  m = judged(*task, " Figs");
  EXPECT_EQ(m["acc"], 0.5);
  EXPECT_EQ(m["all_found"], 0);
  EXPECT_EQ(m["exact"], 0);
  EXPECT_EQ(m["rouge1"], 1);
  write(kTwo);
  const auto chinese = make_task("niah", options, text);
  EXPECT_FALSE(judged(*chinese, "东海的石洞")["rouge1"]);  // no word of a to z
}

TEST_F(NiahSet, FilesThatCannotBeUsedNameTheirFault) {
  const auto fault = [&](const std::string& contents) {
    write(contents);
    return refusal();
  };
  EXPECT_THAT(fault("{"), HasSubstr("set.json"));
  EXPECT_THAT(fault("[]"), HasSubstr("want an object"));
  EXPECT_THAT(fault(R"({"items": []})"), HasSubstr("at least one item"));
  EXPECT_THAT(fault(R"({"itmes": []})"), HasSubstr("unknown key \"itmes\""));
  EXPECT_THAT(fault(R"({"items": [{"needles": ["a"], "question": "b", "answers": []}]})"), HasSubstr("item 0"));
  EXPECT_THAT(fault(R"({"items": [{"needles": [""], "question": "b", "answers": ["c"]}]})"), HasSubstr("empty"));
  EXPECT_THAT(fault(R"({"after": "x", "items": [{"needles": ["a"], "question": "b", "answers": ["c"]}]})"),
              HasSubstr("{question}"));
  EXPECT_THAT(fault(R"({"items": [{"needles": ["a"], "question": "b", "answers": ["c"]},
                                  {"needles": ["a", "d"], "question": "b", "answers": ["c"]}]})"),
              HasSubstr("item 1"));
  EXPECT_THAT(fault(R"({"answer_tokens": 0, "items": []})"), HasSubstr("answer_tokens"));
  write(kTwo);
  options.extra["kind"] = "number";
  EXPECT_THAT(refusal(), HasSubstr("contradict"));
  options.extra = {{"set", (dir.path() / "none.json").string()}};
  EXPECT_THAT(refusal(), HasSubstr("none.json"));
}

TEST_F(NiahSet, DepthsOutOfOrderOrTwiceAreTakenOnceAndSaidAloud) {
  options.extra.clear();
  options.depths = {100, 0, 50, 50};
  const auto task = make_task("niah", options, text);
  EXPECT_EQ(task->n_samples(), 18);
  EXPECT_EQ(task->key(1).depth_pct, 50);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].code, "HAY-I024");
  EXPECT_THAT(events[0].message, HasSubstr("0, 50, 100"));
}

// A byte is a token here, so that no needle can be split otherwise; a tokenizer that joins ".\n" with what follows can.
TEST_F(NiahSet, NeedlesOfWholeTokensAreNotCountedAsSplit) {
  options.extra.clear();
  const auto task = make_task("niah", options, text);
  for (const Event& e : events) EXPECT_NE(e.code, "HAY-W023");
  EXPECT_FALSE(json::parse(task->sample(0).recipe_json)["needles"][0].contains("split"));
}

TEST_F(NiahSet, ATemplateThatChangesWhiteSpaceIsRefused) {
  options.extra.clear();
  text.chat = [](std::span<const ChatMessage> messages, bool) {
    std::string out;
    for (const char c : messages.back().content) out += c == '\n' || c == '\t' ? ' ' : c;
    return "<u>" + out + "</u>";
  };
  EXPECT_THAT(refusal(), HasSubstr("does not give the user's text back"));
  text.chat = [](std::span<const ChatMessage> messages, bool) { return "<u>" + messages.back().content + "</u>"; };
  EXPECT_EQ(make_task("niah", options, text)->n_samples(), 18);
}

TEST_F(NiahSet, ABosThatTheTokenizerDoesNotHaveIsRefused) {
  options.extra.clear();
  const auto bare = engine::Tokenizer::load(test::source_dir() / "demo" / "full");
  if (bare->bos_id()) GTEST_SKIP() << "the demo's tokenizer has one";
  text.tokenizer = bare.get();
  text.add_bos = true;
  EXPECT_THAT(refusal(), HasSubstr("no BOS"));
}

}  // namespace
}  // namespace hayfork::tasks
