// Reading runs and samples back, and the aggregations that reports draw.
#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

template <typename Row>
std::optional<Row> one(std::vector<Row> rows) {
  if (rows.empty()) return {};
  return std::move(rows.front());
}

void add_details(Connection& db, SampleRow& sample) {
  sample.metrics = select_rows<SampleMetricRow>(db, "WHERE sample = ? ORDER BY metric, filter", sample.id);
  sample.choices = select_rows<SampleChoiceRow>(db, "WHERE sample = ? ORDER BY choice", sample.id);
}

std::vector<RunTaskView> task_views(Connection& db, int64_t run) {
  std::vector<RunTaskView> views;
  for (const RunTaskRow& row : select_rows<RunTaskRow>(db, "WHERE run = ? ORDER BY id", run)) {
    RunTaskView view;
    view.row = row;
    if (auto task = one(select_rows<TaskRow>(db, "WHERE id = ?", row.task_id))) view.task = std::move(*task);
    view.metric_defs = select_rows<MetricDefRow>(db, "WHERE task_id = ? ORDER BY metric", row.task_id);
    view.metrics = select_rows<MetricRow>(db, "WHERE run_task = ? ORDER BY slice, metric, filter", row.id);
    views.push_back(std::move(view));
  }
  return views;
}

// The value of a sample to average: its score, or one of its metrics (the unfiltered one when there are several).
const char* value_sql(const std::string& metric) {
  return metric.empty() ? "s.score"
                        : "(SELECT value FROM sample_metrics WHERE sample = s.id AND metric = ?2 "
                          "ORDER BY filter <> 'none', filter LIMIT 1)";
}

}  // namespace

RunView Store::show_run(int64_t run) {
  auto db = impl_->reading();
  RunView view;
  view.run = get_run(db.db, run);
  view.status = runs::shown_status(db.db, view.run);
  if (auto model = one(select_rows<ModelRow>(db.db, "WHERE id = ?", view.run.model_id))) view.model = std::move(*model);
  view.layers = select_rows<ModelLayerRow>(db.db, "WHERE model_id = ? ORDER BY layer", view.run.model_id);
  view.sparse = one(select_rows<SparseRow>(db.db, "WHERE id = ?", view.run.sparse_id));
  view.sparse_layers = select_rows<SparseLayerRow>(db.db, "WHERE sparse_id = ? ORDER BY layer", view.run.sparse_id);
  view.host = one(select_rows<HostRow>(db.db, "WHERE id = ?", view.run.host_id));
  {
    Statement s = db->statement("SELECT tag FROM run_tags WHERE run = ? ORDER BY tag");
    s.bind_all(run);
    while (s.step()) view.tags.push_back(s.get<std::string>());
  }
  view.tasks = task_views(db.db, run);
  view.attempts = select_rows<AttemptRow>(db.db, "WHERE run = ? ORDER BY shard, attempt", run);
  view.events = select_rows<EventRow>(db.db, "WHERE run = ? ORDER BY id", run);
  return view;
}

std::vector<RunTaskView> Store::run_tasks(int64_t run) {
  return task_views(impl_->reading().db, run);
}

SampleView Store::show_sample(int64_t sample) {
  auto db = impl_->reading();
  auto row = one(select_rows<SampleRow>(db.db, "WHERE id = ?", sample));
  if (!row) {
    throw Error(ErrorCode::not_found, ErrorSubject::database, fmt::format("there is no sample {}", sample),
                {.where = db->name(), .next = "hayfork export samples RUN lists them"});
  }
  SampleView view;
  view.sample = std::move(*row);
  add_details(db.db, view.sample);
  view.sample.artefacts = select_rows<ArtefactRow>(db.db, "WHERE sample = ? ORDER BY id", sample);
  Statement s = db->statement(
      "SELECT r.run_id, t.name FROM run_tasks rt JOIN runs r ON r.id = rt.run JOIN tasks t ON t.id = rt.task_id "
      "WHERE rt.id = ?");
  if (s.bind_all(view.sample.run_task).step()) {
    view.run_id = s.get<std::string>(0);
    view.task = s.get<std::string>(1);
  }
  return view;
}

void Store::for_each_sample(int64_t run_task, const SampleQuery& query,
                            const std::function<void(const SampleRow&)>& body) {
  auto db = impl_->reading();
  Statement s = db->statement("SELECT " + column_list<SampleRow>() +
                              " FROM samples WHERE run_task = ?1 AND (?2 IS NULL OR status = ?2) AND (NOT ?3 OR "
                              "status <> 'ok' OR truncated) ORDER BY doc_id, repeat LIMIT ?4");
  s.bind_all(run_task, query.status, query.only_bad, query.limit > 0 ? query.limit : int64_t{-1});
  while (s.step()) {
    SampleRow row = read_row<SampleRow>(s, 0, query.texts);
    if (query.details) add_details(db.db, row);
    body(row);
  }
}

