// Tasks that are a DocumentForm: documents with demonstrations before them. Subclasses ask for choices or for text.
#pragma once

#include <string>
#include <vector>

#include "tasks/document_form.h"
#include "tasks/document_task.h"
#include "tasks/turns.h"

namespace hayfork::tasks {

class FewshotTask : public DocumentTask {
 protected:
  // Opens the splits, draws the demonstrations and fills info_ but for kind, metrics and config. `adapt` may change the
  // rows before anything is made of them.
  FewshotTask(const DocumentForm& form, const TaskOptions& options, const TextContext& text,
              const std::function<void(Split&)>& adapt = {});

  // Throws: corrupt (data) for a row that breaks.
  Document document_of(const Split& split, int64_t row) const;
  Document document(int64_t index) const { return document_of(split_, index); }
  // Demonstrations of a document; the question is left empty.
  Conversation conversation(int64_t index) const;
  const std::vector<int64_t>& shots(int64_t index) const { return shots_[static_cast<size_t>(index)]; }
  std::string recipe(int64_t index) const;
  bool has_metric(const std::string& name) const;
  // `more_json`: an object of what else changes a score.
  void finish_info(const std::string& more_json);

  DocumentForm form_;
  int64_t n_shots_ = 0;
  uint64_t seed_ = 1234;  // upstream's fewshot seed
  Split pool_;

 private:
  Identity identify(int64_t row) const;
  void draw();
  void drop_rows();

  std::vector<std::vector<int64_t>> shots_;
};

}  // namespace hayfork::tasks
