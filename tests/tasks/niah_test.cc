#include "tasks/niah.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "engine/text/tokenizer.h"
#include "tasks/run_task.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/fake_lm.h"
#include "tests/support/paths.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;
using test::ByteTokenizer;

class Niah : public testing::Test {
 protected:
  ByteTokenizer tokenizer;
  TextContext text{.tokenizer = &tokenizer};
  TaskOptions options = {
      .lengths = {1024, 2048}, .depths = {0, 50, 100}, .samples = 2, .share_dirs = {test::source_dir() / "datasets"}};

  std::unique_ptr<Task> make() const { return make_task("niah", options, text); }
  static const std::vector<int32_t>& prompt(const Sample& s) {
    return std::get<engine::GenerateRequest>(s.requests[0]).prompt;
  }
  std::string needle_text(const Sample& s) const {
    return tokenizer.decode(std::span(prompt(s)).subspan(*s.needle_tok, *s.needle_tokens));
  }
  static std::string refusal(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      return e.render();
    }
    return "nothing was refused";
  }
};

TEST_F(Niah, PromptAndAnswerTogetherAreExactlyTheLength) {
  for (const char* kind : {"number", "secret", "passkey", "kamradt-sf", "kamradt-pizza"})
    for (const char* placement : {"overwrite", "insert"}) {
      options.extra = {{"kind", kind}, {"placement", placement}};
      const auto task = make();
      ASSERT_EQ(task->n_samples(), 12);
      for (int64_t i = 0; i < 12; ++i) {
        const Sample s = task->sample(i);
        EXPECT_EQ(static_cast<int64_t>(prompt(s).size()) + s.max_new_tokens, *s.ctx_len) << kind << placement;
        EXPECT_EQ(s.prompt_tokens, static_cast<int64_t>(prompt(s).size()));
        EXPECT_FALSE(s.truncated);
      }
    }
}

TEST_F(Niah, NumberPromptHasTheRuledWording) {
  const auto task = make();
  const Sample s = task->sample(1);
  const std::string prompt_text = tokenizer.decode(prompt(s));
  EXPECT_TRUE(
      prompt_text.starts_with("Some special magic numbers are hidden within the following text. Memorize them.\n\n"));
  const json recipe = json::parse(s.recipe_json);
  const std::string key = recipe["needles"][0]["key"], value = recipe["needles"][0]["value"];
  EXPECT_EQ(value.size(), 7u);
  EXPECT_EQ(needle_text(s), " The special magic number for " + key + " is " + value + ".");
  EXPECT_TRUE(prompt_text.ends_with("\n\nWhat is the special magic number for " + key +
                                    "? The special magic number for " + key + " is"));
  EXPECT_EQ(s.targets, std::vector<std::string>{value});
  EXPECT_EQ(s.max_new_tokens, 32);
  EXPECT_EQ(task->info().protocol, "niah/number/1");
}

TEST_F(Niah, SecretPromptHasNoFrameAndStopsAtALineFeed) {
  text.hints_json = R"({"niah": {"kind": "secret"}})";
  const auto task = make();
  const Sample s = task->sample(1);
  const json recipe = json::parse(s.recipe_json);
  EXPECT_EQ(recipe["kind"], "secret");
  const std::string city = recipe["needles"][0]["key"], value = recipe["needles"][0]["value"];
  EXPECT_EQ(needle_text(s), " The secret number of " + city + " is " + value + ".");
  EXPECT_TRUE(tokenizer.decode(prompt(s)).ends_with("\nWhat is the secret number of " + city +
                                                    "? The secret number of " + city + " is"));
  EXPECT_EQ(std::get<engine::GenerateRequest>(s.requests[0]).stops, std::vector<std::string>{"\n"});
}

TEST_F(Niah, OverwrittenPromptsOfASeedDifferInTheNeedleOnly) {
  options.lengths = {2048};
  options.depths = {0, 25, 50, 75, 100};
  options.extra = {{"needles", "4"}};
  const auto task = make();
  const Sample first = task->sample(0);
  for (int64_t i = 1; i < 5; ++i) {
    const Sample s = task->sample(i);
    EXPECT_EQ(*s.needle_tokens, *first.needle_tokens);
    EXPECT_NE(*s.needle_tok, *first.needle_tok);
    for (size_t t = 0; t < prompt(s).size(); ++t) {
      const auto in = [&](const Sample& x) {
        return static_cast<int64_t>(t) >= *x.needle_tok && static_cast<int64_t>(t) < *x.needle_tok + *x.needle_tokens;
      };
      if (!in(s) && !in(first)) {
        ASSERT_EQ(prompt(s)[t], prompt(first)[t]) << i << " token " << t;
      }
    }
  }
}