std::vector<GridCell> Store::grid(int64_t run_task, const std::string& metric) {
  auto db = impl_->reading();
  const std::string sql =
      std::string(
          "SELECT ctx_len, depth_pct, count(v) FILTER (WHERE status = 'ok'), avg(v) FILTER (WHERE status = 'ok'), "
          "total(status = 'failed'), total(truncated), avg(depth_real), avg(prompt_tokens) FROM (SELECT s.*, ") +
      value_sql(metric) +
      " AS v FROM samples s WHERE run_task = ?1) GROUP BY ctx_len, depth_pct ORDER BY ctx_len, depth_pct";
  if (metric.empty()) return query_rows<GridCell>(db.db, sql, run_task);
  return query_rows<GridCell>(db.db, sql, run_task, metric);
}

std::vector<LengthRow> Store::lengths(int64_t run_task, bool by_subtask) {
  auto db = impl_->reading();
  return query_rows<LengthRow>(
      db.db,
      "SELECT r.run_id, t.name, CASE WHEN ?2 THEN s.subtask END AS part, s.ctx_len, "
      "count(s.score) FILTER (WHERE s.status = 'ok'), avg(s.score) FILTER (WHERE s.status = 'ok'), "
      "avg(s.prompt_tokens), "
      "total(s.status = 'failed'), total(coalesce(s.finish = 'length', 0)), total(s.truncated) "
      "FROM samples s JOIN run_tasks rt ON rt.id = s.run_task JOIN runs r ON r.id = rt.run JOIN tasks t ON t.id = "
      "rt.task_id "
      "WHERE s.run_task = ?1 GROUP BY part, s.ctx_len ORDER BY part, s.ctx_len",
      run_task, by_subtask);
}

std::vector<PairRow> Store::pairs(int64_t base_run, int64_t cand_run, const OptText& task) {
  auto db = impl_->reading();
  // Rulings B5; the view v_pairs is the same join for people. CROSS JOIN fixes the order: runs first, index on
  // documents last.
  return query_rows<PairRow>(
      db.db,
      "SELECT t.name, b.doc_id, b.doc_sha256, b.repeat, b.subtask, b.ctx_len, b.depth_pct, b.cluster, b.score, "
      "c.score, "
      "CASE t.higher_is_better WHEN 1 THEN c.score - b.score ELSE b.score - c.score END, b.answer, c.answer, b.target, "
      "b.prompt_sha256 = c.prompt_sha256, b.id, c.id "
      "FROM run_tasks tb CROSS JOIN tasks t ON t.id = tb.task_id "
      "CROSS JOIN run_tasks tc ON tc.run = ?2 AND tc.num_fewshot = tb.num_fewshot AND tc.chat = tb.chat "
      "CROSS JOIN tasks t2 ON t2.id = tc.task_id AND t2.name = t.name AND t2.protocol = t.protocol "
      "CROSS JOIN samples b ON b.run_task = tb.id "
      "CROSS JOIN samples c ON c.run_task = tc.id AND c.doc_sha256 = b.doc_sha256 AND c.occurrence = b.occurrence "
      "AND c.repeat = b.repeat "
      "WHERE tb.run = ?1 AND (?3 IS NULL OR t.name = ?3) AND b.status = 'ok' AND c.status = 'ok' "
      "ORDER BY tb.id, b.doc_id, b.repeat",
      base_run, cand_run, task);
}

std::vector<ScoreRow> Store::scores(int64_t run_task, const std::string& metric) {
  auto db = impl_->reading();
  const std::string sql = std::string(
                              "SELECT id, doc_sha256, occurrence, repeat, prompt_sha256, cluster, subtask, ctx_len, "
                              "depth_pct, status = 'ok', truncated, CASE status WHEN 'ok' THEN ") +
                          value_sql(metric) + " END FROM samples s WHERE run_task = ?1";
  auto rows =
      metric.empty() ? query_rows<ScoreRow>(db.db, sql, run_task) : query_rows<ScoreRow>(db.db, sql, run_task, metric);
  std::sort(rows.begin(), rows.end(), [](const ScoreRow& a, const ScoreRow& b) {
    return std::tie(a.doc_sha256, a.occurrence, a.repeat, a.sample) <
           std::tie(b.doc_sha256, b.occurrence, b.repeat, b.sample);
  });
  return rows;
}

std::vector<BenchRow> Store::bench(int64_t run) {
  return select_rows<BenchRow>(impl_->reading().db, "WHERE run = ? ORDER BY id", run);
}

std::vector<SearchPointRow> Store::search_points(int64_t search) {
  return select_rows<SearchPointRow>(impl_->reading().db, "WHERE search_id = ? ORDER BY n", search);
}

}  // namespace hayfork::runs
