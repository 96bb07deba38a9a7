// SuperGLUE (Wang et al. 2019, arXiv 1905.00537) and GLUE's RTE. Upstream folders: super_glue, glue/rte.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "metrics/squad.h"
#include "metrics/text.h"
#include "tasks/forms/forms.h"
#include "tasks/python_literal.h"

namespace hayfork::tasks {
namespace {

using nlohmann::ordered_json;

Document classified(const Fields& row, std::string text, std::vector<std::string> choices) {
  Document out;
  out.text = std::move(text);
  out.choices = std::move(choices);
  set_gold(out, row.label("label", static_cast<int64_t>(out.choices.size())));
  return out;
}

Document boolq(const Fields& row) {
  return classified(row, row.text("passage") + "\nQuestion: " + row.text("question") + "?\nAnswer:", {"no", "yes"});
}

Document cb(const Fields& row) {
  return classified(
      row, row.text("premise") + "\nQuestion: " + row.text("hypothesis") + ". True, False, or Neither?\nAnswer:",
      {"True", "False", "Neither"});
}

Document rte(const Fields& row, const char* first, const char* second) {
  return classified(
      row, row.text(first) + "\nQuestion: " + row.text(second) + " True or False?\nAnswer:", {"True", "False"});
}
Document glue_rte(const Fields& row) {
  return rte(row, "sentence1", "sentence2");
}
Document sglue_rte(const Fields& row) {
  return rte(row, "premise", "hypothesis");
}

std::string first_lowered(const Fields& row, const char* key) {
  const std::string text = row.text(key);
  if (text.empty()) row.fail(key, "a text that is not empty", row.at(key));
  const auto length = static_cast<size_t>(decode_utf8(text, 0).length);
  return metrics::lower(text.substr(0, length)) + text.substr(length);
}

// The premise loses its last character, and options begin with a blank of their own before the delimiter's.
Document copa(const Fields& row) {
  const std::u32string premise = to_code_points(strip(row.text("premise")));
  if (premise.empty()) row.fail("premise", "a text that is not empty", row.at("premise"));
  const std::string question = row.text("question");
  if (question != "cause" && question != "effect") row.fail("question", "cause or effect", row.at("question"));
  Document out;
  out.text = to_utf8(std::u32string_view(premise).substr(0, premise.size() - 1)) +
             (question == "cause" ? " because" : " therefore");
  out.choices = {" " + first_lowered(row, "choice1"), " " + first_lowered(row, "choice2")};
  set_gold(out, row.label("label", 2));
  out.target = out.answer;  // upstream's target is the text, and of two equal ones the first is meant
  if (out.choices[0] == out.choices[1]) out.gold = 0;
  return out;
}

// Upstream pastes the answer into a Python literal, a list of texts in three quotes: escapes in it are read, and a
// backslash at its end eats that of the line feed behind it.
std::vector<std::string> multirc_options(const Fields& row) {
  const std::string answer = row.text("answer"), middle = "\\nIs the answer correct? ";
  const auto read = python_literal("['''" + answer + middle + "yes''', '''" + answer + middle + "no''']");
  if (!read || read->size() != 2 || !read->at(0).is_string() || !read->at(1).is_string())
    row.fail("answer", "a text that upstream's template of three quotes can hold", row.at("answer"));
  return read->get<std::vector<std::string>>();
}

Document multirc_row(const Fields& row, bool inverted) {
  Document out;
  out.text = row.text("paragraph") + "\nQuestion: " + row.text("question") + "\nAnswer:";
  out.choices = multirc_options(row);
  const int64_t label = row.label("label", 2);  // 1: the answer is correct
  set_gold(out, inverted ? label : 1 - label);
  if (row.has("idx") && row.at("idx").is_object() && row.at("idx").contains("paragraph"))
    out.cluster = row.at("idx")["paragraph"].dump();
  return out;
}
Document multirc_as_upstream(const Fields& row) {
  return multirc_row(row, true);
}
Document multirc_right(const Fields& row) {
  return multirc_row(row, false);
}

Document wic(const Fields& row) {
  const std::string first = row.text("sentence1");
  const std::u32string points = to_code_points(first);
  const int64_t start = row.integer("start1"), end = row.integer("end1");
  const auto n = static_cast<int64_t>(points.size());
  if (start < 0 || start > end || end > n) row.fail("end1", fmt::format("start1 ≤ end1 ≤ {}", n), row.at("end1"));
  const std::string word =
      to_utf8(std::u32string_view(points).substr(static_cast<size_t>(start), static_cast<size_t>(end - start)));
  return classified(row,
                    "Sentence 1: " + first + "\nSentence 2: " + row.text("sentence2") + "\nQuestion: Is the word '" +
                        word + "' used in the same way in the two sentences above?\nAnswer:",
                    {"no", "yes"});
}

// lm_eval/utils.py, general_detokenize.
std::string detokenized(std::string text) {
  const auto replace = [&text](std::string_view from, std::string_view to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  replace(" n't", "n't");
  replace(" )", ")");
  replace("( ", "(");
  replace("\" ", "\"");
  replace(" \"", "\"");
  for (const std::string mark : {"'", ".", ","}) replace(" " + mark, mark);
  return text;
}

// Span numbers count words between blanks.
Document wsc(const Fields& row) {
  const std::string text = row.text("text"), pronoun = row.text("span2_text");
  std::string before;
  int64_t n_words = 0;
  const int64_t wanted = row.integer("span2_index");
  const std::u32string points = to_code_points(text);
  std::u32string word;
  const auto take = [&] {
    if (!word.empty() && n_words++ < wanted) before += (before.empty() ? "" : " ") + to_utf8(word);
    word.clear();
  };
  for (const char32_t c : points) is_blank(c) ? take() : word.push_back(c);
  take();
  if (wanted < 0 || wanted >= n_words) row.fail("span2_index", "the number of a word", row.at("span2_index"));
  const size_t skip = count_code_points(before) + count_code_points(pronoun) + 1;
  const std::string after = skip < points.size() ? to_utf8(std::u32string_view(points).substr(skip)) : "";
  return classified(row,
                    "Passage: " + detokenized(before + " *" + pronoun + "*" + after) +
                        "\nQuestion: In the passage above, does the pronoun \"*" + pronoun + "*\" refer to \"*" +
                        row.text("span1_text") + "*\"?\nAnswer:",
                    {"no", "yes"});
}

std::vector<std::string> sorted_set(std::vector<std::string> texts) {
  const std::set<std::string> unique(texts.begin(), texts.end());  // bytes of UTF-8 sort as code points do
  return {unique.begin(), unique.end()};
}

// The query with every entity in its place; any of the answers is right, and scores are f1 and em of the entity.
Document record(const Fields& row) {
  const std::vector<std::string> entities = sorted_set(row.texts("entities")),
                                 answers = sorted_set(row.texts("answers"));
  if (entities.empty() || answers.empty()) row.fail("the row has no entities or no answers");
  Document out;
  std::string rest = strip(row.text("passage"));
  static constexpr std::string_view kMark = "\n@highlight\n";
  size_t at = rest.find(kMark);
  out.text = rest.substr(0, at) + "\n\n";
  while (at != std::string::npos) {
    rest = rest.substr(at + kMark.size());
    at = rest.find(kMark);
    out.text += "  - " + rest.substr(0, at) + ".\n";
  }
  const auto filled = [&](const std::string& entity) {
    std::string text = "  - " + row.text("query");
    static constexpr std::string_view kPlace = "@placeholder";
    for (size_t p = text.find(kPlace); p != std::string::npos; p = text.find(kPlace, p + entity.size()))
      text.replace(p, kPlace.size(), entity);
    return text;
  };
  for (const std::string& entity : entities) {
    out.choices.push_back(filled(entity));
    out.option_scores["f1"].push_back(metrics::squad_f1(entity, answers));
    out.option_scores["em"].push_back(metrics::squad_exact(entity, answers));
  }
  const auto right = std::find(entities.begin(), entities.end(), answers.front());
  if (right != entities.end()) out.gold = right - entities.begin();  // else f1 and em can be had all the same
  out.target = out.answer = filled(answers.front());
  ordered_json processed = row.row();
  processed["entities"] = entities;
  processed["answers"] = answers;
  out.hash = doc_hash(processed);
  return out;
}

}  // namespace

std::vector<DocumentForm> super_glue_forms() {
  std::vector<DocumentForm> out;
  const auto add = [&out](const std::string& name, const std::string& version,
                          Document (*document)(const Fields&)) -> DocumentForm& {
    DocumentForm form = lm_eval_form(name, version);
    form.document = document;
    return out.emplace_back(std::move(form));
  };
  add("boolq", "2.0", boolq);
  add("cb", "1.0", cb).metrics = {"acc", "f1"};
  add("copa", "1.0", copa);
  DocumentForm& upstream = add("multirc", "2.0", multirc_as_upstream);  // its gold is the wrong way round since 2023-07
  upstream.cluster = "paragraph";
  DocumentForm& right = add("multirc_right", "2.0", multirc_right);
  right.protocol = "hayfork/multirc_right/1";
  right.data.sets = {"multirc"};
  right.cluster = "paragraph";
  DocumentForm& entities = add("record", "2.0", record);
  entities.metrics = {"f1", "em"};
  entities.primary = "f1";
  add("rte", "1.0", glue_rte);
  add("sglue_rte", "0.0", sglue_rte).data.sets = {"sglue_rte", "super_glue_rte", "rte"};
  add("wic", "1.0", wic);
  add("wsc", "1.0", wsc);
  return out;
}

}  // namespace hayfork::tasks