TEST_F(Niah, NeedlesStandAtSentenceEndsNearTheirDepth) {
  options.lengths = {4096};
  options.depths = {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
  options.samples = 5;
  for (const char* placement : {"overwrite", "insert"}) {
    options.extra = {{"placement", placement}};
    const auto task = make();
    for (int64_t i = 0; i < task->n_samples(); ++i) {
      const Sample s = task->sample(i);
      EXPECT_NEAR(*s.depth_real, *s.depth_pct, 5.5);
      const json recipe = json::parse(s.recipe_json);
      EXPECT_EQ(recipe["needles"][0]["edge"], "sentence");
      const std::string before = tokenizer.decode(std::span(prompt(s)).first(*s.needle_tok));
      if (*s.depth_pct > 0) {
        EXPECT_TRUE(before.ends_with('.')) << before.substr(before.size() - 20);
      }
      EXPECT_EQ(*s.needle_tok + *s.needle_tokens + *s.needle_distance, recipe["question_tok"].get<int64_t>());
    }
  }
}

TEST_F(Niah, TheHaystackEndsWithAWholeSentence) {
  for (const char* placement : {"overwrite", "insert"}) {
    options.extra = {{"placement", placement}};
    const auto task = make();
    for (int64_t i = 0; i < task->n_samples(); ++i) {
      const Sample s = task->sample(i);
      const json recipe = json::parse(s.recipe_json);
      EXPECT_TRUE(recipe["haystack_whole_sentences"].get<bool>());
      const std::string whole = tokenizer.decode(prompt(s));
      const size_t ask = whole.rfind("\n\nWhat is the special");
      EXPECT_EQ(whole[ask - 1], '.');
      EXPECT_NE(whole[ask - 2], '.');
    }
  }
}

TEST_F(Niah, ATextWithoutSentencesIsCutAnywhere) {
  test::TempDir dir;
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "word" + std::to_string(i) + " ";
  std::ofstream(dir.path() / "words.txt") << words;
  options.extra = {{"haystack", (dir.path() / "words.txt").string()}};
  const auto task = make();
  for (int64_t i = 0; i < task->n_samples(); ++i) {
    const Sample s = task->sample(i);
    const json recipe = json::parse(s.recipe_json);
    EXPECT_FALSE(recipe["haystack_whole_sentences"].get<bool>());
    EXPECT_EQ(s.prompt_tokens, *s.ctx_len - 32);
    EXPECT_NE(recipe["needles"][0]["edge"], "inside");
  }
}

TEST_F(Niah, ASampleDependsOnItsOwnCellOnly) {
  const auto task = make();
  options.lengths = {512, 2048, 4096};
  options.depths = {50};
  options.samples = 7;
  const auto other = make();
  const Sample a = task->sample(3 * 2 + 3 * 1 + 1), b = other->sample(7 + 1);  // length 2048, repeat 1, depth 50
  EXPECT_EQ(a.doc_id, b.doc_id);
  EXPECT_EQ(a.doc_sha256, b.doc_sha256);
  EXPECT_EQ(prompt(a), prompt(b));
  EXPECT_EQ(a.prompt_sha256, b.prompt_sha256);
  options.seed = 1;
  const Sample c = make()->sample(7 + 1);
  EXPECT_NE(b.prompt_sha256, c.prompt_sha256);
  EXPECT_NE(b.doc_sha256, c.doc_sha256);
}

TEST_F(Niah, SeveralNeedlesHaveDifferentKeysAndDoNotOverlap) {
  options.lengths = {2048};
  options.extra = {{"needles", "9"}, {"kind", "secret"}};
  for (const char* placement : {"overwrite", "insert"}) {
    options.extra["placement"] = placement;
    const auto task = make();
    for (int64_t i = 0; i < task->n_samples(); ++i) {
      const Sample s = task->sample(i);
      const json recipe = json::parse(s.recipe_json);
      ASSERT_EQ(recipe["needles"].size(), 9u);
      const std::string whole = tokenizer.decode(prompt(s));
      std::set<std::string> keys;
      for (const json& n : recipe["needles"]) {
        keys.insert(n["key"].get<std::string>());
        const std::string want =
            " The secret number of " + n["key"].get<std::string>() + " is " + n["value"].get<std::string>() + ".";
        EXPECT_EQ(whole.substr(n["tok"].get<size_t>(), n["tokens"].get<size_t>()), want);
      }
      EXPECT_EQ(keys.size(), 9u);
    }
  }
}

TEST_F(Niah, AChatTemplateStandsAroundTheDocumentAndTheAnswerStart) {
  text.chat = [](std::span<const ChatMessage> messages, bool) {
    std::string out;
    for (const ChatMessage& m : messages) out += "<" + m.role + ">" + m.content + "</>";
    return out + "<assistant>";
  };
  text.system = "Be brief.";
  const Sample s = make()->sample(0);
  const std::string whole = tokenizer.decode(prompt(s));
  EXPECT_TRUE(whole.starts_with("<system>Be brief.</><user>Some special magic"));
  EXPECT_NE(whole.find("?</><assistant>The special magic number for "), std::string::npos);
  EXPECT_EQ(prompt(s).size(), 1024u - 32u);
  text.chat = [](std::span<const ChatMessage>, bool) { return std::string("template without the text"); };
  EXPECT_NE(refusal([&] { make(); }).find("does not give the user's text back"), std::string::npos);
}

TEST_F(Niah, BosStandsFirst) {
  text.add_bos = true;
  const Sample s = make()->sample(0);
  EXPECT_EQ(prompt(s)[0], 256);
  EXPECT_EQ(prompt(s).size(), 1024u - 32u);
}

TEST_F(Niah, WrongOptionsAreRefusedWithAWayOn) {
  options.extra = {{"placment", "insert"}};
  EXPECT_NE(refusal([&] { make(); }).find("did you mean placement?"), std::string::npos);
  options.extra = {{"kind", "secrets"}};
  EXPECT_NE(refusal([&] { make(); }).find("it is one of number, secret"), std::string::npos);
  options.extra = {{"needles", "0"}};
  EXPECT_NE(refusal([&] { make(); }).find("from 1 to 64"), std::string::npos);
  options.extra = {};
  options.depths = {101};
  EXPECT_NE(refusal([&] { make(); }).find("a depth is no percentage"), std::string::npos);
  options.depths = {50};
  text.max_length = 1500;
  EXPECT_NE(refusal([&] { make(); }).find("the model's window is 1500 tokens but niah needs 2048"), std::string::npos);
  EXPECT_NE(refusal([&] { make_task("naih", options, text); }).find("did you mean niah?"), std::string::npos);
}

TEST_F(Niah, ALengthTooSmallNamesTheSmallestThatWorks) {
  options.lengths = {100};
  const std::string message = refusal([&] { make(); });
  const size_t at = message.find("the smallest workable length is ");
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t smallest = std::stoll(message.substr(at + 32));
  options.lengths = {smallest - 1};
  EXPECT_NE(refusal([&] { make(); }).find("smallest workable length"), std::string::npos);
  options.lengths = {smallest};
  EXPECT_EQ(make()->sample(0).prompt_tokens, smallest - 32);
}

TEST_F(Niah, AShortHaystackGoesRoundAndSaysSo) {
  test::TempDir dir;
  std::ofstream(dir.path() / "b.txt") << "Second file ends here.\n";
  std::ofstream(dir.path() / "a.txt") << "The first file. It has two sentences.\n";
  std::ofstream(dir.path() / "c.md") << "not text";
  options.extra = {{"haystack", dir.path().string()}};
  std::vector<Event> events;
  options.events = [&](const Event& e) { events.push_back(e); };
  const auto task = make();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, "HAY-W020");
  const Sample s = task->sample(2);
  EXPECT_TRUE(json::parse(s.recipe_json)["haystack_repeated"].get<bool>());
  EXPECT_NE(tokenizer.decode(prompt(s)).find("two sentences.\nSecond file ends here.\nThe first file."),
            std::string::npos);
  EXPECT_EQ(task->info().dataset->n_docs, 2);
}

