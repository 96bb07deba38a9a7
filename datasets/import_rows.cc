#include "datasets/import_rows.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace hayfork::datasets {
namespace {

using nlohmann::ordered_json;

bool has(const ordered_json& row, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (!row.contains(key)) return false;
  return true;
}

std::string letter(size_t i) {
  return std::string(1, static_cast<char>('A' + i));
}

ordered_json letters(size_t n) {
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < n; ++i) out.push_back(letter(i));
  return out;
}

// {"text": […], "label": […]} from [{"text": …, "label": …}, …].
ordered_json columns_of(const ordered_json& choices, const char* first, const char* second) {
  ordered_json out = {{first, ordered_json::array()}, {second, ordered_json::array()}};
  for (const ordered_json& choice : choices) {
    if (!choice.is_object() || !has(choice, {"text", "label"})) return choices;
    for (const char* key : {first, second}) out[key].push_back(choice[key]);
  }
  return out;
}

// ARC, OpenBookQA and CommonsenseQA as AllenAI publishes them: the question is an object with its choices.
Rows nested_question(const std::string& set, const ordered_json& row) {
  if (!has(row, {"question"}) || !row["question"].is_object() || !has(row["question"], {"stem", "choices"}))
    return {row};
  const ordered_json& question = row["question"];
  ordered_json out = {{"id", row.value("id", ordered_json())}};
  const bool commonsense = set.starts_with("commonsense");
  out[set.starts_with("openbookqa") ? "question_stem" : "question"] = question["stem"];
  if (commonsense) out["question_concept"] = question.value("question_concept", ordered_json());
  out["choices"] =
      commonsense ? columns_of(question["choices"], "label", "text") : columns_of(question["choices"], "text", "label");
  if (row.contains("answerKey")) out["answerKey"] = row["answerKey"];
  return {out};
}

// "make calls" of "(A) make calls (B) quit": the choices of OpenBookQA's TSV files.
ordered_json lettered(const std::string& text) {
  ordered_json texts = ordered_json::array();
  size_t at = text.find("(A) ");
  for (size_t i = 0; at != std::string::npos; ++i) {
    const size_t begin = at + 4;
    at = text.find(" (" + letter(i + 1) + ") ", begin);
    texts.push_back(text.substr(begin, at == std::string::npos ? at : at - begin));
    if (at != std::string::npos) ++at;
  }
  return texts;
}

Rows openbookqa_tsv(const ordered_json& row) {
  if (!has(row, {"ID", "Question Stem", "Choices", "Answer Key"})) return {row};
  const ordered_json texts = lettered(row["Choices"].get<std::string>());
  return {{{"id", row["ID"]},
           {"question_stem", row["Question Stem"]},
           {"choices", {{"text", texts}, {"label", letters(texts.size())}}},
           {"answerKey", row["Answer Key"]}}};
}

ordered_json picked(const ordered_json& row, std::initializer_list<const char*> keys) {
  ordered_json out = ordered_json::object();
  for (const char* key : keys)
    if (row.contains(key)) out[key] = row[key];
  return out;
}

// Words (SuperGLUE's originals) or truth values to Hugging Face's numbers.
ordered_json class_of(const ordered_json& label, std::initializer_list<const char*> names) {
  const bool binary = label.is_boolean();
  if (binary) return label.get<bool>() ? 1 : 0;
  int64_t i = 0;
  for (const char* name : names) {
    if (label == name) return i;
    ++i;
  }
  return label;
}

void set_class(ordered_json& row, std::initializer_list<const char*> names) {
  if (row.contains("label")) row["label"] = class_of(row["label"], names);
}

