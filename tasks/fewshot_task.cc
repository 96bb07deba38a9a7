#include "tasks/fewshot_task.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/json.h"
#include "tasks/fewshot.h"

namespace hayfork::tasks {

using nlohmann::json;

std::string DocumentForm::pool_split() const {
  for (const std::string* split : {&fewshot_split, &train_split, &validation_split, &test_split})
    if (!split->empty()) return *split;
  return {};
}

FewshotTask::FewshotTask(const DocumentForm& form, const TaskOptions& options, const TextContext& text,
                         const std::function<void(Split&)>& adapt)
    : DocumentTask(options, text), form_(form) {
  info_.name = form.name;
  n_shots_ = options.num_fewshot.value_or(form.num_fewshot);
  if (options.seed) seed_ = *options.seed;
  if (options.fewshot_seed) seed_ = static_cast<uint64_t>(*options.fewshot_seed);
  split_ = open_split(options, form.data, form.eval_split(), form.name);
  if (adapt) adapt(split_);
  drop_rows();
  if (n_shots_ > 0) pool_ = open_split(options, form.data, form.pool_split(), form.name);
  adopt_rows([this](int64_t row) { return identify(row); });
  draw();
}

void FewshotTask::drop_rows() {
  if (!form_.keep) return;
  const size_t n = split_.rows.size();
  std::erase_if(split_.rows, [this](size_t row) {
    const datasets::Record& record = split_.records->rows[row];
    if (record.value == nullptr) return false;
    const std::string where = split_.records->where(row);
    try {
      return !form_.keep(Fields(*record.value, where));
    } catch (const Error&) {  // the sample says what is wrong with it
      return false;
    }
  });
  if (split_.rows.size() < n && options_.events)
    options_.events({Event::Level::info, "HAY-W043",
                     std::to_string(n - split_.rows.size()) + " of " + std::to_string(n) +
                         " rows are no part of the task (an answer of fewer than two characters)",
                     form_.name});
}

Document FewshotTask::document_of(const Split& split, int64_t row) const {
  const std::string where = split.where(row);
  return form_.document(Fields(split.value(row), where));
}

DocumentTask::Identity FewshotTask::identify(int64_t row) const {
  const Document document = document_of(split_, row);
  return {document.hash ? *document.hash : doc_hash(split_.value(row)), document.cluster.value_or("")};
}

void FewshotTask::draw() {
  FewshotPlan plan;
  plan.n_pool = pool_.size();
  plan.n_documents = n_samples();
  plan.n_shots = n_shots_;
  plan.seed = seed_;
  plan.first_n = form_.first_n;
  plan.exclude = form_.excludes_itself();
  const auto digest = [](const Split& split, int64_t row) {
    const datasets::Record& record = split.row(row);
    return record.value ? sha256_hex(canonical_json(json(*record.value))) : record.fault;
  };
  plan.pool_digest = [&](int64_t row) { return digest(pool_, row); };
  plan.document_digest = [&](int64_t row) { return digest(split_, row); };
  shots_ = draw_fewshot(plan);
}

Conversation FewshotTask::conversation(int64_t index) const {
  Conversation out{form_.description, form_.delimiter, form_.fewshot_delimiter, {}, {}};
  if (form_.describe) {
    const std::string where = split_.where(index);
    out.description = form_.describe(Fields(split_.value(index), where));
  }
  for (const int64_t row : shots(index)) {
    const Document shot = document_of(pool_, row);
    out.demonstrations.emplace_back(shot.multiple_inputs ? shot.choices[static_cast<size_t>(shot.gold)] : shot.text,
                                    shot.target.empty() ? std::nullopt : std::optional(shot.answer));
  }
  return out;
}

std::string FewshotTask::recipe(int64_t index) const {
  return canonical_json(json{{"task", form_.name},
                             {"protocol", form_.protocol},
                             {"dataset", split_.records->sha256},
                             {"document", index},
                             {"demonstrations", shots(index)},
                             {"fewshot_dataset", n_shots_ > 0 ? pool_.records->sha256 : ""}});
}

bool FewshotTask::has_metric(const std::string& name) const {
  return std::find(form_.metrics.begin(), form_.metrics.end(), name) != form_.metrics.end();
}

void FewshotTask::finish_info(const std::string& more_json) {
  info_.family = form_.family;
  info_.version = form_.version;
  info_.protocol = form_.protocol;
  info_.primary_metric = form_.primary;
  info_.cluster = form_.cluster;
  info_.num_fewshot = n_shots_;
  const bool drawn = n_shots_ > 0 && !form_.first_n;
  if (drawn) info_.fewshot_seed = static_cast<int64_t>(seed_);
  info_.seeds_json = canonical_json(json{{"fewshot", drawn ? json(seed_) : json()}});
  info_.official = !options_.seed && !options_.fewshot_seed;
  json config = {{"protocol", form_.protocol},
                 {"version", form_.version},
                 {"split", form_.eval_split()},
                 {"num_fewshot", n_shots_},
                 {"fewshot_seed", drawn ? json(seed_) : json()},
                 {"fewshot_split", n_shots_ > 0 ? json(form_.pool_split()) : json()},
                 {"fewshot_dataset", n_shots_ > 0 ? json(pool_.records->sha256) : json()},
                 {"description", form_.description},
                 {"delimiter", form_.delimiter},
                 {"fewshot_delimiter", form_.fewshot_delimiter},
                 {"add_bos", text_.add_bos && !text_.chat},
                 {"system", text_.system},
                 {"form", form_.config_json}};
  if (text_.merge_turns)
    config["chat_turns"] = "merged";  // only then: the configuration of the others keeps its digest
  config.update(parse_json(more_json, "task configuration", ErrorSubject::general));
  info_.config_json = canonical_json(config);
}

}  // namespace hayfork::tasks
