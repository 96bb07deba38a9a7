// RULER without its data: the group's arithmetic, post-processing, templates, and tasks on small made-up sources.
#include "tasks/ruler.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/parallel.h"
#include "tasks/run_task.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/fake_lm.h"
#include "tests/support/paths.h"

namespace hayfork::tasks {
namespace {

using nlohmann::json;

TEST(RulerPostprocess, StripsAndTurnsControlCharactersIntoLineFeeds) {
  EXPECT_EQ(ruler_postprocess("  a\tb\x01"
                              "c \n"),
            "a\nb\nc");
  EXPECT_EQ(ruler_postprocess("\x1f\x02 \u3000"), "");
  EXPECT_EQ(ruler_postprocess("\u200b x"), "\u200b x");
}

std::map<std::string, std::vector<Aggregate>> scores(const std::vector<std::pair<int64_t, double>>& by_length) {
  std::map<std::string, std::vector<Aggregate>> members;
  for (const std::string& name : ruler_members())
    for (const auto& [length, value] : by_length) {
      Aggregate a;
      a.slice = "ctx_len=" + std::to_string(length);
      a.metric = "score";
      a.value = value;
      a.n = 100;
      a.stderr_value = 0.02;
      members[name].push_back(a);
    }
  return members;
}

std::optional<double> value(const std::vector<Aggregate>& all, const std::string& slice, const std::string& metric) {
  for (const Aggregate& a : all)
    if (a.slice == slice && a.metric == metric) return a.value;
  ADD_FAILURE() << slice << " " << metric;
  return {};
}

// Gemini-1.5-pro in the README's table: 95.5 rising (specified check of the weights).
TEST(RulerGroup, WeightsAndEffectiveLengthFollowThePaper) {
  const auto all =
      fold_ruler(scores({{4096, .967}, {8192, .958}, {16384, .96}, {32768, .959}, {65536, .959}, {131072, .944}}));
  EXPECT_NEAR(*value(all, "", "wavg_inc"), 0.955, 0.0005);
  EXPECT_NEAR(*value(all, "", "score"), 0.9578, 0.0001);
  EXPECT_EQ(value(all, "", "effective_length"), 131072);
  EXPECT_NEAR(*value(all, "ctx_len=8192", "score"), 0.958, 1e-12);
}

TEST(RulerGroup, EffectiveLengthStopsAtTheFirstFailure) {
  const auto all = fold_ruler(scores({{4096, .9}, {8192, .857}, {16384, .85}, {32768, .9}}));
  EXPECT_EQ(value(all, "", "effective_length"), 8192);
  EXPECT_EQ(value(all, "", "effective_length_ci"), 4096);
}

TEST(RulerGroup, AMissingTaskLeavesNoMean) {
  auto members = scores({{4096, .9}, {8192, .9}});
  members["ruler_vt"].pop_back();
  const auto all = fold_ruler(members);
  EXPECT_NEAR(*value(all, "ctx_len=4096", "score"), 0.9, 1e-12);
  EXPECT_FALSE(value(all, "ctx_len=8192", "score"));
  EXPECT_FALSE(value(all, "", "score"));
  EXPECT_EQ(value(all, "", "effective_length"), 4096);
}

class RulerSmall : public testing::Test {
 protected:
  RulerSmall() {
    std::ofstream nouns(dir.path() / "nounlist.txt"), adjectives(dir.path() / "adjectivelist.txt"),
        verbs(dir.path() / "verblist.txt");
    for (int i = 0; i < 300; ++i) nouns << "noun" << i << "\n";
    for (int i = 0; i < 30; ++i) adjectives << "adj" << i << " \n";
    for (int i = 0; i < 30; ++i) verbs << "verb" << i << "\n";
    options.extra = {{"words", dir.path().string()}};
  }
  static const std::vector<int32_t>& prompt(const Sample& s) {
    return std::get<engine::GenerateRequest>(s.requests[0]).prompt;
  }

