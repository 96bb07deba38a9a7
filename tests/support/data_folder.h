// A data folder of a test: rows as lines, and tasks run over them on a fake model.
#pragma once

#include <string>
#include <vector>

#include "base/file_map.h"
#include "tasks/run_task.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/paths.h"
#include "tests/support/score_lm.h"

namespace hayfork::test {

class DataFolder {
 public:
  // <set>/<split>.jsonl
  void add(const std::string& set, const std::string& split, const std::string& lines) {
    std::filesystem::create_directories(folder_.path() / set);
    write_file_atomically(folder_.path() / set / (split + ".jsonl"), lines);
  }
  std::filesystem::path path() const { return folder_.path(); }

  std::unique_ptr<tasks::Task> make(const std::string& name) {
    options.data_dir = folder_.path();
    options.events = [this](const Event& event) { events.push_back(event.code + " " + event.message); };
    return tasks::make_task(name, options, text);
  }

  struct Result {
    std::vector<tasks::SampleScore> scores;
    std::vector<tasks::Aggregate> aggregates;
  };
  Result run(const tasks::Task& task) {
    Result out;
    out.scores.resize(static_cast<size_t>(task.n_samples()));
    std::vector<tasks::FoldRow> rows(out.scores.size());
    StopFlag stop;
    tasks::run_task(
        task, lm, {},
        [&](const tasks::SampleResult& r) {
          out.scores[static_cast<size_t>(r.index)] = r.score;
          rows[static_cast<size_t>(r.index)] = {r.sample, r.score.status, r.score.score, r.score.metrics};
        },
        stop);
    out.aggregates = task.fold(rows);
    return out;
  }

  ByteTokenizer tokenizer;
  ScoreLm lm{tokenizer};
  tasks::TextContext text{.tokenizer = &tokenizer};
  tasks::TaskOptions options;
  std::vector<std::string> events;

 private:
  TempDir folder_;
};

inline std::optional<double> metric(const tasks::SampleScore& score, const std::string& name) {
  for (const tasks::MetricValue& m : score.metrics)
    if (m.metric == name) return m.value;
  return std::nullopt;
}
inline std::optional<double> aggregate(const std::vector<tasks::Aggregate>& all, const std::string& name,
                                       const std::string& slice = "") {
  for (const tasks::Aggregate& a : all)
    if (a.metric == name && a.slice == slice) return a.value;
  return std::nullopt;
}
// Σ of token_cost over the bytes.
inline double cost(const std::string& text) {
  double sum = 0;
  for (const char c : text) sum += token_cost(static_cast<unsigned char>(c));
  return sum;
}

}  // namespace hayfork::test
