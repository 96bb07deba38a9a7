#include "datasets/ruler/ruler.h"

#include "base/error.h"
#include "datasets/ruler/generators.h"

namespace hayfork::datasets {

const std::vector<RulerTask>& ruler_tasks() {
  const auto niah = [](const char* name, const char* haystack, const char* key, const char* value, int64_t k, int64_t v,
                       int64_t q) {
    RulerTask task{name, "niah", 128};
    task.haystack = haystack;
    task.key_type = key;
    task.value_type = value;
    task.n_keys = k;
    task.n_values = v;
    task.n_queries = q;
    return task;
  };
  const auto qa = [](const char* name, const char* dataset) {
    RulerTask task{name, "qa", 32, true};
    task.dataset = dataset;
    return task;
  };
  static const std::vector<RulerTask> kTasks = {
      niah("niah_single_1", "noise", "words", "numbers", 1, 1, 1),
      niah("niah_single_2", "essay", "words", "numbers", 1, 1, 1),
      niah("niah_single_3", "essay", "words", "uuids", 1, 1, 1),
      niah("niah_multikey_1", "essay", "words", "numbers", 4, 1, 1),
      niah("niah_multikey_2", "needle", "words", "numbers", 1, 1, 1),
      niah("niah_multikey_3", "needle", "uuids", "uuids", 1, 1, 1),
      niah("niah_multivalue", "essay", "words", "numbers", 1, 4, 1),
      niah("niah_multiquery", "essay", "words", "numbers", 4, 1, 4),
      {"vt", "vt", 30},
      {"cwe", "cwe", 120},
      {"fwe", "fwe", 50},
      qa("qa_1", "squad"),
      qa("qa_2", "hotpotqa"),
  };
  return kTasks;
}

RulerGenerator::RulerGenerator(const RulerTask& task, const RulerSources& sources, const RulerOptions& options)
    : task_(task), sources_(sources), options_(options), start_(options) {
  HAY_CHECK(options.count != nullptr);
}

void RulerGenerator::does_not_fit(int64_t smallest) const {
  throw Error(ErrorCode::usage, ErrorSubject::general,
              "length " + std::to_string(options_.max_length) + " is too small for ruler_" + task_.name,
              {"", "its smallest sample and " + std::to_string(task_.tokens_to_generate) + " answer tokens do not fit",
               "a sample seen needs " + std::to_string(smallest) + " tokens: use a greater length"});
}

std::unique_ptr<RulerGenerator> make_ruler_generator(const RulerTask& task, const RulerSources& sources,
                                                     const RulerOptions& options) {
  static const std::vector<std::pair<std::string_view, RulerMaker>> kMakers = {{"niah", make_ruler_niah},
                                                                               {"vt", make_ruler_vt},
                                                                               {"cwe", make_ruler_cwe},
                                                                               {"fwe", make_ruler_fwe},
                                                                               {"qa", make_ruler_qa}};
  for (const auto& [name, make] : kMakers)
    if (name == task.generator) return make(task, sources, options);
  HAY_CHECK(false, task.generator);
}

}  // namespace hayfork::datasets