Rows multirc(const ordered_json& row) {
  if (!has(row, {"passage"}) || !row["passage"].is_object()) return {row};
  Rows out;
  const ordered_json& passage = row["passage"];
  for (const ordered_json& question : passage.value("questions", ordered_json::array())) {
    for (const ordered_json& answer : question.value("answers", ordered_json::array())) {
      ordered_json flat = {{"paragraph", passage.value("text", ordered_json())},
                           {"question", question.value("question", ordered_json())},
                           {"answer", answer.value("text", ordered_json())},
                           {"idx",
                            {{"paragraph", row.value("idx", ordered_json())},
                             {"question", question.value("idx", ordered_json())},
                             {"answer", answer.value("idx", ordered_json())}}}};
      if (answer.contains("label")) flat["label"] = class_of(answer["label"], {});
      out.push_back(std::move(flat));
    }
  }
  return out;
}

// The text between two code point offsets, the last one included.
std::string cut(const std::string& text, const ordered_json& entity) {
  const auto start = entity.value("start", int64_t{0}), end = entity.value("end", int64_t{-1});
  std::string out;
  int64_t at = -1;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++at;
    if (at >= start && at <= end) out += c;
  }
  return out;
}

Rows record(const ordered_json& row) {
  if (!has(row, {"passage", "qas"}) || !row["passage"].is_object()) return {row};
  const std::string text = row["passage"].value("text", "");
  ordered_json entities = ordered_json::array();
  for (const ordered_json& entity : row["passage"].value("entities", ordered_json::array()))
    entities.push_back(cut(text, entity));
  Rows out;
  for (const ordered_json& qa : row["qas"]) {
    ordered_json answers = ordered_json::array();
    for (const ordered_json& answer : qa.value("answers", ordered_json::array()))
      answers.push_back(answer.value("text", ""));
    out.push_back(
        {{"passage", text},
         {"query", qa.value("query", "")},
         {"entities", entities},
         {"answers", answers},
         {"idx", {{"passage", row.value("idx", ordered_json())}, {"query", qa.value("idx", ordered_json())}}}});
  }
  return out;
}

// The n-th word between blanks (the originals have ASCII blanks alone), or nothing.
std::string word_of(const std::string& text, int64_t n) {
  static constexpr const char* kBlanks = " \t\n\v\f\r";
  for (size_t at = text.find_first_not_of(kBlanks); at != std::string::npos; at = text.find_first_not_of(kBlanks, at)) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    if (n-- == 0) return text.substr(at, end - at);
    at = end;
  }
  return {};
}

// Hugging Face's configuration wsc.fixed: a span that does not stand in its text gets the case of the word there, loses
// full stops at its end, and has blanks for line ends.
void fix_span(ordered_json& row, const std::string& span) {
  ordered_json &text = row["text"], &words = row[span + "_text"];
  const ordered_json index = row[span + "_index"];
  if (!text.is_string() || !words.is_string() || !index.is_number_integer()) return;
  const std::string& whole = text.get_ref<const std::string&>();
  std::string part = words.get<std::string>();
  if (part.empty() || whole.find(part) != std::string::npos) return;
  // Something stands between these names in the text: nobody can mend them.
  if (part == "Kamenev and Zinoviev" || part == "Kamenev, Zinoviev, and Stalin") return;
  if (part.find("theyscold") != std::string::npos) row["span2_index"] = 10;
  const std::string first = word_of(whole, index.get<int64_t>());
  if (first.empty()) return;
  const bool small = first[0] >= 'a' && first[0] <= 'z';
  char& head = part[0];
  if (small && head >= 'A' && head <= 'Z') head = static_cast<char>(head + 32);
  if (!small && head >= 'a' && head <= 'z') head = static_cast<char>(head - 32);
  while (part.ends_with('.')) part.pop_back();
  std::replace(part.begin(), part.end(), '\n', ' ');
  words = part;
}

Rows wsc(const ordered_json& row) {
  ordered_json out = row;
  if (row.contains("target") && row["target"].is_object()) {
    const ordered_json& target = row["target"];
    out = picked(row, {"text"});
    for (const char* key : {"span1_index", "span2_index", "span1_text", "span2_text"})
      out[key] = target.value(key, ordered_json());
    out.update(picked(row, {"idx", "label"}));
    fix_span(out, "span1");
    fix_span(out, "span2");
  }
  set_class(out, {"False", "True"});
  return {out};
}

