// Tasks over documents beside plain multiple choice: loss, recall, OpenCompass's scoring, task files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "metrics/squad.h"
#include "metrics/text.h"
#include "metrics/wikitext.h"
#include "tasks/custom.h"
#include "tasks/opencompass.h"
#include "tasks/recall.h"
#include "tasks/rolling.h"
#include "tests/support/data_folder.h"

namespace hayfork::tasks {
namespace {

using test::aggregate;
using test::cost;
using test::DataFolder;
using test::metric;
using testing::HasSubstr;

// ---- loss ----------------------------------------------------------------------------------------------------------

TEST(Rolling, WindowsPredictEveryTokenOnce) {
  const auto windows = [](int n, int64_t context) {
    Ids tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(10 + i);
    std::string out;
    for (const RollingWindow& w : rolling_windows(tokens, {100}, 4, context)) {
      for (const int32_t id : w.context) out += std::to_string(id) + " ";
      out += ">";
      for (const int32_t id : w.continuation) out += " " + std::to_string(id);
      out += "; ";
    }
    return out;
  };
  EXPECT_EQ(windows(0, 1), "");
  EXPECT_EQ(windows(3, 1), "100 > 10 11 12; ");
  EXPECT_EQ(windows(5, 1), "100 > 10 11 12 13; 10 11 12 13 > 14; ");
  EXPECT_EQ(windows(9, 1), "100 > 10 11 12 13; 13 > 14 15 16 17; 14 15 16 17 > 18; ");
  EXPECT_EQ(windows(10, 1), "100 > 10 11 12 13; 13 > 14 15 16 17; 15 16 17 > 18 19; ");
  EXPECT_EQ(windows(10, 2), "100 > 10 11 12 13; 12 13 > 14 15 16; 15 16 > 17 18 19; ");
}

FoldRow loss_row(const char* id, double loglikelihood, double words, double bytes) {
  FoldRow row;
  row.key.doc_id = id;
  row.metrics = {{"loglikelihood", loglikelihood}, {"tokens", 10.0}, {"words", words}, {"bytes", bytes}};
  return row;
}

TEST(Rolling, PerplexitiesAreRatiosOfSums) {
  DataFolder data;
  data.add("wikitext", "test", "{\"page\":\" \\n = A = \\n \\n x , y\"}\n{\"page\":\"b\"}\n");
  data.options.extra = {{"window", "8"}};
  const auto task = data.make("wikitext");
  const auto folded = task->fold(std::vector{loss_row("0", -30, 10, 50), loss_row("1", -20, 5, 25)});
  EXPECT_NEAR(*aggregate(folded, "word_perplexity"), 28.03162489, 1e-7);
  EXPECT_NEAR(*aggregate(folded, "byte_perplexity"), 1.94773404, 1e-7);
  EXPECT_NEAR(*aggregate(folded, "bits_per_byte"), 0.96179669, 1e-7);
  EXPECT_NEAR(*aggregate(folded, "loss_token"), 2.5, 1e-12);
  const auto result = data.run(*task);
  EXPECT_DOUBLE_EQ(*metric(result.scores[0], "loglikelihood"), -cost("\n= A =\n\nx, y"));
  EXPECT_EQ(metric(result.scores[0], "words"), 7);
}

TEST(Wikitext, SpacingIsUndoneAndWordsAreCountedAsUpstream) {
  EXPECT_EQ(
      metrics::wikitext_detokenized(" \n = Free = \n \n 3 @,@ 250 @.@ 75 tons (  2 t  ) ; \" It ! \" town 's 35 ° C"),
      "\n= Free =\n\n3,250.75 tons (2 t); \"It!\" town's 35°C");
  EXPECT_EQ(metrics::count_words(" a b "), 4);
  EXPECT_EQ(metrics::count_words("a\u00A0b"), 2);
}

TEST(CorpusLoss, AddsTheBeginningOfTextOnceAndScoresEveryToken) {
  DataFolder data;
  data.add("c4", "validation", "{\"text\":\"abc\"}\n{\"text\":\"\"}\n");
  data.options.extra = {{"window", "100"}};
  const auto task = data.make("corpus_loss");
  const auto request = std::get<engine::ScoreRequest>(task->sample(0).requests.at(0));
  EXPECT_EQ(request.context, Ids{256});
  const auto result = data.run(*task);
  EXPECT_DOUBLE_EQ(*result.scores[0].score, cost("abc") / 3);
  EXPECT_EQ(result.scores[1].status, Status::failed);
  EXPECT_DOUBLE_EQ(*aggregate(result.aggregates, "loss_doc"), cost("abc") / 3);
}

// ---- recall --------------------------------------------------------------------------------------------------------

TEST(Recall, PromptsAreBuiltAsTheSuiteBuildsThem) {
  DataFolder data;
  data.options.extra = {{"context", "0"}};
  const auto prompt = [&](const std::string& task, const std::string& row) {
    data.add(task, "validation", row + "\n");
    return *data.make(task)->sample(0).prompt_text;
  };
  EXPECT_EQ(
      prompt("based_drop",
             R"({"context":" It rained. The score WAS the score was","question":"The score was","answers":["3"]})"),
      "It rained. The score WAS. The score was");
  EXPECT_EQ(prompt("based_nq_2048", R"({"context":"A. B is B is","question":"B is","answers":["3"]})"),
            "A. B is. B is");
  EXPECT_EQ(prompt("based_triviaqa", R"({"context":"[DOC] X [PAR]Y.","question":" q ","answers":["3"]})"), "X Y. q");
  EXPECT_EQ(prompt("based_squad", R"({"text":" t \n","value":"vv"})"), "t");
  EXPECT_EQ(prompt("based_fda", R"({"text":"a b.\nname:Name:","key":"name","value":"vv"})"), "a b. Name:");
  EXPECT_EQ(prompt("based_swde", R"({"text":"a b \n Summary of information above... rest","key":"date","value":"vv"})"),
            "a b. Date:");
  EXPECT_EQ(prompt("fda", R"({"text":" a b ","value":" v "})"), "a b");
  EXPECT_EQ(prompt("fda_v0", R"({"text":" a b ","value":" v "})"), " a b ");
}

TEST(Recall, TheWindowIsPutAroundTheAnswerAndShortAnswersAreDropped) {
  DataFolder data;
  const std::string before(300, 'x'), after(300, 'y');
  data.add("based_squad", "validation",
           "{\"text\":\"" + before + "ANSWER" + after + "\",\"value\":\"answer\"}\n{\"text\":\"t\",\"value\":\"7\"}\n");
  data.options.extra = {{"context", "150"}};
  const auto task = data.make("based_squad");
  EXPECT_EQ(task->n_samples(), 1);
  const Sample sample = task->sample(0);  // D = 100, 50 before the answer
  EXPECT_EQ(*sample.prompt_text, std::string(50, 'x') + "ANSWER" + std::string(44, 'y'));
  EXPECT_EQ(sample.kept_tokens, 100);
  data.lm.writes = " the Answer\nand";
  EXPECT_EQ(data.run(*task).scores[0].score, 1);
  data.lm.writes = "\nanswer";
  EXPECT_EQ(data.run(*task).scores[0].score, 0);
}

TEST(FindIgnoringCase, MatchesCharacterByCharacter) {
  EXPECT_EQ(metrics::find_ignoring_case("é ABC", "abc"), 3u);
  EXPECT_TRUE(metrics::find_ignoring_case("\u212A", "k"));
  EXPECT_TRUE(metrics::find_ignoring_case("\u017F", "s"));
  EXPECT_FALSE(metrics::find_ignoring_case("ß", "SS"));
  EXPECT_EQ(metrics::find_ignoring_case("x", ""), 0u);
}

// ---- OpenCompass ---------------------------------------------------------------------------------------------------

TEST(OpenCompass, PartsAndFieldsAreJoinedAsTheConfigurationsDo) {
  EXPECT_EQ(ocp_parts({}, "q", "A"), "q\nA");
  EXPECT_EQ(ocp_parts({{"h1", "b1"}, {"h2", "b2"}}, "q", "A"), "h1\nb1\n\n\nh2\nb2\n\n\n\n\nq\nA");
  EXPECT_EQ(ocp_fill("{input} {A}", {{"input", "has {A}"}, {"A", "x"}}), "has x x");
}

TEST(OpenCompass, TheSmallestAverageOverTheWholeTextWins) {
  DataFolder data;
  data.add("piqa", "validation", "{\"goal\":\"g\",\"sol1\":\"ab\",\"sol2\":\"acdcdcdcd\",\"label\":1}\n");
  const auto task = data.make("ocp_piqa");
  const std::string head = "The following makes sense: \nQ: g\nA: ";
  const Sample sample = task->sample(0);
  ASSERT_EQ(sample.requests.size(), 1u);
  const auto& request = std::get<engine::ScoreRequest>(sample.requests[0]);
  EXPECT_EQ(data.tokenizer.decode(request.context), head + "a");  // what all options share is computed once
  const auto full = [&](const std::string& option) {
    const std::string text = head + option + "\n";
    return (cost(text) - cost(text.substr(0, 1))) / static_cast<double>(text.size());
  };
  const bool second = full("acdcdcdcd") < full("ab");
  const auto result = data.run(*task);
  EXPECT_EQ(metric(result.scores[0], "pred"), second ? 1 : 0);
  EXPECT_EQ(result.scores[0].choices[0].ctx_tokens, static_cast<int64_t>(head.size()) + 1);
  const ChoiceValue& c = result.scores[0].choices[1];
  EXPECT_DOUBLE_EQ((*c.ctx_nll - *c.logprob) / static_cast<double>(*c.ctx_tokens + *c.n_tokens), full("acdcdcdcd"));
  EXPECT_EQ(aggregate(result.aggregates, "top_choice_share"), 1);
}

TEST(OpenCompass, RaceAsksEveryQuestionAndArcKeepsFourOptions) {
  DataFolder data;
  data.add("race_middle", "test",
           R"({"article":"a","problems":[{"question":"p","answer":"B","options":["1","2","3","4"]},)"
           R"({"question":"q","answer":"D","options":["1","2","3","4"]}]})"
           "\n");
  const auto race = data.make("ocp_race_middle");
  EXPECT_EQ(race->n_samples(), 2);
  EXPECT_THAT(*race->sample(1).prompt_text, HasSubstr("Article:\na\n\nQ: q\n\nA. 1\nB. 2\nC. 3\nD. 4\nA: A"));
  EXPECT_EQ(race->key(0).cluster, race->key(1).cluster);
  data.add("arc_easy", "validation",
           R"({"id":"1","question":"q","choices":{"text":["a","b","c"],"label":["A","B","C"]},"answerKey":"B"})"
           "\n"
           R"({"id":"2","question":"q","choices":{"text":["a","b","c","d"],"label":["1","2","3","4"]},"answerKey":"3"})"
           "\n");
  const auto arc = data.make("ocp_arc_easy");
  EXPECT_EQ(arc->n_samples(), 1);
  EXPECT_EQ(data.run(*arc).scores[0].status, Status::ok);
}

TEST(OpenCompass, TheGroupHasNineteenRows) {
  std::set<std::string> rows;
  for (const OcpForm& form : opencompass_forms()) rows.insert(form.row);
  EXPECT_EQ(rows.size(), 19u);
  std::map<std::string, std::vector<Aggregate>> members;
  for (const std::string& name : find_task("hybrid_short").members) {
    Aggregate a;
    a.metric = name == "ocp_winogrande" ? "acc" : "acc_ppl_full";
    a.value = name.starts_with("ocp_mmlu_") ? 0.25 : 0.5;
    a.n = 10;
    members[name] = {a};
  }
  const auto folded = find_task("hybrid_short").fold_group(members);
  EXPECT_EQ(folded.size(), 20u);
  EXPECT_NEAR(*aggregate(folded, "acc"), (18 * 0.5 + 0.25) / 19, 1e-12);
  EXPECT_DOUBLE_EQ(*aggregate(folded, "acc", "row=MMLU"), 0.25);
}

// ---- task files ----------------------------------------------------------------------------------------------------

class TaskFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = (data.path() / ("task" + std::to_string(n++) + ".yaml")).string();
    write_file_atomically(path, text);
    return path;
  }
  std::string refusal(const std::string& text) {
    try {
      load_task_file(write(text));
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error), 2);
      return error.render();
    }
    return "nothing was refused";
  }
  DataFolder data;
  int n = 0;
};

