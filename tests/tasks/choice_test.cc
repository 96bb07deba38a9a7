#include "tasks/choice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "metrics/text.h"
#include "tasks/choice_score.h"
#include "tasks/fewshot.h"
#include "tasks/forms/forms.h"
#include "tasks/groups.h"
#include "tasks/pair_ids.h"
#include "tasks/turns.h"
#include "tests/support/data_folder.h"
#include "tests/support/small_tokenizer.h"

namespace hayfork::tasks {
namespace {

using test::aggregate;
using test::cost;
using test::DataFolder;
using test::metric;
using testing::Test;

ChoiceValue value(double logprob, int64_t tokens, int64_t chars, int64_t bytes, double uncond) {
  ChoiceValue out;
  out.logprob = logprob;
  out.n_tokens = tokens;
  out.n_chars = chars;
  out.n_bytes = bytes;
  out.uncond_logprob = uncond;
  out.ctx_nll = 10;
  out.ctx_tokens = 5;
  return out;
}

// Sums −3, −4, −9; a code point −1, −0.5, −0.9; a byte −1, −0.5, −0.45; a token −1.5, −2, −1.
// Less the unconditional: 0, −3.5, 1. With C = 10, n = 5: −13/7 = −1.857, −14/7 = −2, −19/14 = −1.357.
const std::vector<ChoiceValue> kThree = {value(-3, 2, 3, 3, -3), value(-4, 2, 8, 8, -0.5), value(-9, 9, 10, 20, -10)};

TEST(ScoreChoices, EveryModeEqualsTheHandComputedChoice) {
  const std::map<std::string, int64_t> wanted = {{"acc", 0},        {"acc_norm", 1},        {"acc_bytes", 2},
                                                 {"acc_tokens", 2}, {"acc_mutual_info", 2}, {"acc_ppl_full", 2}};
  for (int64_t gold = 0; gold < 3; ++gold) {
    Document document;
    document.choices = {"a", "b", "c"};
    set_gold(document, gold);
    const SampleScore score = score_choices(document, kThree, "acc");
    for (const auto& [name, pred] : wanted) EXPECT_EQ(metric(score, name), pred == gold ? 1 : 0) << name << gold;
    EXPECT_EQ(metric(score, "pred"), 0);
    EXPECT_EQ(metric(score, "gold"), static_cast<double>(gold));
  }
  Document document;
  document.choices = {"a", "b", "c"};
  set_gold(document, 1);
  EXPECT_DOUBLE_EQ(*metric(score_choices(document, kThree, "acc"), "bits_per_byte"), 0.5 / std::log(2.0));
}

TEST(ScoreChoices, TheFirstOfEqualsWinsAndWhatIsNotFiniteFails) {
  Document document;
  document.choices = {"a", "b"};
  set_gold(document, 1);
  std::vector<ChoiceValue> equal = {value(-1, 1, 1, 1, -1), value(-1, 1, 1, 1, -1)};
  EXPECT_EQ(metric(score_choices(document, equal, "acc"), "acc"), 0);
  equal[0].logprob = std::nan("");
  EXPECT_EQ(score_choices(document, equal, "acc").status, Status::failed);
  equal[0] = value(-1, 1, 0, 0, -1);
  EXPECT_EQ(score_choices(document, equal, "acc").status, Status::failed);
}

TEST(Fewshot, DrawsAreThoseOfCPython) {  // vectors of CPython 3.11, random.Random(1234)
  const auto draws = [](int64_t pool, int64_t shots, bool exclude) {
    FewshotPlan plan{.n_pool = pool, .n_documents = 2, .n_shots = shots, .exclude = exclude};
    plan.pool_digest = [](int64_t row) { return std::to_string(row); };
    plan.document_digest = [](int64_t) { return std::string("none of them"); };
    return draw_fewshot(plan);
  };
  using Rows = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(draws(2251, 5, false), (Rows{{1805, 478, 30, 371, 143}, {343, 403, 1452, 969, 71}}));
  EXPECT_EQ(draws(4957, 5, false), (Rows{{3610, 957, 61, 742, 4769}, {286, 687, 806, 2905, 1939}}));
  EXPECT_EQ(draws(40398, 5, true), (Rows{{28883, 7657, 490, 5940, 38156}, {5500, 6450, 23241, 15519, 1142}}));
  EXPECT_EQ(draws(250, 5, true), (Rows{{247, 199, 112, 29, 1}, {233, 241, 240, 206, 149}}));
}

TEST(Fewshot, TheDocumentItselfIsDroppedAndDrawnAgainWhenTooFewAreLeft) {
  FewshotPlan plan{.n_pool = 400, .n_documents = 1, .n_shots = 5, .exclude = true};
  plan.pool_digest = [](int64_t row) { return std::to_string(row); };
  plan.document_digest = [](int64_t) { return std::string("59"); };  // the third of 398 225 59 3 46 298
  EXPECT_EQ(draw_fewshot(plan)[0], (std::vector<int64_t>{398, 225, 3, 46, 298}));
  plan.n_pool = 8;
  plan.pool_digest = [](int64_t row) { return row < 3 ? "copy" : std::to_string(row); };
  plan.document_digest = [](int64_t) { return "copy"; };
  const auto shots = draw_fewshot(plan)[0];
  EXPECT_EQ(shots.size(), 5u);
  for (const int64_t row : shots) EXPECT_GE(row, 3);
  plan.n_shots = 9;
  EXPECT_THROW(draw_fewshot(plan), Error);
}

TEST(HellaSwag, TextIsCleanedInUpstreamsOrder) {
  EXPECT_EQ(hellaswag_clean("How to zap [title] Do it [step] Now   go  "), "How to zap. Do it Now  go");
  EXPECT_EQ(hellaswag_clean("[substeps] Follow the plan. [header]"), " Follow the plan. ");
  EXPECT_EQ(hellaswag_clean(" a [x [y] z] b"), "a z] b");
  EXPECT_EQ(hellaswag_clean("[title] Start"), " Start");
  EXPECT_EQ(hellaswag_clean("A    B"), "A  B");
  EXPECT_EQ(hellaswag_clean("line [a\nb] c"), "line [a\nb] c");
  EXPECT_EQ(hellaswag_clean("x [title] [step] y"), "x.  y");
  EXPECT_EQ(metrics::capitalized("then, The man from NASA"), "Then, the man from nasa");
  EXPECT_EQ(metrics::capitalized("ßeta"), "Sseta");
  EXPECT_EQ(metrics::capitalized("ΑΣ ΣΑΣ"), "Ας σας");  // the first letter counts as what stands before
}

const std::string kPiqa =
    "{\"goal\":\"g\",\"sol1\":\"ab\",\"sol2\":\"c\",\"label\":0}\n{\"goal\":\"h\",\"sol1\":\"d "
    "\",\"sol2\":\"éé\",\"label\":1}\n";

TEST(Choice, OneContextServesAllOptionsAndSumsAreTheModels) {
  DataFolder data;
  data.add("piqa", "validation", kPiqa);
  const auto task = data.make("piqa");
  const Sample sample = task->sample(0);
  ASSERT_EQ(sample.requests.size(), 1u);
  const auto& request = std::get<engine::ScoreRequest>(sample.requests[0]);
  EXPECT_EQ(data.tokenizer.decode(request.context), "Question: g\nAnswer:");
  ASSERT_EQ(request.continuations.size(), 2u);
  EXPECT_EQ(data.tokenizer.decode(request.continuations[0]), " ab");
  const auto result = data.run(*task);
  EXPECT_DOUBLE_EQ(*result.scores[0].choices[0].logprob, -cost(" ab"));
  EXPECT_DOUBLE_EQ(*result.scores[1].choices[1].logprob, -cost(" éé"));
  EXPECT_EQ(result.scores[1].choices[1].n_chars, 2);
  EXPECT_EQ(result.scores[1].choices[1].n_bytes, 4);
  EXPECT_EQ(result.scores[1].choices[0].n_chars, 2);  // the blank at the option's end counts
}

TEST(Choice, ScoresDoNotDependOnTheOrderOfAnswersAndCanBeMadeAgain) {
  DataFolder data;
  data.add("piqa", "validation", kPiqa);
  data.options.extra = {{"pmi", "on"}};
  const auto task = data.make("piqa");
  EXPECT_EQ(task->sample(0).requests.size(), 2u);
  const auto forwards = data.run(*task);
  data.lm.backwards = true;
  const auto backwards = data.run(*task);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(forwards.scores[i].score, backwards.scores[i].score);
    const auto again = task->rescore(task->key(static_cast<int64_t>(i)), forwards.scores[i].choices, "");
    ASSERT_TRUE(again);
    EXPECT_EQ(again->score, forwards.scores[i].score);
    ASSERT_EQ(again->metrics.size(), forwards.scores[i].metrics.size());
    for (size_t k = 0; k < again->metrics.size(); ++k) {
      EXPECT_EQ(again->metrics[k].metric, forwards.scores[i].metrics[k].metric);
      EXPECT_EQ(again->metrics[k].value, forwards.scores[i].metrics[k].value);
    }
    EXPECT_TRUE(metric(forwards.scores[i], "acc_mutual_info"));
  }
}

TEST(Choice, WinograndeScoresTheSameEndBehindEachOption) {
  DataFolder data;
  data.add("winogrande", "validation",
           "{\"sentence\":\"A _ is old .\",\"option1\":\"cat\",\"option2\":\"dog\",\"answer\":\"2\"}\n");
  const auto task = data.make("winogrande");
  const Sample sample = task->sample(0);
  ASSERT_EQ(sample.requests.size(), 2u);
  const auto& second = std::get<engine::ScoreRequest>(sample.requests[1]);
  EXPECT_EQ(data.tokenizer.decode(second.context), "A dog");
  EXPECT_EQ(data.tokenizer.decode(second.continuations[0]), " is old .");
}

TEST(Choice, DescriptionDemonstrationsAndDelimitersAreJoinedAsUpstream) {
  DataFolder data;
  data.add("mmlu", "test",
           "{\"question\":\" q \",\"subject\":\"anatomy\",\"choices\":[\"w\",\"x \",\"y\",\"z\"],\"answer\":1}\n");
  data.add("mmlu", "dev",
           "{\"question\":\"other\",\"subject\":\"virology\",\"choices\":[\"1\",\"2\",\"3\",\"4\"],\"answer\":0}\n"
           "{\"question\":\"p\",\"subject\":\"anatomy\",\"choices\":[\"1\",\"2\",\"3\",\"4\"],\"answer\":3}\n");
  data.options.num_fewshot = 1;
  const auto task = data.make("mmlu_anatomy");
  const Sample sample = task->sample(0);
  EXPECT_EQ(*sample.prompt_text,
            "The following are multiple choice questions (with answers) about anatomy.\n\n"
            "p\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: D\n\nq\nA. w\nB. x \nC. y\nD. z\nAnswer:");
}

TEST(Choice, ABrokenDocumentFailsWithFileLineAndFieldAndTheOthersGoOn) {
  DataFolder data;
  data.add("piqa", "validation",
           "\xEF\xBB\xBF{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}\r\n"
           "{\"goal\":\"g\",\"sol1\":\r\n"
           "{\"goal\":\"g\",\"sol2\":\"b\",\"label\":0}\r\n"
           "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":\"yes\"}\r\n"
           "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"\",\"label\":0}\r\n"
           "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"b\",\"label\":0}\r\n"
           "{\"goal\":\"g\",\"sol1\":\"a\",\"sol2\":\"a\",\"label\":2}\r\n"
           "{\"goal\":\"k\",\"sol1\":\"a\",\"sol2\":\"a\",\"label\":1}\r\n");
  const auto task = data.make("piqa");
  ASSERT_EQ(task->n_samples(), 8);
  const auto result = data.run(*task);
  const std::vector<std::pair<size_t, std::string>> faults = {
      {1, "line 2"}, {2, "\"sol1\""}, {3, "\"label\""}, {4, "option 2"}, {6, "\"label\""}};
  for (const auto& [i, word] : faults) {
    EXPECT_EQ(result.scores[i].status, Status::failed) << i;
    EXPECT_NE(result.scores[i].error.find(word), std::string::npos) << result.scores[i].error;
    EXPECT_NE(result.scores[i].error.find("validation.jsonl, line " + std::to_string(i + 1)), std::string::npos)
        << result.scores[i].error;
  }
  for (const size_t i : {0u, 5u, 7u}) EXPECT_EQ(result.scores[i].status, Status::ok) << result.scores[i].error;
  for (const Aggregate& a : result.aggregates) {
    if (a.metric == "acc") {
      EXPECT_EQ(a.n, 3);
    }
  }
  std::string all;
  for (const std::string& event : data.events) all += event + "\n";
  EXPECT_NE(all.find("HAY-W040 1 documents stand more than once"), std::string::npos) << all;
  EXPECT_NE(all.find("HAY-W041 1 questions have two equal options"), std::string::npos) << all;
}

TEST(Choice, AQuestionLongerThanTheWindowFailsOrIsCutAtItsBeginning) {
  DataFolder data;
  data.add("piqa", "validation", kPiqa);
  data.text.window = 12;
  const auto never = data.make("piqa");
  EXPECT_THROW(never->sample(0), Error);
  data.options.extra = {{"truncate", "left"}};
  const auto left = data.make("piqa");
  const Sample sample = left->sample(0);
  EXPECT_TRUE(sample.truncated);
  ASSERT_EQ(sample.requests.size(), 2u);  // one an option: each keeps window + 1 ids with its own length
  const auto& first = std::get<engine::ScoreRequest>(sample.requests[0]);
  EXPECT_EQ(first.context.size() + first.continuations[0].size(), 13u);
  EXPECT_TRUE(data.tokenizer.decode(first.context).ends_with("\nAnswer:"));
  EXPECT_EQ(data.run(*left).scores[0].status, Status::ok);
}

TEST(Choice, MissingDataNamesTheFileAndTheCommand) {
  DataFolder data;
  try {
    data.make("arc_easy");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error), 11);
    EXPECT_NE(error.render().find("arc_easy/test.jsonl"), std::string::npos);
    EXPECT_NE(error.render().find("hayfork data add arc_easy test=FILE"), std::string::npos);
  }
}