  test::TempDir dir;
  test::ByteTokenizer tokenizer;
  TextContext text{.tokenizer = &tokenizer};
  TaskOptions options{.lengths = {3000, 6000}, .samples = 4};
};

TEST_F(RulerSmall, PromptsFitAndHoldTheirAnswers) {
  for (const char* name : {"ruler_niah_single_1", "ruler_niah_multikey_2", "ruler_niah_multikey_3", "ruler_fwe"}) {
    const auto task = make_task(name, options, text);
    ASSERT_EQ(task->n_samples(), 8);
    for (int64_t i = 0; i < 8; ++i) {
      const Sample s = task->sample(i);
      EXPECT_LE(s.prompt_tokens + s.max_new_tokens, *s.ctx_len) << name;
      const std::string whole = tokenizer.decode(prompt(s));
      for (const std::string& target : s.targets)
        EXPECT_NE(whole.find(target), std::string::npos) << name << " " << target;
    }
  }
}

TEST_F(RulerSmall, SamplesAreTheSameInAnyOrderAndFromManyThreads) {
  const auto forwards = make_task("ruler_niah_single_1", options, text),
             backwards = make_task("ruler_niah_single_1", options, text);
  std::vector<std::string> a, b(8);
  for (int64_t i = 0; i < 8; ++i) a.push_back(forwards->sample(i).ids_sha256);
  for (int64_t i = 8; i-- > 0;) b[static_cast<size_t>(i)] = backwards->sample(i).ids_sha256;
  EXPECT_EQ(a, b);
  EXPECT_EQ(std::set<std::string>(a.begin(), a.end()).size(), 8u);
  EXPECT_EQ(forwards->sample(2).ids_sha256, a[2]);
  const int threads = current_threads();
  for (const int n : {1, 2, 8}) {
    const auto many = make_task("ruler_niah_single_1", options, text);
    std::vector<std::string> c(8);
    set_threads(n);
    parallel_for(8, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) c[static_cast<size_t>(i)] = many->sample(i).ids_sha256;
    });
    EXPECT_EQ(c, a) << n << " threads";
  }
  set_threads(threads);
  options.samples = 2;
  EXPECT_EQ(make_task("ruler_niah_single_1", options, text)->sample(3).ids_sha256, a[5]);
}

TEST_F(RulerSmall, OneBosAtMost) {
  text.add_bos = true;
  EXPECT_EQ(prompt(make_task("ruler_fwe", options, text)->sample(0))[0], 256);
}

TEST_F(RulerSmall, AChatTemplateIsTheModelsTemplate) {
  text.chat = [](std::span<const ChatMessage> messages, bool) { return "<u>" + messages.back().content + "</u><a>"; };
  const auto task = make_task("ruler_niah_single_1", options, text);
  const std::string whole = tokenizer.decode(prompt(task->sample(0)));
  EXPECT_TRUE(whole.starts_with("<u>A special magic number is hidden"));
  EXPECT_NE(whole.find("</u><a> The special magic number for "), std::string::npos);
  EXPECT_FALSE(task->info().official);
}

TEST_F(RulerSmall, PerSamplePermutationChangesTheOrder) {
  const std::string official = make_task("ruler_fwe", options, text)->sample(0).ids_sha256;
  options.extra["permutation"] = "per-sample";
  EXPECT_NE(make_task("ruler_fwe", options, text)->sample(0).ids_sha256, official);
}

