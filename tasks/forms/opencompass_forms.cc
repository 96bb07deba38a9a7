// Prompts of OpenCompass's default configurations (configs/datasets/<set>/<set>_ppl_<hash>.py; the hash is in each
// protocol name), for checkpoints without a meta template.
#include <nlohmann/json.hpp>

#include "tasks/forms/exam_subjects.h"
#include "tasks/forms/forms.h"
#include "tasks/opencompass.h"
#include "tasks/python_literal.h"

namespace hayfork::tasks {
namespace {

using nlohmann::ordered_json;
using Texts = std::vector<std::string>;
using Shots = std::vector<Fields>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Document shown(Texts choices, int64_t gold) {
  Document out;
  out.choices = std::move(choices);
  set_gold(out, gold);
  return out;
}

OcpForm form(const std::string& name, const std::string& config, const std::string& row, Texts sets,
             const std::string& split) {
  OcpForm out;
  out.base.name = "ocp_" + name;
  out.base.version = config;
  out.base.protocol = "opencompass/" + name + "/" + config;
  out.base.family = "ocp";
  out.base.data.sets = std::move(sets);
  out.base.test_split = split;
  out.base.first_n = true;
  out.base.metrics = {"acc_ppl_full"};
  out.base.primary = "acc_ppl_full";
  out.row = row;
  return out;
}

// question ⏎ option, for each option.
Texts two_parts(const std::string& question, const Texts& options) {
  Texts out;
  for (const std::string& option : options) out.push_back(ocp_parts({}, question, option));
  return out;
}

// ---- exams ---------------------------------------------------------------------------------------------------------

Pairs exam_fields(const Fields& row, const char* question, const Texts& options) {
  Pairs out = {{"input", row.text(question)}};
  for (size_t i = 0; i < options.size(); ++i) out.emplace_back(option_letters(options.size())[i], options[i]);
  return out;
}

constexpr const char* kMmluBlock = "{input}\nA. {A}\nB. {B}\nC. {C}\nD. {D}";

OcpForm mmlu(const std::string& subject) {
  OcpForm out = form("mmlu_" + subject, "ac766d", "MMLU", {"mmlu_" + subject, "mmlu"}, "test");
  out.base.data.subject = subject;
  out.base.fewshot_split = "dev";
  out.base.num_fewshot = 5;
  out.base.document = [](const Fields& row) { return shown(option_letters(4), row.label("answer", 4)); };
  std::string title = subject;
  for (char& c : title)
    if (c == '_') c = ' ';
  const std::string header = "The following are multiple choice questions (with answers) about  " + title + ".\n\n";
  out.prompts = [header](const Fields& row, const Shots& shots) {
    std::string before = header;
    for (const Fields& shot : shots) {
      const std::string letter = option_letters(4)[static_cast<size_t>(shot.label("answer", 4))];
      before +=
          ocp_fill(kMmluBlock, exam_fields(shot, "question", shot.texts("choices"))) + "\nAnswer: " + letter + "\n\n";
    }
    const std::string block = ocp_fill(kMmluBlock, exam_fields(row, "question", row.texts("choices")));
    Texts texts;
    for (const std::string& letter : option_letters(4)) texts.push_back(before + block + "\nAnswer: " + letter);
    return texts;
  };
  return out;
}

struct ChineseWording {
  const char *before, *question, *answer_field;  // the question's template, the field that holds it
  const char* answer;                            // before the letter, in the second part
};

OcpForm chinese(const std::string& name, const std::string& config, const std::string& row_name,
                const ChineseSubject& subject, const std::string& set, const std::string& split,
                const ChineseWording& wording) {
  OcpForm out =
      form(name, config, row_name, {set + "_" + subject.name, set, set == "ceval-valid" ? "ceval" : set}, split);
  out.base.data.subject = subject.name;
  out.base.fewshot_split = "dev";
  out.base.num_fewshot = 5;
  const std::string field = wording.answer_field;
  out.base.document = [field](const Fields& row) {
    return shown(option_letters(4), row.place(field.c_str(), option_letters(4)));
  };
  const std::string pattern = ocp_fill(wording.before, {{"subject", subject.chinese}});
  const std::string question_field = wording.question, answer = wording.answer;
  const auto human = [pattern, question_field](const Fields& row) {
    return ocp_fill(pattern, {{"question", row.text(question_field.c_str())},
                              {"A", row.text("A")},
                              {"B", row.text("B")},
                              {"C", row.text("C")},
                              {"D", row.text("D")}});
  };
  out.prompts = [human, answer, field](const Fields& row, const Shots& shots) {
    Pairs before;
    for (const Fields& shot : shots) before.emplace_back(human(shot), answer + shot.text(field.c_str()));
    Texts texts;
    for (const std::string& letter : option_letters(4)) texts.push_back(ocp_parts(before, human(row), answer + letter));
    return texts;
  };
  return out;
}

// ---- commonsense ---------------------------------------------------------------------------------------------------

Document of_choices(const Fields& row, const char* key) {
  const Texts options = row.texts("choices", "text");
  return shown(options, row.place(key, row.texts("choices", "label")));
}

OcpForm arc(const std::string& kind, const std::string& row_name) {
  OcpForm out = form("arc_" + kind, "a450bd", row_name, {"arc_" + kind}, "validation");
  out.base.keep = [](const Fields& row) { return row.texts("choices", "text").size() == 4; };
  out.base.document = [](const Fields& row) { return of_choices(row, "answerKey"); };
  out.prompts = [](const Fields& row, const Shots&) {
    return two_parts("Question: " + row.text("question") + "\nAnswer: ", row.texts("choices", "text"));
  };
  return out;
}

// The cleaned query behind its second ": ", if it has two: the whole of it behind the first otherwise.
std::string hellaswag_context(const std::string& query) {
  std::string rest = query;
  for (int i = 0; i < 2; ++i)
    if (const size_t at = rest.find(": "); at != std::string::npos) rest = rest.substr(at + 2);
  return rest;
}

OcpForm hellaswag() {
  OcpForm out = form("hellaswag", "47bff9", "HellaSwag", {"hellaswag"}, "validation");
  DocumentForm lm_eval;
  for (const DocumentForm& one : commonsense_forms())
    if (one.name == "hellaswag") lm_eval = one;
  out.base.document = lm_eval.document;
  out.prompts = [document = lm_eval.document](const Fields& row, const Shots&) {
    const Document read = document(row);
    return two_parts(hellaswag_context(read.text), read.choices);
  };
  return out;
}

OcpForm piqa() {
  OcpForm out = form("piqa", "1cf9f0", "PIQA", {"piqa"}, "validation");
  out.base.document = [](const Fields& row) {
    return shown({row.text("sol1"), row.text("sol2")}, row.label("label", 2));
  };
  out.prompts = [](const Fields& row, const Shots&) {
    Texts texts;
    for (const char* key : {"sol1", "sol2"})
      texts.push_back(ocp_fill("The following makes sense: \nQ: {goal}\nA: {sol}\n",
                               {{"goal", row.text("goal")}, {"sol", row.text(key)}}));
    return texts;
  };
  return out;
}

OcpForm siqa() {
  OcpForm out = form("siqa", "ced5f6", "SIQA", {"social_iqa", "siqa"}, "validation");
  const auto options = [](const Fields& row) {
    return Texts{row.text("answerA"), row.text("answerB"), row.text("answerC")};
  };
  out.base.document = [options](const Fields& row) {
    const int64_t label = row.integer("label");
    if (label < 1 || label > 3) row.fail("label", "1, 2 or 3", row.at("label"));
    return shown(options(row), label - 1);
  };
  out.prompts = [options](const Fields& row, const Shots&) {
    return two_parts(row.text("context") + "\nQuestion: " + row.text("question") + "\nAnswer:", options(row));
  };
  return out;
}

OcpForm winogrande() {
  OcpForm out = form("winogrande", "c5cf57", "WinoGrande", {"winogrande"}, "validation");
  out.base.metrics = {"acc"};
  out.base.primary = "acc";
  out.base.document = [](const Fields& row) {
    const int64_t answer = row.integer("answer");
    if (answer != 1 && answer != 2) row.fail("answer", "1 or 2", row.at("answer"));
    return shown({row.text("option1"), row.text("option2")}, answer - 1);
  };
  out.suffix = [](const Fields& row) {
    const std::string sentence = row.text("sentence");
    const size_t blank = sentence.find('_');
    if (blank == std::string::npos) row.fail("sentence", "a text with a blank \"_\"", row.at("sentence"));
    return sentence.substr(blank + 1);
  };
  out.prompts = [](const Fields& row, const Shots&) {
    const std::string sentence = row.text("sentence");
    const size_t blank = sentence.find('_');
    if (blank == std::string::npos) row.fail("sentence", "a text with a blank \"_\"", row.at("sentence"));
    Texts texts;
    for (const char* key : {"option1", "option2"})
      texts.push_back(sentence.substr(0, blank) + row.text(key) + sentence.substr(blank + 1));
    return texts;
  };
  return out;
}

OcpForm openbookqa() {
  OcpForm out = form("openbookqa", "c7c154", "OBQA", {"openbookqa"}, "test");
  out.base.document = [](const Fields& row) {
    return shown(option_letters(4), row.place("answerKey", option_letters(4)));
  };
  out.prompts = [](const Fields& row, const Shots&) {
    const Texts options = row.texts("choices", "text");
    if (options.size() != 4) row.fail("choices", "four texts", row.at("choices"));
    return two_parts("Question: " + ocp_fill(kMmluBlock, exam_fields(row, "question_stem", options)) + "\nAnswer:",
                     option_letters(4));
  };
  return out;
}

// The lettered form with eight fixed demonstrations: the alias's own retrieves them with another model.
OcpForm commonsense_qa() {
  OcpForm out = form("commonsense_qa", "c49e77", "CSQA", {"commonsense_qa"}, "validation");
  out.base.fewshot_split = "train";
  out.base.num_fewshot = 8;
  out.base.document = [](const Fields& row) {
    return shown(option_letters(5), row.place("answerKey", option_letters(5)));
  };
  const auto human = [](const Fields& row) {
    const Texts options = row.texts("choices", "text");
    if (options.size() != 5) row.fail("choices", "five texts", row.at("choices"));
    return "Question: " +
           ocp_fill("{input}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\nE. {E}", exam_fields(row, "question", options)) +
           "\nAnswer: ";
  };
  out.prompts = [human](const Fields& row, const Shots& shots) {
    Pairs before;
    for (const Fields& shot : shots) before.emplace_back(human(shot), shot.text("answerKey"));
    Texts texts;
    for (const std::string& letter : option_letters(5)) texts.push_back(ocp_parts(before, human(row), letter));
    return texts;
  };
  return out;
}

OcpForm storycloze() {
  OcpForm out = form("storycloze", "496661", "StoryCloze", {"xstorycloze_en", "xstorycloze"}, "train");
  out.more_splits = {"eval"};
  const auto options = [](const Fields& row) { return Texts{row.text("sentence_quiz1"), row.text("sentence_quiz2")}; };
  out.base.document = [options](const Fields& row) {
    const int64_t right = row.integer("answer_right_ending");
    if (right != 1 && right != 2) row.fail("answer_right_ending", "1 or 2", row.at("answer_right_ending"));
    return shown(options(row), right - 1);
  };
  out.prompts = [options](const Fields& row, const Shots&) {
    return two_parts(row.text("input_sentence_1") + " " + row.text("input_sentence_2") + " " +
                         row.text("input_sentence_3") + " " + row.text("input_sentence_4"),
                     options(row));
  };
  return out;
}

OcpForm race(const std::string& level, const std::string& row_name) {
  OcpForm out =
      form("race_" + level, "a138cd", row_name, {"race_" + level, level == "high" ? "race" : "race_" + level}, "test");
  out.base.cluster = "article";
  out.expand = [](const Fields& row) {
    const ordered_json& stored = row.at("problems");
    const ordered_json problems = stored.is_string() ? parse_python_literal(stored.get<std::string>(), row) : stored;
    std::vector<ordered_json> questions;
    for (const ordered_json& problem : problems) {
      if (!problem.is_object()) row.fail("problems", "a list of objects", stored);
      ordered_json one = {{"article", row.at("article")}};
      one.update(problem);
      questions.push_back(std::move(one));
    }
    return questions;
  };
  out.base.document = [](const Fields& row) {
    Document document = shown(option_letters(4), row.place("answer", option_letters(4)));
    document.cluster = doc_hash(row.at("article"));
    return document;
  };
  out.prompts = [](const Fields& row, const Shots&) {
    const Texts options = row.texts("options");
    if (options.size() != 4) row.fail("options", "four texts", row.at("options"));
    Pairs fields = {{"article", row.text("article")}, {"question", row.text("question")}};
    for (size_t i = 0; i < 4; ++i) fields.emplace_back(option_letters(4)[i], options[i]);
    Texts texts;
    for (const std::string& letter : option_letters(4))
      texts.push_back(ocp_parts(
          {},
          ocp_fill("Read the article, and answer the question by replying A, B, C or D.\n\nArticle:\n{article}\n\nQ: "
                   "{question}\n\nA. {A}\nB. {B}\nC. {C}\nD. {D}",
                   fields),
          "A: " + letter));
    return texts;
  };
  return out;
}

// ---- SuperGLUE -----------------------------------------------------------------------------------------------------

OcpForm copa() {
  OcpForm out = form("copa", "9f3618", "COPA", {"copa"}, "validation");
  out.base.document = [](const Fields& row) {
    return shown({row.text("choice1"), row.text("choice2")}, row.label("label", 2));
  };
  out.prompts = [](const Fields& row, const Shots&) {
    return two_parts(row.text("premise") + "\nQuestion: What may be the " + row.text("question") + "?\nAnswer:",
                     {row.text("choice1"), row.text("choice2")});
  };
  return out;
}

OcpForm rte() {
  OcpForm out = form("rte", "66caf3", "RTE", {"sglue_rte", "super_glue_rte"}, "validation");
  out.base.document = [](const Fields& row) { return shown({"Yes", "No"}, row.label("label", 2)); };
  out.prompts = [](const Fields& row, const Shots&) {
    return two_parts(
        row.text("premise") + "\n" + row.text("hypothesis") + "\nIs the sentence below entailed by the sentence above?",
        {"Yes", "No"});
  };
  return out;
}

OcpForm cb() {
  OcpForm out = form("cb", "0143fe", "CB", {"cb"}, "validation");
  out.base.document = [](const Fields& row) {
    static constexpr int64_t kPlace[] = {1, 0, 2};  // entailment, contradiction, neutral among the options
    return shown({"Contradiction", "Entailment", "Neutral"}, kPlace[row.label("label", 3)]);
  };
  out.prompts = [](const Fields& row, const Shots&) {
    return two_parts(
        row.text("premise") + "\n" + row.text("hypothesis") + "\nWhat is the relation between the two sentences?",
        {"Contradiction", "Entailment", "Neutral"});
  };
  return out;
}

OcpForm wic() {
  OcpForm out = form("wic", "312de9", "WiC", {"wic"}, "validation");
  out.base.document = [](const Fields& row) { return shown({"different", "the same"}, row.label("label", 2)); };
  out.prompts = [](const Fields& row, const Shots&) {
    Texts texts;
    for (const char* option : {"different", "the same"})
      texts.push_back(
          ocp_fill("Sentence 1: {sentence1}\nSentence 2: {sentence2}\n'{word}' in the above two sentenses are ",
                   {{"word", row.text("word")},
                    {"sentence1", row.text("sentence1")},
                    {"sentence2", row.text("sentence2")}}) +
          option + ".");
    return texts;
  };
  return out;
}

OcpForm multirc() {
  OcpForm out = form("multirc", "ced824", "MultiRC", {"multirc"}, "validation");
  out.base.cluster = "paragraph";
  out.base.document = [](const Fields& row) {
    Document document = shown({"No, it is false.", "Yes, it is true."}, row.label("label", 2));
    document.cluster = doc_hash(row.at("paragraph"));
    return document;
  };
  out.prompts = [](const Fields& row, const Shots&) {
    return two_parts(row.text("paragraph") + "\nQuestion: " + row.text("question") + "\nAnswer: " + row.text("answer") +
                         "\nIs it true?",
                     {"No, it is false.", "Yes, it is true."});
  };
  return out;
}

}  // namespace

std::vector<OcpForm> opencompass_forms() {
  std::vector<OcpForm> out;
  for (const MmluSubject& subject : mmlu_subjects()) out.push_back(mmlu(subject.name));
  static const ChineseWording kCeval = {
      "以下是中国关于{subject}考试的单项选择题，请选出其中的正确答案。\n{question}\nA. {A}\nB. {B}\nC. {C}\nD. "
      "{D}\n答案: ",
      "question", "answer", ""};
  for (const ChineseSubject& subject : ceval_subjects())
    out.push_back(chinese("ceval_" + subject.name, "578f8d", "C-Eval", subject, "ceval-valid", "val", kCeval));
  static const ChineseWording kCmmlu = {
      "以下是关于{subject}的单项选择题，请直接给出正确答案的选项。\n题目：{question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}",
      "Question", "Answer", "答案是: "};
  for (const ChineseSubject& subject : cmmlu_subjects())
    out.push_back(chinese("cmmlu_" + subject.name, "8b9c76", "CMMLU", subject, "cmmlu", "test", kCmmlu));
  for (OcpForm& one : std::vector<OcpForm>{hellaswag(), piqa(), arc("easy", "ARC-Easy"),
                                           arc("challenge", "ARC-Challenge"), winogrande(), openbookqa(),
                                           commonsense_qa(), siqa(), storycloze(), race("middle", "RACE-middle"),
                                           race("high", "RACE-high"), copa(), rte(), cb(), multirc(), wic()})
    out.push_back(std::move(one));
  return out;
}

}  // namespace hayfork::tasks