Rows super_glue(const std::string& set, const ordered_json& row) {
  if (set.find("multirc") != std::string::npos) return multirc(row);
  if (set.find("record") != std::string::npos) return record(row);
  if (set.find("wsc") != std::string::npos) return wsc(row);
  ordered_json out = row;
  if (set.find("rte") != std::string::npos)
    set_class(out, {"entailment", "not_entailment"});
  else if (set.find("cb") != std::string::npos)
    set_class(out, {"entailment", "contradiction", "neutral"});
  else
    set_class(out, {"false", "true"});
  return {out};
}

// Headerless CSV: question, four choices, the letter (and the subject, from the file's name).
Rows mmlu(const ordered_json& row) {
  if (!has(row, {"0", "1", "2", "3", "4", "5"})) return {row};
  const std::string key = row["5"].get<std::string>();
  const bool known = key.size() == 1 && key[0] >= 'A' && key[0] <= 'D';
  return {{{"question", row["0"]},
           {"subject", row.value("subject", "")},
           {"choices", {row["1"], row["2"], row["3"], row["4"]}},
           {"answer", known ? ordered_json(key[0] - 'A') : ordered_json(key)}}};
}

Rows ceval(const ordered_json& row) {
  ordered_json out = row;
  if (row.contains("id") && row["id"].is_string()) {
    const std::string id = row["id"].get<std::string>();
    if (!id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos)
      out["id"] = std::stoll(id);
    if (!out.contains("explanation")) out["explanation"] = "";
  }
  return {out};
}

Rows cmmlu(const ordered_json& row) {
  ordered_json out = row;
  out.erase("");  // the unnamed column of row numbers
  return {out};
}

// A RACE article: lists side by side; here one problem an entry, as in EleutherAI's copy, where the list is a text that
// Python would read. JSON of lists, objects and texts is one.
Rows race(const ordered_json& row) {
  if (!has(row, {"article", "questions", "options", "answers"})) return {row};
  const ordered_json &questions = row["questions"], &options = row["options"], &answers = row["answers"];
  const bool sound = questions.is_array() && options.is_array() && answers.is_array() &&
                     questions.size() == options.size() && questions.size() == answers.size();
  if (!sound) return {row};
  ordered_json problems = ordered_json::array();
  for (size_t i = 0; i < questions.size(); ++i)
    problems.push_back({{"question", questions[i]}, {"answer", answers[i]}, {"options", options[i]}});
  ordered_json out = ordered_json::object();
  if (row.contains("id")) out["id"] = row["id"];
  out["article"] = row["article"];
  out["problems"] = problems.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return {out};
}

// StoryCloze's CSV files and XStoryCloze's TSV files.
Rows storycloze(const ordered_json& row) {
  if (!has(row, {"InputStoryid", "RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2"})) return {row};
  ordered_json out = {{"story_id", row["InputStoryid"]}};
  for (int i = 1; i <= 4; ++i) {
    const std::string n = std::to_string(i);
    out["input_sentence_" + n] = row.value("InputSentence" + n, "");
  }
  out["sentence_quiz1"] = row["RandomFifthSentenceQuiz1"];
  out["sentence_quiz2"] = row["RandomFifthSentenceQuiz2"];
  const ordered_json right = row.value("AnswerRightEnding", ordered_json());
  if (right == "1" || right == "2") out["answer_right_ending"] = right == "1" ? 1 : 2;
  return {out};
}

bool is_super_glue(const std::string& set) {
  for (const char* name :
       {"boolq", "cb", "copa", "multirc", "multirc_lme_compat", "record", "rte", "sglue_rte", "wic", "wsc"})
    if (set == name) return true;
  return false;
}

