// What all tasks over rows of a data set share: which rows, their keys and hashes, the data set's identity, warnings
// about doubled documents. Subclasses make requests of a row and score the answers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tasks/split.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

class DocumentTask : public Task {
 public:
  const TaskInfo& info() const override { return info_; }
  int64_t n_samples() const override { return static_cast<int64_t>(hashes_.size()); }
  SampleKey key(int64_t index) const override;
  std::vector<PlanRow> plan() const override;

 protected:
  DocumentTask(const TaskOptions& options, const TextContext& text);
  // To be called by the subclass's constructor, once info_ and split_ are set. `hash` of a row (see doc_hash) and its
  // cluster, "" for none; both may throw: a row that breaks is hashed as its line is.
  struct Identity {
    std::string hash, cluster;
  };
  using Identify = std::function<Identity(int64_t row)>;
  void adopt_rows(const Identify& identify);
  int64_t index_of(const SampleKey& key) const;

  TextContext text_;
  TaskOptions options_;
  TaskInfo info_;
  Split split_;
  int64_t new_tokens_ = 0;  // a sample, at most

 private:
  std::vector<std::string> hashes_, clusters_;  // of the rows that are asked
};

// The sample of a row before its requests are made.
Sample described_sample(const SampleKey& key, const std::string& context);

}  // namespace hayfork::tasks
