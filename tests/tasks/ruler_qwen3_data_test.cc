// RULER's prompts with a real tokenizer: upstream's own runs with Qwen3, all thirteen tasks, two templates, 4K; and its
// scoring.
#include <fstream>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file_map.h"
#include "engine/text/tokenizer.h"
#include "tasks/tasks.h"
#include "tests/support/paths.h"
#include "tests/support/ruler_golden.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

// 4096 here, with every field; the longer runs are in ruler_qwen3_slow_test.cc.
TEST(RulerQwen3Data, EveryPromptEqualsUpstreams) {
  HAY_NEED_DATA(ruler, "ruler");
  HAY_NEED_DATA(archive, "tokenizers/qwen3.tar.xz");
  EXPECT_EQ(test::check_ruler_runs(ruler, archive, 4096, 4096), 104);
}

TEST(RulerScoringData, EqualsUpstreamsEvaluate) {
  HAY_NEED_DATA(ruler, "ruler");
  const auto tokenizer = engine::Tokenizer::load(test::source_dir() / "demo" / "full");
  int n = 0;
  for (const char* file : {"golden/scoring_cases.json", "golden_hf/golden_scores.json"}) {
    const json cases = json::parse(read_file(ruler / file, ErrorSubject::data))["cases"];
    for (const auto& [name, metric] :
         {std::pair{"ruler_fwe", "string_match_all"}, {"ruler_qa_1", "string_match_part"}}) {
      const auto task = make_task(name, {.lengths = {4096}, .samples = 1, .data_dir = ruler.parent_path()},
                                  {.tokenizer = tokenizer.get()});
      for (const json& c : cases) {
        Sample sample;
        sample.targets = c["refs"].get<std::vector<std::string>>();
        engine::Answer answer;
        answer.result = engine::GenerateAnswer{.text = c["pred"].get<std::string>()};
        const SampleScore score = task->score(sample, std::span(&answer, 1));
        EXPECT_NEAR(*score.score * 100, c[metric].get<double>(), 0.005) << c;
        EXPECT_EQ(score.metrics[1].value, c["postprocessed"] == "" ? 1 : 0) << c;
        ++n;
      }
    }
  }
  EXPECT_EQ(n, 2 * 62);
}

// Upstream never ends where ten documents do not fit.
TEST(RulerQaData, AShortLengthKeepsTheQuestionsOwnDocuments) {
  HAY_NEED_DATA(ruler, "ruler");
  const auto tokenizer = engine::Tokenizer::load(test::source_dir() / "demo" / "full");
  for (const char* name : {"ruler_qa_1", "ruler_qa_2"}) {
    std::vector<Event> events;
    TaskOptions options{.lengths = {1024}, .samples = 8, .data_dir = ruler.parent_path()};
    options.events = [&](const Event& e) { events.push_back(e); };
    const auto task = make_task(name, options, {.tokenizer = tokenizer.get()});
    ASSERT_EQ(events.size(), 1u) << name;
    EXPECT_EQ(events[0].code, "HAY-W022");
    for (int64_t i = 0; i < 8; ++i) {
      const Sample s = task->sample(i);
      EXPECT_TRUE(json::parse(s.recipe_json)["clamped"].get<bool>());
    }
  }
}

TEST(RulerEssaysData, TooFewWordsGoRoundOrEndAndThatIsSaid) {
  HAY_NEED_DATA(ruler, "ruler");
  const auto tokenizer = engine::Tokenizer::load(test::source_dir() / "demo" / "full");
  const test::TempDir folder;
  const std::string essays = (folder.path() / "essays.txt").string();
  std::ofstream(essays) << "One short essay. It has two sentences.";
  for (const char* protocol : {"p1", "p0"}) {
    std::vector<Event> events;
    TaskOptions options{.lengths = {4096}, .samples = 2, .data_dir = ruler.parent_path()};
    options.events = [&](const Event& e) { events.push_back(e); };
    options.extra["protocol"] = protocol;
    make_task("ruler_niah_single_2", options, {.tokenizer = tokenizer.get()})->sample(1);
    EXPECT_TRUE(events.empty()) << protocol << ": the essays at hand are long enough";
    options.extra["essays"] = essays;
    make_task("ruler_niah_single_2", options, {.tokenizer = tokenizer.get()})->sample(1);
    ASSERT_EQ(events.size(), 1u) << protocol;
    EXPECT_EQ(events[0].code, "HAY-W020");
    const std::string what = std::string(protocol) == "p1" ? "go round to fill 4096" : "end before length 4096";
    EXPECT_EQ(events[0].message, "the essays have 7 words and " + what);
  }
}

}  // namespace
}  // namespace hayfork::tasks