// "\n A. bank" lines of a question with lettered options.
ordered_json lettered_lines(const std::string& query) {
  ordered_json texts = ordered_json::array();
  for (size_t i = 0;; ++i) {
    const std::string mark = "\n " + letter(i) + ". ";
    const size_t begin = query.find(mark);
    if (begin == std::string::npos) return texts;
    const size_t end = query.find('\n', begin + 1);
    texts.push_back(query.substr(begin + mark.size(), end == std::string::npos ? end : end - begin - mark.size()));
  }
}

// The question of "Question: …\nAnswer:".
std::string bare_question(std::string query) {
  if (query.starts_with("Question: ")) query.erase(0, 10);
  const size_t end = std::min(query.find("\n A. "), query.rfind("\nAnswer:"));
  return end == std::string::npos ? query : query.substr(0, end);
}

}  // namespace

bool is_set(const std::string& set, std::string_view family) {
  return set.starts_with(family) &&
         (set.size() == family.size() || set[family.size()] == '_' || set[family.size()] == '-');
}

std::string subject_of(std::string_view file_stem) {
  for (const std::string_view split : {"_test", "_dev", "_val"})
    if (file_stem.ends_with(split)) return std::string(file_stem.substr(0, file_stem.size() - split.size()));
  return std::string(file_stem);
}

Rows hf_rows(const std::string& set, const ordered_json& row) {
  if (is_set(set, "arc") || is_set(set, "commonsense_qa")) return nested_question(set, row);
  if (is_set(set, "openbookqa")) return row.contains("Question Stem") ? openbookqa_tsv(row) : nested_question(set, row);
  if (is_set(set, "mmlu")) return mmlu(row);
  if (is_set(set, "ceval")) return ceval(row);
  if (is_set(set, "cmmlu")) return cmmlu(row);
  if (is_set(set, "race")) return race(row);
  if (is_set(set, "storycloze") || is_set(set, "xstorycloze")) return storycloze(row);
  if (is_super_glue(set)) return super_glue(set, row);
  return {row};
}

ordered_json hf_row_of_olmes(const std::string& set, const ordered_json& doc) {
  const bool labelled = has(doc, {"query", "choices", "gold"}) && doc["query"].is_string() &&
                        doc["choices"].is_array() && doc["gold"].is_number_integer();
  if (is_set(set, "piqa")) return picked(doc, {"goal", "sol1", "sol2", "label"});
  if (is_set(set, "social_iqa") || is_set(set, "siqa"))
    return picked(doc, {"context", "question", "answerA", "answerB", "answerC", "label"});
  if (is_set(set, "winogrande")) return picked(doc, {"sentence", "option1", "option2", "answer"});
  if (!labelled) return doc;
  const auto gold = doc["gold"].get<int64_t>();
  if (is_set(set, "hellaswag")) {  // its text is cleaned already: what lm-evaluation-harness derives from the original
    ordered_json out = picked(doc, {"ind", "query", "choices", "gold"});
    out["label"] = std::to_string(gold);
    return out;
  }
  const std::string query = doc["query"].get<std::string>();
  ordered_json texts = lettered_lines(query);
  if (texts.empty()) texts = doc["choices"];
  const std::string key = gold >= 0 && gold < 26 ? letter(static_cast<size_t>(gold)) : std::to_string(gold);
  ordered_json out = {{"id", doc.value("id", ordered_json())}};
  const bool commonsense = is_set(set, "commonsense_qa");
  if (!commonsense && !is_set(set, "arc") && !is_set(set, "openbookqa")) return doc;
  out[is_set(set, "openbookqa") ? "question_stem" : "question"] = bare_question(query);
  const ordered_json labels = letters(texts.size());
  out["choices"] =
      commonsense ? ordered_json{{"label", labels}, {"text", texts}} : ordered_json{{"text", texts}, {"label", labels}};
  out["answerKey"] = key;
  return out;
}

}  // namespace hayfork::datasets