TEST_F(RulerSmall, WhatCannotWorkIsRefused) {
  const auto refusal = [&](const char* name) {
    try {
      make_task(name, options, text);
    } catch (const Error& e) {
      return e.render();
    }
    return std::string("nothing was refused");
  };
  options.lengths = {300};
  // The error names the smallest length that works: it does, and one less does not.
  for (const char* name : {"ruler_niah_single_1", "ruler_niah_multikey_3", "ruler_fwe"}) {
    options.lengths = {300};
    const std::string error = refusal(name);
    EXPECT_NE(error.find(std::string("length 300 is too small for ") + name), std::string::npos) << error;
    const std::string before = "the smallest workable length is ";
    const size_t at = error.find(before);
    ASSERT_NE(at, std::string::npos) << error;
    const int64_t smallest = std::stoll(error.substr(at + before.size()));
    options.lengths = {smallest};
    const auto task = make_task(name, options, text);
    for (int64_t i = 0; i < task->n_samples(); ++i)
      EXPECT_LE(task->sample(i).prompt_tokens + task->sample(i).max_new_tokens, smallest);
    options.lengths = {smallest - 1};
    EXPECT_NE(refusal(name).find("too small"), std::string::npos);
  }
  // One byte a token: the worked example, which may have 500 tokens, fits no length.
  EXPECT_NE(refusal("ruler_vt").find("worked example does not fit"), std::string::npos);
  options.lengths = {4096};
  EXPECT_NE(refusal("ruler_niah_single_2").find("--essays"), std::string::npos);
  EXPECT_NE(refusal("ruler_qa_2").find("--hotpotqa"), std::string::npos);
  EXPECT_NE(refusal("ruler_cwe").find("--english-words"), std::string::npos);
  // Its smallest samples are larger from 4096 on: 3000 works, and 4096 is refused beside it.
  std::ofstream english(dir.path() / "english.json");
  for (int i = 0; i < 5000; ++i) english << (i == 0 ? '{' : ',') << '"' << i << "\":\"w" << i << '"';
  english << '}' << std::flush;
  options.extra["english-words"] = (dir.path() / "english.json").string();
  options.lengths = {3000};
  EXPECT_EQ(refusal("ruler_cwe"), "nothing was refused");
  options.lengths = {3000, 4096};
  EXPECT_NE(refusal("ruler_cwe").find("length 4096 is too small for ruler_cwe"), std::string::npos);
  EXPECT_NE(refusal("ruler_cwe").find("the smallest workable length from 4096 on is "), std::string::npos);
  options.lengths = {4096};
  options.extra["template"] = "meta-lama3";
  EXPECT_NE(refusal("ruler_vt").find("unknown template"), std::string::npos);
  EXPECT_NE(refusal("ruler_niah_single1").find("did you mean ruler_niah_single_1"), std::string::npos);
}

TEST_F(RulerSmall, TheThresholdReachesTheGroup) {
  options.extra["threshold"] = "79.4";
  const auto task = make_task("ruler_fwe", options, text);
  std::vector<FoldRow> rows(2);
  for (FoldRow& row : rows) {
    row.score = 0.8;
    row.metrics = {{"score", 0.8}};
    row.key.ctx_len = 3000;
  }
  auto members = scores({{4096, .8}, {8192, .79}});
  EXPECT_FALSE(value(fold_ruler_group(members), "", "effective_length"));
  for (const Aggregate& a : task->fold(rows))
    if (a.metric == "threshold") members["ruler_fwe"].push_back(a);
  EXPECT_EQ(value(fold_ruler_group(members), "", "effective_length"), 4096);
}

TEST_F(RulerSmall, ProtocolsContradictingOthersAreRefused) {
  const auto refusal = [&](const std::map<std::string, std::string>& extra) {
    TaskOptions asked = options;
    for (const auto& [key, value] : extra) asked.extra[key] = value;
    try {
      make_task("ruler_fwe", asked, text);
    } catch (const Error& e) {
      return e.render();
    }
    return std::string("nothing was refused");
  };
  EXPECT_NE(refusal({{"variant", "lm-eval"}, {"protocol", "p0"}}).find("contradict"), std::string::npos);
  EXPECT_NE(refusal({{"variant", "lm-eval"}, {"template", "meta-llama3"}}).find("no templates"), std::string::npos);
  EXPECT_NE(refusal({{"protocol", "p0"}, {"permutation", "per-sample"}}).find("per-sample"), std::string::npos);
  EXPECT_NE(refusal({{"protocol", "p3"}}).find("p0, p1, p2"), std::string::npos);
  EXPECT_NE(refusal({{"threshold", "abc"}}).find("--threshold"), std::string::npos);
  EXPECT_NE(refusal({{"threshold", "120"}}).find("percentage"), std::string::npos);
}

// RULER's own templates stand in a run of chats too, with the BOS that a chat's text would have spelled.
TEST_F(RulerSmall, ATemplateThatIsNamedStandsInsteadOfTheCheckpointsOwn) {
  options.extra["template"] = "chat";
  EXPECT_THROW(make_task("ruler_fwe", options, text), Error);
  text.chat = [](std::span<const ChatMessage> messages, bool) { return "<u>" + messages[0].content + "<a>"; };
  text.add_bos = true;
  const auto begin = [&] {
    const Sample s = make_task("ruler_fwe", options, text)->sample(0);
    return std::pair(prompt(s).front() == *tokenizer.bos_id(), tokenizer.decode(prompt(s)).find("<u>"));
  };
  EXPECT_EQ(begin(), std::pair(false, size_t{0}));
  options.extra["template"] = "base";
  EXPECT_EQ(begin(), std::pair(true, std::string::npos));
  options.extra.erase("template");
  EXPECT_EQ(begin(), std::pair(false, size_t{0}));
}

