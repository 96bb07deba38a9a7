// What a line of a samples file of lm-evaluation-harness holds (lm_eval/loggers/evaluation_tracker.py), as a row of the
// store; and how its JSON writes numbers and texts, for the importer beside it alone.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "runs/store.h"

namespace hayfork::cli::lm_eval {

using Json = nlohmann::ordered_json;

// Null when `object` is none, or lacks the key, or has null there.
const Json* find(const Json& object, const std::string& key);
// Python's NaN and Infinity, as parse_json gives them.
bool is_special_float(const Json& value);
// A number, also one that stands as text. Empty for what is none ("N/A", lists) and for NaN and infinities.
std::optional<double> number(const Json& value);
std::string text_of(const Json& value);
runs::OptText text_at(const Json& object, const std::string& key);  // empty for "" too

// A line without its metrics. `kind`: choice, generate, rolling; `delimiter`: what stands between a question and an
// option there. Throws: corrupt (data), naming `where`.
runs::SampleRow sample_of(const Json& line, const std::string& doc_id, const std::string& where,
                          const std::string& kind, const std::string& delimiter);

// A document's part of a corpus metric, which the harness keeps as [log-likelihood, words or bytes].
struct CorpusShare {
  double loglikelihood = 0, count = 0;
  const char* count_name = "";  // "words", "bytes"
  double value = 0;             // the metric of this document alone
};
// Empty for metrics that are none of these, and values of another form.
std::optional<CorpusShare> corpus_share(const std::string& metric, const Json& value);

}  // namespace hayfork::cli::lm_eval