TEST_F(Niah, ThePlanCountsEverySampleAndToken) {
  const auto task = make();
  const auto plan = task->plan();
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].n_samples, 6);
  EXPECT_EQ(plan[0].prompt_tokens, 6 * (1024 - 32));
  EXPECT_EQ(plan[1].new_tokens, 6 * 32);
}

// ---- Through run_task, with models whose heatmaps are known --------------------------------------------------------

std::vector<FoldRow> run(const Task& task, engine::Lm& lm, std::vector<SampleResult>* results = nullptr) {
  std::vector<FoldRow> rows;
  StopFlag stop;
  run_task(
      task, lm, {},
      [&](SampleResult r) {
        rows.push_back({r.sample, r.score.status, r.score.score, r.score.metrics});
        if (results != nullptr) results->push_back(std::move(r));
      },
      stop);
  return rows;
}

std::optional<double> value(const std::vector<Aggregate>& aggregates, const std::string& slice,
                            const std::string& metric = "acc") {
  for (const Aggregate& a : aggregates)
    if (a.slice == slice && a.metric == metric) return a.value;
  ADD_FAILURE() << "no aggregate " << slice;
  return std::nullopt;
}

TEST_F(Niah, AModelThatKnowsScoresOneAndOneThatDoesNotZero) {
  const auto task = make();
  test::KnowingLm knows(tokenizer);
  test::IgnorantLm ignorant(tokenizer);
  const auto right = task->fold(run(*task, knows)), wrong = task->fold(run(*task, ignorant));
  EXPECT_EQ(value(right, ""), 1);
  EXPECT_EQ(value(right, "ctx_len=2048;depth_pct=50"), 1);
  EXPECT_EQ(value(wrong, ""), 0);
  EXPECT_EQ(value(wrong, "depth_pct=100", "substring"), 0);
}

