// RULER without its data: the group's arithmetic, post-processing, templates, and tasks on small made-up sources.
#include "tasks/ruler.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

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
  EXPECT_NE(refusal("ruler_niah_single_1").find("length 300 is too small for ruler_niah_single_1"), std::string::npos);
  EXPECT_NE(refusal("ruler_fwe").find("too small for ruler_fwe"), std::string::npos);
  EXPECT_NE(refusal("ruler_vt").find("too small for ruler_vt"), std::string::npos);
  options.lengths = {4096};
  EXPECT_NE(refusal("ruler_niah_single_2").find("--essays"), std::string::npos);
  EXPECT_NE(refusal("ruler_qa_2").find("--hotpotqa"), std::string::npos);
  EXPECT_NE(refusal("ruler_cwe").find("--english-words"), std::string::npos);
  options.extra["template"] = "meta-lama3";
  EXPECT_NE(refusal("ruler_vt").find("unknown template"), std::string::npos);
  EXPECT_NE(refusal("ruler_niah_single1").find("did you mean ruler_niah_single_1"), std::string::npos);
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
