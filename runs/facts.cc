// What is written beside the samples: aggregates, events, tags, baselines, timings, gates, searches, key tokens.
#include <fmt/format.h>

#include "base/units.h"
#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

template <typename Row>
void insert_all(Connection& db, std::span<const Row> rows) {
  Transaction transaction(db);
  for (const Row& row : rows) insert_row(db, row);
  transaction.commit();
}

}  // namespace

void Store::set_metrics(int64_t run_task, std::span<const MetricRow> rows) {
  auto db = impl_->writing();
  Transaction transaction(db.db);
  db->run("DELETE FROM metrics WHERE run_task = ?", run_task);
  for (MetricRow row : rows) {
    row.run_task = run_task;
    insert_row(db.db, row);
  }
  transaction.commit();
}

void Store::rescore(std::span<const SampleRow> samples) {
  auto db = impl_->writing();
  Transaction transaction(db.db);
  std::set<int64_t> tasks;
  for (const SampleRow& row : samples) {
    db->run("UPDATE samples SET score = ?, answer = ?, status = ?, error = ? WHERE id = ?", row.score, row.answer,
            row.status, row.error, row.id);
    HAY_CHECK(db->changes() == 1, fmt::format("no sample {}", row.id));
    db->run("DELETE FROM sample_metrics WHERE sample = ?", row.id);
    for (SampleMetricRow metric : row.metrics) {
      metric.sample = row.id;
      insert_row(db.db, metric);
    }
    tasks.insert(db->value("SELECT run_task FROM samples WHERE id = ?", row.id));
  }
  for (const int64_t task : tasks) recount(db.db, task);
  transaction.commit();
}

void recount(Connection& db, int64_t run_task) {
  db.run(
      "UPDATE run_tasks SET (n_done, n_failed, n_truncated, n_cut) = (SELECT total(status = 'ok'), total(status = "
      "'failed'), "
      "total(truncated), total(coalesce(finish = 'length', 0)) FROM samples WHERE run_task = ?1) WHERE id = ?1",
      run_task);
}

void Store::add_event(std::optional<int64_t> run, const Event& event) {
  insert_event(impl_->writing().db, run, event);
}

void Store::add_tag(int64_t run, const std::string& tag) {
  impl_->writing()->run("INSERT OR IGNORE INTO run_tags(run, tag) VALUES(?,?)", run, tag);
}

void Store::remove_tag(int64_t run, const std::string& tag) {
  impl_->writing()->run("DELETE FROM run_tags WHERE run = ? AND tag = ?", run, tag);
}

void Store::set_name(int64_t run, const OptText& name) {
  impl_->writing()->run("UPDATE runs SET name = ? WHERE id = ?", name, run);
}

void Store::set_note(int64_t run, const OptText& note) {
  impl_->writing()->run("UPDATE runs SET note = ? WHERE id = ?", note, run);
}

void Store::describe_model(int64_t model, const OptText& series, OptInt train_tokens, OptInt train_step) {
  impl_->writing()->run(
      "UPDATE models SET series = coalesce(?2, series), train_tokens = coalesce(?3, train_tokens), train_step = "
      "coalesce(?4, train_step) WHERE id = ?1",
      model, series, train_tokens, train_step);
}

void Store::set_baseline(const std::string& name, std::optional<int64_t> run, OptText set_by) {
  auto db = impl_->writing();
  BaselineRow row;
  row.name = name;
  row.run = run;
  if (run) row.run_id_text = get_run(db.db, *run).run_id;
  row.set_at = utc_now();
  row.set_by = std::move(set_by);
  insert_row(db.db, row);
}

void Store::add_timings(std::span<const TimingRow> rows) {
  insert_all(impl_->writing().db, rows);
}

void Store::add_bench(std::span<const BenchRow> rows) {
  insert_all(impl_->writing().db, rows);
}

int64_t Store::add_gate(const GateRow& gate, std::span<const ComparisonRow> comparisons) {
  auto db = impl_->writing();
  Transaction transaction(db.db);
  GateRow row = gate;
  if (row.made_at.empty()) row.made_at = utc_now();
  const int64_t id = insert_row(db.db, row);
  for (ComparisonRow comparison : comparisons) {
    comparison.gate = id;
    if (comparison.made_at.empty()) comparison.made_at = row.made_at;
    insert_row(db.db, comparison);
  }
  transaction.commit();
  return id;
}

int64_t Store::add_artefact(const ArtefactRow& artefact) {
  ArtefactRow row = artefact;
  complete(row);
  auto db = impl_->writing();
  return insert_row(db.db, row);
}

int64_t Store::add_sparse(const SparseRow& sparse, std::span<const SparseLayerRow> layers) {
  auto db = impl_->writing();
  Transaction transaction(db.db);
  const int64_t id = put_sparse(db.db, sparse, layers);
  transaction.commit();
  return id;
}

int64_t Store::begin_search(const SearchRow& search) {
  SearchRow row = search;
  if (row.started_at.empty()) row.started_at = utc_now();
  auto db = impl_->writing();
  return insert_row(db.db, row);
}

void Store::put_search_point(const SearchPointRow& point) {
  auto db = impl_->writing();
  insert_row(db.db, point, "INSERT OR REPLACE");
}

void Store::put_key_tokens(const KeyTokensRow& row) {
  auto db = impl_->writing();
  insert_row(db.db, row, "INSERT OR REPLACE");
}

std::optional<KeyTokensRow> Store::key_tokens(const std::string& doc, const std::string& evaluator,
                                              const std::string& params) {
  auto db = impl_->reading();
  const auto rows = select_rows<KeyTokensRow>(
      db.db, "WHERE doc_sha256 = ? AND evaluator_sha256 = ? AND params_sha256 = ?", doc, evaluator, params);
  return rows.empty() ? std::nullopt : std::optional(rows.front());
}

}  // namespace hayfork::runs