TEST(Choice, BlanksAtTheContextsEndMoveToTheContinuation) {
  DataFolder data;
  const PairIds pairs = encode_pairs(data.text, "ab \n", {"c"});
  EXPECT_EQ(data.tokenizer.decode(pairs.context), "ab");
  EXPECT_EQ(data.tokenizer.decode(pairs.continuations[0]), " \nc");
  const PairIds empty = encode_pairs(data.text, "", {"c"});
  EXPECT_EQ(empty.context, Ids{256});
  EXPECT_THROW(encode_pairs(data.text, "ab", {""}), Error);
}

// lm_eval/api/model.py, _encode_pair: the context's own ids, then what the whole text has behind as many.
TEST(Choice, ATokenAcrossTheContextsEndIsCutByCountingIds) {
  const auto tokenizer = test::load_json(test::character_json("abc ", {"b c", "a bc"}));
  const TextContext text{.tokenizer = tokenizer.get()};
  const PairIds pairs = encode_pairs(text, "aab", {"cab"});  // whole: a abc a b
  EXPECT_EQ(pairs.context, (Ids{0, 0, 1}));
  EXPECT_EQ(pairs.continuations[0], (Ids{1}));             // "ca" is lost, as upstream loses it
  EXPECT_THROW(encode_pairs(text, "aab", {"ca"}), Error);  // whole: a abc a; nothing is left
}

