// Registering what runs refer to: models, sparse configurations, hosts, data sets, tasks. Each is stored once.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/utf8.h"
#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

using nlohmann::json;

json or_null(const OptText& text) {
  return text ? json(*text) : json(nullptr);
}

std::string digest_of_json(const std::string& text, const std::string& what) {
  return sha256_hex(canonical_json(parse_json(text, what, ErrorSubject::database)));
}

// A task is the same when its configuration, version, protocol and data are.
std::string task_digest(Connection& db, const TaskRow& task) {
  json identity = {
      {"config", parse_json(task.config_json, "configuration of task " + task.name, ErrorSubject::database)},
      {"version", task.version},
      {"protocol", task.protocol},
      {"dataset", nullptr}};
  if (task.dataset_id) {
    identity["dataset"] = db.value<std::string>("SELECT sha256 FROM datasets WHERE id = ?", *task.dataset_id);
  }
  return sha256_hex(canonical_json(identity));
}

}  // namespace

std::string model_identity(const ModelRow& model) {
  json identity = {{"weights", or_null(model.weights_sha256)},
                   {"config", or_null(model.config_sha256)},
                   {"tokenizer", or_null(model.tokenizer_sha256)},
                   {"template", or_null(model.template_sha256)}};
  if (!model.weights_sha256) identity["name"] = replace_invalid(model.name);
  return sha256_hex(canonical_json(identity));
}

std::string replace_invalid(const std::string& text) {
  return find_invalid_utf8(text) ? replace_invalid_utf8(text) : text;
}

int64_t put_model(Connection& db, ModelRow model, std::span<const ModelLayerRow> layers) {
  if (model.identity_sha256.empty()) model.identity_sha256 = model_identity(model);
  if (const auto id = db.value<OptInt>("SELECT id FROM models WHERE identity_sha256 = ?", model.identity_sha256)) {
    // The first name stays; facts learnt later are added, and the newest statement of them wins.
    db.run(
        "UPDATE models SET series = coalesce(?2, series), arch = coalesce(?3, arch), arch_label = coalesce(?4, "
        "arch_label), "
        "train_tokens = coalesce(?5, train_tokens), train_step = coalesce(?6, train_step), path = coalesce(?7, path), "
        "n_params = coalesce(?8, n_params), n_params_noemb = coalesce(?9, n_params_noemb), max_len = coalesce(?10, "
        "max_len), "
        "layers_json = coalesce(?11, layers_json) WHERE id = ?1",
        *id, model.series, model.arch, model.arch_label, model.train_tokens, model.train_step, model.path,
        model.n_params, model.n_params_noemb, model.max_len, model.layers_json);
    return *id;
  }
  const int64_t id = insert_row(db, model);
  for (ModelLayerRow layer : layers) {
    layer.model_id = id;
    insert_row(db, layer);
  }
  return id;
}

int64_t put_sparse(Connection& db, SparseRow sparse, std::span<const SparseLayerRow> layers) {
  if (sparse.sha256.empty()) sparse.sha256 = digest_of_json(sparse.config_json, "sparse configuration " + sparse.label);
  if (const auto id = db.value<OptInt>("SELECT id FROM sparse_configs WHERE sha256 = ?", sparse.sha256)) return *id;
  const int64_t id = insert_row(db, sparse);
  for (SparseLayerRow layer : layers) {
    layer.sparse_id = id;
    insert_row(db, layer);
  }
  return id;
}

int64_t put_host(Connection& db, const HostRow& host) {
  // The table's UNIQUE takes NULLs for different; IS does not.
  const auto id = db.value<OptInt>(
      "SELECT id FROM hosts WHERE hostname IS ? AND cpu IS ? AND gpus_json IS ? AND driver IS ? AND cuda IS ? AND os "
      "IS ?",
      host.hostname, host.cpu, host.gpus_json, host.driver, host.cuda, host.os);
  return id ? *id : insert_row(db, host);
}

int64_t put_dataset(Connection& db, const DatasetRow& dataset) {
  const auto id =
      db.value<OptInt>("SELECT id FROM datasets WHERE name = ? AND sha256 = ?", dataset.name, dataset.sha256);
  return id ? *id : insert_row(db, dataset);
}

int64_t put_task(Connection& db, TaskRow task, std::span<const MetricDefRow> metric_defs) {
  if (task.config_sha256.empty()) task.config_sha256 = task_digest(db, task);
  const auto known = select_rows<TaskRow>(db, "WHERE name = ? AND config_sha256 = ?", task.name, task.config_sha256);
  int64_t id = 0;
  if (known.empty()) {
    id = insert_row(db, task);
  } else {
    id = known.front().id;
    HAY_CHECK(known.front().protocol == task.protocol && known.front().version == task.version,
              "task " + task.name + ": one config_sha256 for two protocols or versions");
  }
  for (MetricDefRow def : metric_defs) {
    def.task_id = id;
    insert_row(db, def, "INSERT OR REPLACE");
  }
  return id;
}

}  // namespace hayfork::runs