TEST_F(Niah, AWindowModelsHeatmapIsWhatItsWindowReaches) {
  options.depths = {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
  options.samples = 3;
  const auto task = make();
  constexpr int64_t kWindow = 700;
  test::WindowLm window(tokenizer, kWindow);
  std::vector<SampleResult> results;
  run(*task, window, &results);
  ASSERT_EQ(results.size(), 66u);
  int right = 0;
  for (const SampleResult& r : results) {
    // The sentence without its opening blank must lie in the window.
    const bool reach = r.sample.prompt_tokens - (*r.sample.needle_tok + 1) <= kWindow;
    EXPECT_EQ(*r.score.score, reach ? 1 : 0) << r.sample.doc_id << " " << r.sample.repeat;
    right += reach;
  }
  EXPECT_GT(right, 15);
  EXPECT_LT(right, 45);
}

TEST_F(Niah, AFailedRequestIsCountedAndNeverAZero) {
  options.lengths = {1024};
  const auto task = make();
  test::KnowingLm knows(tokenizer);
  knows.failing = {0, 3};  // the fake answers from the last to the first: samples 5 and 2, both of depth 100
  std::vector<SampleResult> results;
  const auto rows = run(*task, knows, &results);
  const auto folded = task->fold(rows);
  EXPECT_EQ(value(folded, ""), 1);
  EXPECT_EQ(value(folded, "ctx_len=1024;depth_pct=100"), std::nullopt);
  int failed = 0;
  for (const SampleResult& r : results)
    if (r.score.status == Status::failed) {
      ++failed;
      EXPECT_FALSE(r.score.score);
      EXPECT_EQ(r.score.error, "out of memory, on purpose");
    }
  EXPECT_EQ(failed, 2);
}

TEST_F(Niah, ShardsStoredSamplesAndBlocksTogetherMakeTheSamePlan) {
  const auto task = make();
  std::map<int64_t, std::string> whole, parts;
  StopFlag stop;
  test::KnowingLm lm(tokenizer);
  run_task(
      *task, lm, {}, [&](SampleResult r) { whole[r.index] = r.sample.ids_sha256 + r.score.answer; }, stop);
  std::set<std::pair<std::string, int64_t>> done = {{task->key(4).doc_id, task->key(4).repeat}};
  parts[4] = whole[4];
  for (int64_t shard = 0; shard < 3; ++shard) {
    RunOptions options_of_run{.shard = shard, .n_shards = 3, .done = &done, .max_block_tokens = 1};
    const RunTotals totals = run_task(
        *task, lm, options_of_run, [&](SampleResult r) { parts[r.index] = r.sample.ids_sha256 + r.score.answer; },
        stop);
    EXPECT_EQ(totals.n_selected, shard == 1 ? 3 : 4);
    EXPECT_EQ(totals.n_ok, totals.n_selected);
  }
  EXPECT_EQ(whole.size(), 12u);
  EXPECT_EQ(whole, parts);
}

TEST_F(Niah, AnEarlyStopLeavesTheRestUndone) {
  const auto task = make();
  test::KnowingLm lm(tokenizer);
  lm.stop_after = 5;
  StopFlag stop;
  int n = 0;
  const RunTotals totals = run_task(
      *task, lm, {}, [&](SampleResult) { ++n; }, stop);
  EXPECT_EQ(n, 5);
  EXPECT_TRUE(totals.stopped);
}

TEST_F(Niah, FoldDoesNotDependOnTheOrderOfRows) {
  const auto task = make();
  test::WindowLm lm(tokenizer, 700);
  std::vector<FoldRow> rows = run(*task, lm);
  const auto a = task->fold(rows);
  std::reverse(rows.begin(), rows.end());
  const auto b = task->fold(rows);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].slice, b[i].slice);
    EXPECT_EQ(a[i].value, b[i].value);
    EXPECT_EQ(a[i].ci_low, b[i].ci_low);
  }
}

TEST_F(Niah, SamplesAreTheSameFromManyThreads) {
  options.samples = 8;
  const auto task = make();
  std::vector<std::string> one, many(static_cast<size_t>(task->n_samples()));
  for (int64_t i = 0; i < task->n_samples(); ++i) one.push_back(task->sample(i).ids_sha256);
  set_threads(4);
  parallel_for(task->n_samples(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) many[static_cast<size_t>(i)] = task->sample(i).ids_sha256;
  });
  EXPECT_EQ(one, many);
}

}  // namespace
}  // namespace hayfork::tasks