TEST(Choice, ChatTurnsAreMergedAsUpstreamMergesThem) {
  Conversation talk{"D\n\n", " ", "\n\n", {{"q1", "a1"}, {"q2", std::nullopt}}, "q3"};
  TextContext text;
  text.chat = [](std::span<const ChatMessage> messages, bool prompt) {
    std::string out;
    for (const ChatMessage& m : messages) out += "<" + m.role + ">" + m.content;
    return out + (prompt ? "<assistant>" : "");
  };
  EXPECT_EQ(conversation_text(text, talk), "<system>D\n\n<user>q1<assistant>a1<user>q2<user>q3<assistant>");
  text.merge_turns = true;
  EXPECT_EQ(conversation_text(text, talk), "<system>D\n\n<user>q1 a1\n\nq2q3<assistant>");
}

TEST(Lambada, TheLastWordIsTheTarget) {
  DataFolder data;
  data.add("lambada_openai", "test", "{\"text\":\"one two x\"}\n");
  const auto task = data.make("lambada_openai");
  const auto request = std::get<engine::ScoreRequest>(task->sample(0).requests.at(0));
  EXPECT_EQ(data.tokenizer.decode(request.context), "one two");
  EXPECT_EQ(data.tokenizer.decode(request.continuations[0]), " x");
  const auto result = data.run(*task);
  EXPECT_EQ(result.scores[0].score, 0);
  EXPECT_NEAR(*aggregate(result.aggregates, "perplexity"), std::exp(cost(" x")), 1e-9);
}

TEST(Groups, ValuesArePooledByDocumentsWithUpstreamsError) {
  std::vector<Aggregate> members(2);
  members[0].value = 0.5;
  members[0].n = 10;
  members[0].stderr_value = 0.1;
  members[1].value = 0.25;
  members[1].n = 40;
  members[1].stderr_value = 0.05;
  const Aggregate all = pooled("", "acc", members);
  EXPECT_DOUBLE_EQ(*all.value, 0.3);
  EXPECT_DOUBLE_EQ(*all.stderr_value, 0.0447213595499958);
  EXPECT_EQ(all.n, 50);
}

}  // namespace
}  // namespace hayfork::tasks
