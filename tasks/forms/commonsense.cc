// Short commonsense questions. Upstream folders: arc, hellaswag, openbookqa, piqa, siqa, winogrande, commonsense_qa.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "metrics/text.h"
#include "tasks/forms/forms.h"

namespace hayfork::tasks {
namespace {

using nlohmann::ordered_json;

// Options in choices.text with their names in choices.label.
Document lettered(const Fields& row, std::string text) {
  Document out;
  out.text = std::move(text);
  out.choices = row.texts("choices", "text");
  const std::vector<std::string> labels = row.texts("choices", "label");
  if (out.choices.empty() || labels.size() != out.choices.size())
    row.fail("choices", "as many labels as texts, at least one", row.at("choices"));
  set_gold(out, row.place("answerKey", labels));
  return out;
}

Document arc(const Fields& row) {
  return lettered(row, "Question: " + row.text("question") + "\nAnswer:");
}

Document openbookqa(const Fields& row) {
  return lettered(row, row.text("question_stem"));  // a column, not a template: as it is
}

// Rows as the original has them, or cleaned already (then nothing is cleaned again).
Document hellaswag(const Fields& row) {
  Document out;
  if (row.has("query") && row.has("choices")) {
    out.text = row.text("query");
    out.choices = row.texts("choices");
  } else {
    out.text = hellaswag_clean(row.text("activity_label") + ": " + row.text("ctx_a") + " " +
                               metrics::capitalized(row.text("ctx_b")));
    for (const std::string& ending : row.texts("endings")) out.choices.push_back(hellaswag_clean(ending));
  }
  if (out.choices.empty()) row.fail("the row has no endings");
  set_gold(out, row.label("label", static_cast<int64_t>(out.choices.size())));
  if (!row.has("query")) {
    ordered_json processed = row.row();
    processed["query"] = out.text;
    processed["choices"] = out.choices;
    processed["gold"] = out.gold;
    out.hash = doc_hash(processed);
  }
  return out;
}

Document piqa(const Fields& row) {
  Document out;
  out.text = "Question: " + row.text("goal") + "\nAnswer:";
  out.choices = {row.text("sol1"), row.text("sol2")};
  set_gold(out, row.label("label", 2));
  return out;
}

Document social_iqa(const Fields& row) {
  Document out;
  out.text = "Q: " + row.text("context") + " " + row.text("question") + "\nA:";
  out.choices = {row.text("answerA"), row.text("answerB"), row.text("answerC")};
  const int64_t label = row.integer("label");
  if (label < 1 || label > 3) row.fail("label", "1, 2 or 3", row.at("label"));
  set_gold(out, label - 1);
  return out;
}

// Trinh and Le 2018: the option goes into the context, what follows the blank is scored.
Document winogrande(const Fields& row) {
  const std::string sentence = row.text("sentence");
  const size_t blank = sentence.find('_');
  if (blank == std::string::npos) row.fail("sentence", "a text with a blank \"_\"", row.at("sentence"));
  const int64_t answer = row.integer("answer");
  if (answer != 1 && answer != 2) row.fail("answer", "1 or 2", row.at("answer"));
  Document out;
  out.multiple_inputs = true;
  for (const char* option : {"option1", "option2"}) {
    const std::string text = row.text(option);
    if (text.empty()) row.fail(option, "a text that is not empty", row.at(option));
    out.choices.push_back(sentence.substr(0, blank) + text);
  }
  out.continuation = strip(std::string_view(sentence).substr(blank + 1));
  if (out.continuation.empty()) row.fail("sentence", "text behind the blank", row.at("sentence"));
  out.gold = answer - 1;
  out.target = out.answer = out.continuation;
  return out;
}

Document commonsense_qa(const Fields& row) {
  const std::vector<std::string> texts = row.texts("choices", "text");
  if (texts.size() != 5) row.fail("choices.text", "five texts", row.at("choices"));
  Document out;
  out.choices = option_letters(5);
  out.text = "Question: " + strip(row.text("question"));
  for (size_t i = 0; i < 5; ++i) out.text += "\n" + out.choices[i] + ". " + texts[i];
  out.text += "\nAnswer:";
  set_gold(out, row.place("answerKey", out.choices));
  out.target = out.answer;  // upstream's target is the letter
  return out;
}

DocumentForm with_norm(DocumentForm form, const std::string& primary) {
  form.metrics = {"acc", "acc_norm"};
  form.primary = primary;
  return form;
}

}  // namespace

// lm_eval/tasks/hellaswag/utils.py, preprocess: the order of the steps matters.
std::string hellaswag_clean(std::string text) {
  text = strip(text);
  const auto replace = [&text](std::string_view from, std::string_view to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  replace(" [title]", ". ");
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find('[', at), text.size());
    kept.append(text, at, open - at);
    const size_t close = std::min(text.find(']', open), text.size());
    const size_t line = std::min(text.find('\n', open), text.size());
    at = open;
    if (open == text.size()) break;
    if (close < line) {
      at = close + 1;
    } else {
      kept += text[at++];  // the dot of the pattern matches no line end
    }
  }
  text = kept;
  replace("  ", " ");
  return text;
}

std::vector<DocumentForm> commonsense_forms() {
  std::vector<DocumentForm> out;
  const auto add = [&out](DocumentForm form, Document (*document)(const Fields&)) -> DocumentForm& {
    form.document = document;
    return out.emplace_back(std::move(form));
  };
  add(with_norm(lm_eval_form("arc_easy", "1.0"), "acc"), arc).test_split = "test";
  add(with_norm(lm_eval_form("arc_challenge", "1.0"), "acc_norm"), arc).test_split = "test";
  add(with_norm(lm_eval_form("openbookqa", "1.0"), "acc_norm"), openbookqa).test_split = "test";
  add(with_norm(lm_eval_form("hellaswag", "1.0"), "acc_norm"), hellaswag);
  add(with_norm(lm_eval_form("piqa", "1.0"), "acc"), piqa);
  add(lm_eval_form("social_iqa", "0.0"), social_iqa).data.sets = {"social_iqa", "siqa"};
  add(lm_eval_form("winogrande", "1.0"), winogrande);
  add(lm_eval_form("commonsense_qa", "Yaml"), commonsense_qa);
  return out;
}

}  // namespace hayfork::tasks
