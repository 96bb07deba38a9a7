// A benchmark over the rows of a data set, as data: where they are, how a row becomes a question with options or with
// an answer to be written, and how questions are put together. Names, numbers and order follow lm-evaluation-harness's
// task files, so that a form can be read beside them (specs: context = description + demonstrations + text;
// continuation = delimiter + option).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tasks/doc_fields.h"
#include "tasks/split.h"

namespace hayfork::tasks {

// One row, ready to be asked.
struct Document {
  std::string text;                  // doc_to_text
  std::vector<std::string> choices;  // doc_to_choice: their lengths divide in acc_norm
  int64_t gold = -1;                 // index of the right one
  std::string target;                // str(doc_to_target), hashed as upstream's target_hash
  std::string answer;                // what a demonstration answers
  // Multiple inputs (winogrande): every option is a context of its own, `continuation` follows each of them, and a
  // demonstration asks with the right option.
  bool multiple_inputs = false;
  std::string continuation = {};
  // Scores a metric gives for choosing each option, beside the usual ones (record's f1 and em).
  std::map<std::string, std::vector<double>> option_scores = {};
  std::optional<std::string> cluster = {};
  std::optional<std::string> hash = {};     // of the processed row; empty: the row is hashed as it is
  std::vector<std::string> targets = {};    // Output::text: what a right answer holds
  std::optional<int64_t> kept_tokens = {};  // of a context that was cut
};

// Sets gold, target and answer from an index.
void set_gold(Document& document, int64_t gold);

enum class Output {
  choices,       // multiple_choice
  continuation,  // loglikelihood: one target, is it what the model would say
  text,          // generate_until: the answer is written
};

struct DocumentForm {
  std::string name, version, protocol;
  SplitNames data;
  // As in a task file; "" where it has none. Rows come from the test split, else validation; demonstrations from
  // fewshot, train, validation or test, the first that is named.
  std::string train_split, validation_split, test_split, fewshot_split;
  bool first_n = false;  // sampler: the first of the pool, else drawn for each document in turn
  std::string description;
  std::function<std::string(const Fields&)> describe = {};  // the same of the evaluated row, where it is a template
  std::string delimiter = " ", fewshot_delimiter = "\n\n";
  Output output = Output::choices;
  std::vector<std::string> metrics = {"acc"};  // those upstream reports
  std::string primary = "acc";
  int64_t num_fewshot = 0;
  // Output::text.
  std::vector<std::string> stops;
  int64_t max_new_tokens = 0;
  bool ignore_case = false, ignore_punctuation = false;  // of exact_match
  std::function<Document(const Fields&)> document;
  std::function<bool(const Fields&)> keep = {};  // rows that are no part of the task give false
  std::string cluster = {};                      // what Document::cluster means
  std::string config_json = {};  // canonical JSON of what the form was read from, when it is no built-in one
  std::string family = "choice";

  std::string eval_split() const { return test_split.empty() ? validation_split : test_split; }
  std::string pool_split() const;
  // Upstream leaves the evaluated document out of the draw only where both names are the same, unset ones too.
  bool excludes_itself() const { return !first_n && fewshot_split == test_split; }
};

}  // namespace hayfork::tasks