TEST_F(RulerSmall, TheProtocolIsInTheTaskAndItsRows) {
  for (const auto& [key, name, protocol] : {std::tuple{"protocol", "p0", "ruler/p0/fwe"},
                                            {"protocol", "p1", "ruler/p1/fwe"},
                                            {"protocol", "p2", "ruler/p2/fwe"},
                                            {"variant", "lm-eval", "lm-eval/ruler_fwe/1.0"}}) {
    options.extra = {{"words", dir.path().string()}, {key, name}};
    const auto task = make_task("ruler_fwe", options, text);
    EXPECT_EQ(task->info().protocol, protocol);
    const Sample s = task->sample(0);
    const json recipe = json::parse(s.recipe_json), row = json::parse(task->upstream_row(0));
    EXPECT_EQ(recipe["protocol"], protocol);
    EXPECT_EQ(recipe["variant"], std::string(name) == "lm-eval" ? "lm-eval" : "official");
    const std::string whole = tokenizer.decode(prompt(s)), prefix = " Answer: According to the coded text above";
    const bool p2 = std::string(name) == "p2";
    EXPECT_EQ(whole.find(prefix) == std::string::npos, p2);
    EXPECT_EQ(recipe["prefix_used"], !p2);
    EXPECT_EQ(s.max_new_tokens, p2 ? 4096 : 50);
    EXPECT_EQ(row.contains("answer_prefix"), std::string(name) == "p1" || p2);
    EXPECT_EQ(row.contains("gen_prefix"), std::string(name) == "lm-eval");
  }
}

// p2 takes the template's tokens off the length and puts the template around the prompt.
TEST_F(RulerSmall, P2FitsTheTextBelowTheTemplate) {
  options.extra["protocol"] = "p2";
  options.extra["template"] = "meta-chat";
  const auto task = make_task("ruler_niah_single_1", options, text);
  const std::string whole = tokenizer.decode(prompt(task->sample(0)));
  EXPECT_TRUE(whole.starts_with("[INST] A special magic number"));
  EXPECT_TRUE(whole.ends_with("mentioned in the provided text? [/INST]"));
  const json row = json::parse(task->upstream_row(0));
  const auto length = row["length"].get<int64_t>(), all = row["length_w_model_temp"].get<int64_t>();
  EXPECT_EQ(all - length, static_cast<int64_t>(std::string("[INST] {task_template} [/INST]").size()));
  EXPECT_LE(all, 3000);
}

// lm-evaluation-harness's own numbers: its metric is the share of the references, its counts hold a BOS.
TEST_F(RulerSmall, LmEvalScoresTheShareOfTheAnswers) {
  std::ofstream(dir.path() / "squad.json")
      << R"({"data":[{"paragraphs":[{"context":"Paris is a town.","qas":[{"question":"Which town?","is_impossible":false,)"
      << R"("answers":[{"text":"Paris"},{"text":"the town of Paris"}]}]}]}]})";
  options.extra["squad"] = (dir.path() / "squad.json").string();
  const auto score = [&](const char* variant) {
    options.extra["variant"] = variant;
    options.samples = 1;
    const auto task = make_task("ruler_qa_1", options, text);
    engine::Answer answer;
    answer.result = engine::GenerateAnswer{.text = " Paris."};
    return *task->score(task->sample(0), std::span(&answer, 1)).score;
  };
  EXPECT_EQ(score("official"), 1);
  EXPECT_EQ(score("lm-eval"), 0.5);
}

TEST(RulerRegistry, TheGroupStandsForThirteenTasks) {
  const std::vector<std::string> asked = {"ruler_vt", "ruler", "niah"};
  const std::vector<std::string> all = expand_tasks(asked);
  EXPECT_EQ(all.size(), 14u);
  EXPECT_EQ(all[0], "ruler_vt");
  EXPECT_EQ(all[13], "niah");
}

}  // namespace
}  // namespace hayfork::tasks
