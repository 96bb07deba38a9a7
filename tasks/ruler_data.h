// The files behind RULER's prompts: found by option or in the data directory, loaded as far as a task needs them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "datasets/ruler/punkt.h"
#include "datasets/ruler/ruler.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

struct RulerData {
  std::optional<datasets::WordPairs> pairs;
  std::optional<std::vector<std::string>> words, english_words, essays;
  std::optional<datasets::QaSet> qa;
  std::optional<datasets::Punkt> punkt;
  std::string words_release;
  std::string digests_json;  // object: what was loaded → its SHA-256
  std::string sha256;        // of digests_json

  datasets::RulerSources sources() const;
  std::vector<std::string> split(const std::string& text) const;  // Requires: punkt
};

// Options words, english-words, essays, squad, hotpotqa, punkt; else <data_dir>/ruler and <data_dir>/niah.
// Throws: not_found naming the option that would give what is missing.
RulerData load_ruler_data(const datasets::RulerTask& task, const TaskOptions& options);

}  // namespace hayfork::tasks
