// Reading and stories. Upstream folders: race, storycloze, xstorycloze, lambada.
#include <algorithm>

#include <nlohmann/json.hpp>

#include "tasks/forms/forms.h"
#include "tasks/python_literal.h"

namespace hayfork::tasks {
namespace {

using nlohmann::ordered_json;

int64_t letter_of(const Fields& problem) {
  return problem.place("answer", option_letters(problem.texts("options").size()));
}

std::string right_option(const Fields& problem) {
  return problem.texts("options")[static_cast<size_t>(letter_of(problem))];
}

// An article with its solved questions, then the last question bare (preprocess_race.py, version 3.0).
Document race(const Fields& row) {
  const ordered_json& stored = row.at("problems");
  const ordered_json problems = stored.is_string() ? parse_python_literal(stored.get<std::string>(), row) : stored;
  if (!problems.is_array() || problems.empty()) row.fail("problems", "a list of questions", stored);
  for (const ordered_json& problem : problems)
    if (!problem.is_object()) row.fail("problems", "a list of objects", stored);
  Document out;
  out.text = "Article: " + row.text("article") + "\n\n";
  static constexpr std::string_view kBlank = "  _  .";
  for (size_t i = 0; i + 1 < problems.size(); ++i) {
    const Fields problem(problems[i], row.where());
    const std::string question = problem.text("question");
    if (question.ends_with(kBlank))
      out.text += question.substr(0, question.size() - (kBlank.size() - 1)) + right_option(problem) + "\n";
    else
      out.text += "Question: " + question + "\nAnswer: " + right_option(problem) + "\n";
  }
  const Fields last(problems.back(), row.where());
  out.text += last.text("question");
  out.choices = last.texts("options");
  if (out.choices.size() != 4) row.fail("options", "four texts", last.at("options"));
  set_gold(out, letter_of(last));
  return out;
}

Document storycloze(const Fields& row) {
  Document out;
  for (const char* key : {"input_sentence_1", "input_sentence_2", "input_sentence_3", "input_sentence_4"})
    out.text += (out.text.empty() ? "" : " ") + row.text(key);
  out.choices = {row.text("sentence_quiz1"), row.text("sentence_quiz2")};
  const int64_t right = row.integer("answer_right_ending");
  if (right != 1 && right != 2) row.fail("answer_right_ending", "1 or 2", row.at("answer_right_ending"));
  set_gold(out, right - 1);
  return out;
}

// The last word after a blank, which is part of the target: a demonstration has the delimiter's blank before it too.
Document lambada(const Fields& row) {
  const std::string text = row.text("text");
  const size_t blank = text.rfind(' ');
  Document out;
  out.text = blank == std::string::npos ? "" : text.substr(0, blank);
  out.choices = {" " + (blank == std::string::npos ? text : text.substr(blank + 1))};
  out.gold = 0;
  out.target = out.answer = out.choices[0];
  return out;
}

}  // namespace

std::vector<DocumentForm> reading_forms() {
  std::vector<DocumentForm> out;
  DocumentForm form = lm_eval_form("race", "3.0");
  form.data.sets = {"race", "race_high"};
  form.train_split = form.validation_split = "";
  form.test_split = "test";
  form.document = race;
  out.push_back(form);
  for (const std::string year : {"2016", "2018"}) {
    form = lm_eval_form("storycloze_" + year, year == "2016" ? "1.0" : "Yaml");  // upstream names no version
    form.train_split = "";
    form.test_split = "test";
    form.document = storycloze;
    out.push_back(form);
  }
  form = lm_eval_form("xstorycloze_en", "1.0");
  form.validation_split = "eval";
  form.document = storycloze;
  out.push_back(form);
  for (const std::string kind : {"openai", "standard"}) {
    form = lm_eval_form("lambada_" + kind, "1.0");
    form.train_split = "";
    form.validation_split = kind == "standard" ? "validation" : "";
    form.test_split = "test";
    form.output = Output::continuation;
    form.metrics = {"acc", "perplexity"};
    form.document = lambada;
    out.push_back(form);
  }
  return out;
}

}  // namespace hayfork::tasks