TEST_F(TaskFile, AsksWithTemplatesAndColumns) {
  data.add("colours", "test",
           R"({"q":"sky","options":["red","blue"],"right":1})"
           "\n");
  data.add("colours", "train",
           R"({"q":"grass","options":["green","blue"],"right":0})"
           "\n");
  const std::string path = write(
      "task: colours\ndataset_path: colours\ntraining_split: train\ntest_split: test\n"
      "output_type: multiple_choice\ndoc_to_text: \"Colour of {{q}}:\"\ndoc_to_choice: options\n"
      "doc_to_target: \"{{options.index(options[right])}}\"\nnum_fewshot: 1\ndescription: \"Of the {{q}}.\\n\"\n"
      "metric_list:\n  - metric: acc\n    aggregation: mean\n    higher_is_better: true\n");
  const auto task = data.make(path);
  EXPECT_EQ(task->info().name, "colours");
  EXPECT_EQ(*task->sample(0).prompt_text, "Of the sky.\nColour of grass: green\n\nColour of sky:");
  EXPECT_EQ(metric(data.run(*task).scores[0], "gold"), 1);
}

TEST_F(TaskFile, GeneratesUntilAStop) {
  data.add("sums", "test",
           R"({"q":"1+1","a":"An answer"})"
           "\n");
  const std::string path = write(
      "task: sums\ndataset_path: sums\ntest_split: test\noutput_type: generate_until\n"
      "doc_to_text: \"{{q}} =\"\ndoc_to_target: \" {{a}}\"\ngeneration_kwargs:\n  until: [\"\\n\"]\n  max_gen_toks: 8\n"
      "metric_list:\n  - metric: exact_match\n    ignore_case: true\n");
  const auto task = data.make(path);
  const auto request = std::get<engine::GenerateRequest>(task->sample(0).requests.at(0));
  EXPECT_EQ(request.stops, std::vector<std::string>{"\n"});
  EXPECT_EQ(request.max_new_tokens, 8);
  EXPECT_EQ(data.run(*task).scores[0].score, 1);
}

