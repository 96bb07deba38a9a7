#include "runs/page_reader.h"

#include "runs/store_impl.h"

namespace hayfork::runs {

// Columns in the order of the queries below.
template <>
struct RowTable<PhaseRow> {
  static constexpr auto kFields = std::make_tuple(
      field("ctx_len", &PhaseRow::ctx_len), field("n", &PhaseRow::n), field("prefill_ms", &PhaseRow::prefill_ms),
      field("decode_ms", &PhaseRow::decode_ms), field("prompt_tokens", &PhaseRow::prompt_tokens),
      field("gen_tokens", &PhaseRow::gen_tokens), field("batch_size", &PhaseRow::batch_size));
};
template <>
struct RowTable<GateListRow> {
  static constexpr auto kFields =
      std::make_tuple(field("cand", &GateListRow::cand), field("base", &GateListRow::base),
                      field("baseline_name", &GateListRow::baseline_name), field("verdict", &GateListRow::verdict),
                      field("exit_code", &GateListRow::exit_code), field("made_at", &GateListRow::made_at),
                      field("n_rules", &GateListRow::n_rules), field("n_worse", &GateListRow::n_worse),
                      field("n_better", &GateListRow::n_better));
};
template <>
struct RowTable<TimelineRow> {
  static constexpr auto kFields = std::make_tuple(
      field("series", &TimelineRow::series), field("model", &TimelineRow::model), field("arch", &TimelineRow::arch),
      field("train_step", &TimelineRow::train_step), field("train_tokens", &TimelineRow::train_tokens),
      field("created_at", &TimelineRow::created_at), field("run_id", &TimelineRow::run_id),
      field("git_commit", &TimelineRow::git_commit), field("task", &TimelineRow::task),
      field("metric", &TimelineRow::metric), field("higher_is_better", &TimelineRow::higher_is_better),
      field("value", &TimelineRow::value), field("ci_low", &TimelineRow::ci_low),
      field("ci_high", &TimelineRow::ci_high), field("n", &TimelineRow::n), field("base_run", &TimelineRow::base_run),
      field("delta", &TimelineRow::delta), field("p_adj", &TimelineRow::p_adj), field("n_pairs", &TimelineRow::n_pairs),
      field("verdict", &TimelineRow::verdict), field("run", &TimelineRow::run));
};
template <>
struct RowTable<ScalingRow> {
  static constexpr auto kFields = std::make_tuple(
      field("task", &ScalingRow::task), field("task_id", &ScalingRow::task_id), field("series", &ScalingRow::series),
      field("arch", &ScalingRow::arch), field("arch_label", &ScalingRow::arch_label),
      field("model", &ScalingRow::model), field("n_params", &ScalingRow::n_params),
      field("train_tokens", &ScalingRow::train_tokens), field("value", &ScalingRow::value),
      field("ci_low", &ScalingRow::ci_low), field("ci_high", &ScalingRow::ci_high), field("n", &ScalingRow::n),
      field("run_id", &ScalingRow::run_id));
};
template <>
struct RowTable<KeyCount> {
  static constexpr auto kFields =
      std::make_tuple(field("n_documents", &KeyCount::n_documents), field("n_few", &KeyCount::n_few));
};
template <>
struct RowTable<SearchListRow> {
  static constexpr auto kFields =
      std::make_tuple(field("id", &SearchListRow::id), field("run_id", &SearchListRow::run_id),
                      field("model", &SearchListRow::model), field("algo", &SearchListRow::algo),
                      field("seed", &SearchListRow::seed), field("started_at", &SearchListRow::started_at),
                      field("n_points", &SearchListRow::n_points), field("n_front", &SearchListRow::n_front));
};

PageReader::PageReader(const std::filesystem::path& database)
    : db_(open_database(database, OpenMode::read_only, {}, {})) {}
PageReader::~PageReader() = default;

std::vector<PhaseRow> PageReader::phases(int64_t run) {
  return query_rows<PhaseRow>(
      *db_,
      "SELECT s.ctx_len, count(*), sum(s.t_prefill_ms), sum(s.t_decode_ms), sum(s.prompt_tokens), sum(s.gen_tokens), "
      "max(s.batch_size) FROM run_tasks rt JOIN samples s ON s.run_task = rt.id WHERE rt.run = ? GROUP BY s.ctx_len "
      "ORDER BY s.ctx_len",
      run);
}

std::vector<GateListRow> PageReader::gates(int64_t limit) {
  return query_rows<GateListRow>(
      *db_,
      "SELECT c.run_id, b.run_id, g.baseline_name, g.verdict, g.exit_code, g.made_at, k.n, k.worse, k.better "
      "FROM gates g JOIN runs c ON c.id = g.cand JOIN runs b ON b.id = g.base "
      "LEFT JOIN (SELECT gate, count(*) AS n, total(verdict = 'worse') AS worse, total(verdict = 'better') AS better "
      "FROM comparisons WHERE gate IS NOT NULL GROUP BY gate) k ON k.gate = g.id ORDER BY g.id DESC LIMIT ?",
      limit);
}

std::vector<ComparisonRow> PageReader::comparisons(int64_t cand) {
  return select_rows<ComparisonRow>(
      *db_, "WHERE gate = (SELECT max(id) FROM gates WHERE cand = ?) ORDER BY task, slice, metric", cand);
}

std::vector<TimelineRow> PageReader::timeline() {
  return query_rows<TimelineRow>(
      *db_,
      "SELECT m.series, m.name, m.arch, m.train_step, m.train_tokens, r.created_at, r.run_id, r.git_commit, t.name, "
      "x.metric, t.higher_is_better, x.value, x.ci_low, x.ci_high, x.n, b.run_id, c.delta, c.p_adj, c.n_pairs, "
      "c.verdict, r.id "
      "FROM metrics x JOIN run_tasks rt ON rt.id = x.run_task JOIN runs r ON r.id = rt.run "
      "JOIN models m ON m.id = r.model_id JOIN tasks t ON t.id = rt.task_id "
      "LEFT JOIN comparisons c ON c.id = (SELECT max(k.id) FROM comparisons k WHERE k.cand = r.id AND k.gate IS NOT "
      "NULL AND k.task = t.name AND k.metric = x.metric AND k.slice = x.slice) LEFT JOIN runs b ON b.id = c.base "
      "WHERE x.metric = t.primary_metric AND x.slice = '' AND x.filter = (SELECT filter FROM metrics y WHERE "
      "y.run_task = x.run_task AND y.slice = '' AND y.metric = x.metric ORDER BY filter <> 'none', filter LIMIT 1) "
      "ORDER BY coalesce(m.series, m.name), t.name, m.train_step, r.created_at, r.id");
}

std::vector<BaselineRow> PageReader::baseline_history() {
  return select_rows<BaselineRow>(*db_, "ORDER BY id");
}

std::vector<ScalingRow> PageReader::scaling() {
  return query_rows<ScalingRow>(
      *db_,
      "SELECT t.name, t.id, m.series, m.arch, m.arch_label, m.name, m.n_params_noemb, m.train_tokens, x.value, "
      "x.ci_low, x.ci_high, x.n, r.run_id FROM metrics x JOIN run_tasks rt ON rt.id = x.run_task JOIN tasks t ON t.id "
      "= rt.task_id JOIN runs r ON r.id = rt.run JOIN models m ON m.id = r.model_id WHERE x.slice = '' AND x.filter = "
      "'none' AND ((t.kind = 'longppl' AND x.metric = 'longppl') OR (t.name = 'corpus_loss' AND x.metric = "
      "'loss_token')) ORDER BY t.name DESC, t.id, m.arch, m.n_params_noemb, m.train_tokens, r.id");
}

KeyCount PageReader::key_counts(int64_t few) {
  return query_rows<KeyCount>(*db_, "SELECT count(*), total(n_key < ?) FROM key_tokens", few).at(0);
}

std::vector<KeyTokensRow> PageReader::key_sets(const std::string& doc_sha256) {
  return select_rows<KeyTokensRow>(*db_, "WHERE doc_sha256 = ? ORDER BY evaluator_sha256, params_sha256", doc_sha256);
}

std::vector<SearchListRow> PageReader::searches() {
  return query_rows<SearchListRow>(
      *db_,
      "SELECT s.id, r.run_id, m.name, s.algo, s.seed, s.started_at, count(p.n), "
      "total(p.on_front) FROM searches s JOIN models m ON m.id = s.model_id LEFT JOIN runs r ON r.id = s.run "
      "LEFT JOIN search_points p ON p.search_id = s.id GROUP BY s.id ORDER BY s.id DESC");
}

std::optional<SparseView> PageReader::sparse(int64_t id) {
  const auto rows = select_rows<SparseRow>(*db_, "WHERE id = ?", id);
  if (rows.empty()) return std::nullopt;
  return SparseView{rows.front(), select_rows<SparseLayerRow>(*db_, "WHERE sparse_id = ? ORDER BY layer", id)};
}

}  // namespace hayfork::runs