TEST_F(TaskFile, RefusesWhatItDoesNotKnowNamingTheKey) {
  const std::string head = "task: t\ndataset_path: d\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n";
  EXPECT_THAT(refusal(head + "filter_list: []\n"), HasSubstr("filter_list"));
  EXPECT_THAT(refusal(head + "num_fewshots: 2\n"), HasSubstr("did you mean num_fewshot?"));
  EXPECT_THAT(refusal(head + "generation_kwargs: {do_sample: true}\n"), HasSubstr("do_sample"));
  EXPECT_THAT(refusal(head + "generation_kwargs: {top_p: 0.5}\n"), HasSubstr("generation_kwargs.top_p"));
  EXPECT_THAT(refusal(head + "metric_list: [{metric: bleu}]\n"), HasSubstr("bleu"));
  EXPECT_THAT(refusal(head + "output_type: loglikelihood_rolling\n"), HasSubstr("loglikelihood_rolling"));
  EXPECT_THAT(refusal("task: t\ndataset_path: d\ntest_split: test\ndoc_to_target: a\n"), HasSubstr("doc_to_text"));
  EXPECT_THAT(refusal("task: t\ndataset_path: d\ntest_split: test\ndoc_to_text: \"{{q\"\ndoc_to_target: a\n"),
              HasSubstr("doc_to_text"));
}

TEST_F(TaskFile, AnUndefinedNameIsTheDocumentsFault) {
  data.add("d", "test",
           R"({"q":"x","a":"y"})"
           "\n"
           R"({"a":"y"})"
           "\n");
  const auto task =
      data.make(write("task: t\ndataset_path: d\ntest_split: test\ndoc_to_text: \"{{q}}?\"\ndoc_to_target: a\n"));
  const auto result = data.run(*task);
  EXPECT_EQ(result.scores[0].status, Status::ok);
  EXPECT_EQ(result.scores[1].status, Status::failed);
  EXPECT_THAT(result.scores[1].error, HasSubstr("line 2"));
}

TEST(Squad, WordsAreComparedWithoutArticlesAndPunctuation) {
  EXPECT_EQ(metrics::squad_exact("The cat!", {"cat"}), 1);
  EXPECT_DOUBLE_EQ(metrics::squad_f1("a black cat", {"the cat sat", "dog"}), 0.5);
  EXPECT_EQ(metrics::squad_f1("the", {"a"}), 1);
}

}  // namespace
}  // namespace hayfork::tasks
