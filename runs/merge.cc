// db merge: another file's runs, in one transaction. The other file is attached read-only; small rows go through their
// field tables with ids mapped, samples are copied inside SQLite.
#include <cmath>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "base/utf8.h"

#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

// Every row of a table of the attached file.
template <typename Row, typename... Args>
std::vector<Row> theirs(Connection& db, const std::string& tail, const Args&... args) {
  return query_rows<Row>(db, "SELECT " + column_list<Row>() + " FROM other." + RowTable<Row>::kName + " " + tail,
                         args...);
}

using IdMap = std::map<int64_t, int64_t>;

OptInt mapped(const IdMap& map, const OptInt& id) {
  if (!id) return {};
  const auto it = map.find(*id);
  return it == map.end() ? OptInt{} : OptInt(it->second);
}

// The columns of samples with some of them replaced by an expression.
std::string sample_columns(const std::map<std::string, std::string>& replaced) {
  std::string out;
  for_each_field<SampleRow>([&](const auto& f) {
    if (std::string_view(f.name) == "id") return;
    const auto it = replaced.find(f.name);
    out += (out.empty() ? "" : ", ") + (it == replaced.end() ? "o." + std::string(f.name) : it->second);
  });
  return out;
}

class Merger {
 public:
  Merger(Connection& db, std::string other) : db_(db), other_(std::move(other)) {}

  MergeReport merge() {
    check_attached(db_, other_);
    Transaction transaction(db_);
    db_.exec("CREATE TEMP TABLE sample_map(old INTEGER PRIMARY KEY, new INTEGER NOT NULL, added INTEGER NOT NULL)");
    db_.exec("INSERT OR IGNORE INTO main.texts SELECT * FROM other.texts");
    register_parts();
    for (const RunRow& run : theirs<RunRow>(db_, "ORDER BY id")) merge_run(run);
    link_cached();
    copy_gates();
    copy_baselines();
    db_.exec("INSERT OR IGNORE INTO main.key_tokens SELECT * FROM other.key_tokens");
    db_.exec("DROP TABLE temp.sample_map");
    transaction.commit();
    return report_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& why) const {
    throw Error(ErrorCode::usage, ErrorSubject::database, what,
                {.where = other_, .why = why, .next = "nothing was merged"});
  }

  void register_parts() {
    for (const ModelRow& row : theirs<ModelRow>(db_, "ORDER BY id")) {
      ModelRow copy = row;
      copy.parent_id = mapped(models_, row.parent_id);
      models_[row.id] = put_model(db_, copy, theirs<ModelLayerRow>(db_, "WHERE model_id = ?", row.id));
    }
    for (const SparseRow& row : theirs<SparseRow>(db_, "")) {
      sparse_[row.id] = put_sparse(db_, row, theirs<SparseLayerRow>(db_, "WHERE sparse_id = ?", row.id));
    }
    for (const HostRow& row : theirs<HostRow>(db_, "")) hosts_[row.id] = put_host(db_, row);
    for (const DatasetRow& row : theirs<DatasetRow>(db_, "")) datasets_[row.id] = put_dataset(db_, row);
    for (const TaskRow& row : theirs<TaskRow>(db_, "")) {
      TaskRow copy = row;
      copy.dataset_id = mapped(datasets_, row.dataset_id);
      tasks_[row.id] = put_task(db_, copy, theirs<MetricDefRow>(db_, "WHERE task_id = ?", row.id));
    }
  }

  // What a row of the other file became here.
  int64_t new_id(const IdMap& map, int64_t id, const char* what) const {
    if (const auto at = map.find(id); at != map.end()) return at->second;
    throw Error(ErrorCode::corrupt, ErrorSubject::database, "the other database is damaged",
                {.where = other_,
                 .why = fmt::format("a row points to {} {}, which is not there", what, id),
                 .next = "hayfork db check --db FILE; nothing was merged"});
  }

  // The run here that the other file's run is a part of, or nothing.
  std::optional<RunRow> partner(const RunRow& run) {
    auto rows = select_rows<RunRow>(db_, "WHERE uuid = ?", run.uuid);
    if (rows.empty() && run.n_shards > 1) {
      rows = select_rows<RunRow>(db_, "WHERE plan_sha256 = ? AND n_shards = ? ORDER BY id LIMIT 1", run.plan_sha256,
                                 run.n_shards);
    }
    if (rows.empty()) return {};
    return rows.front();
  }

  void merge_run(const RunRow& run) {
    const auto known = partner(run);
    const int64_t target = known ? known->id : add_run(run);
    runs_[run.id] = target;
    known ? ++report_.n_runs_joined : ++report_.n_runs_added;
    if (known && known->numerics_id != run.numerics_id) {
      insert_event(db_, target,
                   {Event::Level::warn, "HAY-W005",
                    fmt::format("mixed numerics: {} here, {} in {}", known->numerics_id.value_or("unknown"),
                                run.numerics_id.value_or("unknown"), other_),
                    ""});
    }
    const IdMap attempts = copy_attempts(run.id, target, known.has_value());
    const int64_t n_before = report_.n_samples_added;
    for (const RunTaskRow& task : theirs<RunTaskRow>(db_, "WHERE run = ? ORDER BY id", run.id)) {
      merge_task(run, task, target, attempts);
    }
    if (known && report_.n_samples_added > n_before) settle_joined(target);
    copy_side_rows(run, target, !known);
  }

  int64_t add_run(const RunRow& run) {
    RunRow copy = run;
    copy.model_id = new_id(models_, run.model_id, "model");
    copy.sparse_id = mapped(sparse_, run.sparse_id);
    copy.host_id = mapped(hosts_, run.host_id);
    if (db_.value("SELECT count(*) FROM main.runs WHERE run_id = ?", run.run_id) > 0) {
      copy.run_id = new_run_id(db_);
      report_.renamed.push_back(run.run_id + " -> " + copy.run_id);
    }
    return insert_row(db_, copy);
  }

  // Attempts of a shard are numbered on; one that is here already (same shard, start and process) is not doubled.
  IdMap copy_attempts(int64_t from, int64_t to, bool joined) {
    IdMap map;
    for (const AttemptRow& row : theirs<AttemptRow>(db_, "WHERE run = ? ORDER BY id", from)) {
      if (joined) {
        const auto same = db_.value<OptInt>(
            "SELECT id FROM main.run_attempts WHERE run = ? AND shard = ? AND started_at = ? AND pid IS ? AND boot_id "
            "IS ?",
            to, row.shard, row.started_at, row.pid, row.boot_id);
        if (same) {
          map[row.id] = *same;
          continue;
        }
      }
      AttemptRow copy = row;
      copy.run = to;
      copy.host_id = mapped(hosts_, row.host_id);
      copy.attempt = db_.value(
          "SELECT coalesce(max(attempt), 0) + 1 FROM main.run_attempts WHERE run = ? AND shard = ?", to, row.shard);
      map[row.id] = insert_row(db_, copy);
    }
    return map;
  }

  void merge_task(const RunRow& run, const RunTaskRow& task, int64_t target, const IdMap& attempts) {
    const int64_t task_id = new_id(tasks_, task.task_id, "task");
    const auto known = db_.value<OptInt>(
        "SELECT id FROM main.run_tasks WHERE run = ? AND task_id = ? AND num_fewshot = ? AND fewshot_seed = ? AND chat "
        "= ?",
        target, task_id, task.num_fewshot, task.fewshot_seed, task.chat);
    int64_t id = 0;
    if (known) {
      id = *known;
    } else {
      RunTaskRow copy = task;
      copy.run = target;
      copy.task_id = task_id;
      id = insert_row(db_, copy);
      for (MetricRow metric : theirs<MetricRow>(db_, "WHERE run_task = ?", task.id)) {
        metric.run_task = id;
        insert_row(db_, metric);
      }
    }
    run_tasks_[task.id] = id;
    const int64_t n_before = report_.n_samples_added;
    std::vector<int64_t> samples;
    {
      Statement s = db_.statement("SELECT id FROM other.samples WHERE run_task = ? ORDER BY id");
      s.bind_all(task.id);
      while (s.step()) samples.push_back(s.get<int64_t>());
    }
    for (const int64_t sample : samples) merge_sample(run, sample, id, attempts);
    if (known && report_.n_samples_added == n_before) refuse_other_metrics(run, task, id);
    if (!known || report_.n_samples_added == n_before) return;
    // Aggregates of a part say nothing of the whole: the caller folds them again.
    db_.run("DELETE FROM main.metrics WHERE run_task = ?", id);
    recount(db_, id);
  }

  // Nothing came of the other file's samples: where it holds as many, its aggregates are of the same ones.
  void refuse_other_metrics(const RunRow& run, const RunTaskRow& task, int64_t run_task) const {
    const auto n = [&](const char* from, int64_t id) {
      return db_.value(fmt::format("SELECT count(*) FROM {}.samples WHERE run_task = ? AND status = 'ok'", from), id);
    };
    if (n("main", run_task) != n("other", task.id)) return;
    Statement s = db_.statement(
        "SELECT o.slice, o.metric, m.value, o.value FROM other.metrics o JOIN main.metrics m ON m.run_task = ?1 AND "
        "m.slice = o.slice AND m.metric = o.metric AND m.filter = o.filter WHERE o.run_task = ?2 AND (m.n <> o.n OR "
        "abs(m.value - o.value) > 1e-9 * max(1, abs(m.value))) LIMIT 1");
    s.bind_all(run_task, task.id);
    if (!s.step()) return;
    refuse(fmt::format("the two databases disagree about a figure of run {}", run.run_id),
           fmt::format("{}{}: {:.6g} here, {:.6g} there", printable(s.get<std::string>(1).substr(0, 60)),
                       s.get<std::string>(0).empty() ? "" : " at " + printable(s.get<std::string>(0).substr(0, 60)),
                       s.get<OptReal>(2).value_or(NAN), s.get<OptReal>(3).value_or(NAN)));
  }

  void merge_sample(const RunRow& run, int64_t sample, int64_t run_task, const IdMap& attempts) {
    OptInt here;
    std::string status;
    std::string doc;
    bool here_failed = false;
    {
      Statement s = db_.statement(
          "SELECT m.id, m.status = 'failed', o.status, o.doc_id FROM other.samples o LEFT JOIN main.samples m ON "
          "m.run_task = ?2 AND m.doc_id = o.doc_id AND m.repeat = o.repeat WHERE o.id = ?1");
      if (!s.bind_all(sample, run_task).step()) return;
      here = s.get<OptInt>(0);
      here_failed = s.get<bool>(1);
      status = s.get<std::string>(2);
      doc = s.get<std::string>(3);
    }
    if (here && here_failed && status != "failed") {  // the answer that was reached counts
      db_.run("DELETE FROM main.samples WHERE id = ?", *here);
      here.reset();
    }
    if (here) {
      const bool failed = here_failed || status == "failed";
      if (!failed && sample_sha256(db_, "main", *here) != sample_sha256(db_, "other", sample)) {
        refuse(fmt::format("the two databases disagree about a sample of run {}", run.run_id),
               fmt::format("document {}: sample {} here, {} there", printable(doc.substr(0, 80)), *here, sample));
      }
      ++report_.n_samples_same;
      db_.run("INSERT INTO temp.sample_map VALUES(?,?,0)", sample, *here);
      return;
    }
    add_sample(sample, run_task, attempts);
  }

  void add_sample(int64_t sample, int64_t run_task, const IdMap& attempts) {
    static const std::string sql = "INSERT INTO main.samples(" + column_list<SampleRow>("", false) + ") SELECT " +
                                   sample_columns({{"run_task", "?2"}, {"attempt", "?3"}, {"cached_from", "NULL"}}) +
                                   " FROM other.samples o WHERE o.id = ?1";
    const auto attempt = db_.value<OptInt>("SELECT attempt FROM other.samples WHERE id = ?", sample);
    db_.run(sql, sample, run_task, mapped(attempts, attempt));
    const int64_t id = db_.last_id();
    db_.run(
        "INSERT INTO main.sample_metrics SELECT ?2, metric, filter, value, weight FROM other.sample_metrics WHERE "
        "sample = ?1",
        sample, id);
    for (SampleChoiceRow choice : theirs<SampleChoiceRow>(db_, "WHERE sample = ?", sample)) {
      choice.sample = id;
      insert_row(db_, choice);
    }
    for (ArtefactRow artefact : theirs<ArtefactRow>(db_, "WHERE sample = ?", sample)) {
      artefact.sample = id;
      artefact.run.reset();
      insert_row(db_, artefact);
    }
    db_.run("INSERT INTO temp.sample_map VALUES(?,?,1)", sample, id);
    ++report_.n_samples_added;
  }

  // A run put together from parts is done when nothing planned is missing.
  void settle_joined(int64_t run) {
    const bool complete = db_.value(
                              "SELECT count(*) FROM run_tasks rt JOIN tasks t ON t.id = rt.task_id WHERE rt.run = ? "
                              "AND t.kind <> 'group' "
                              "AND rt.n_done < rt.n_planned",
                              run) == 0;
    db_.run("UPDATE main.runs SET status = ? WHERE id = ? AND status <> 'imported'", complete ? "done" : "partial",
            run);
    db_.run(
        "UPDATE main.run_tasks SET status = CASE WHEN n_done >= n_planned THEN 'done' ELSE 'partial' END WHERE run = ?",
        run);
    report_.refold.push_back(run);
  }

  void copy_side_rows(const RunRow& run, int64_t target, bool added) {
    db_.run("INSERT OR IGNORE INTO main.run_tags SELECT ?2, tag FROM other.run_tags WHERE run = ?1", run.id, target);
    for (EventRow event : theirs<EventRow>(db_, "WHERE run = ? ORDER BY id", run.id)) {
      const int64_t same =
          db_.value("SELECT count(*) FROM main.events WHERE run = ? AND at = ? AND code = ? AND message = ?", target,
                    event.at, event.code, event.message);
      event.run = target;
      if (same == 0) insert_row(db_, event);
    }
    if (!added) return;
    for (TimingRow timing : theirs<TimingRow>(db_, "WHERE run = ?", run.id)) {
      timing.run = target;
      timing.run_task = mapped(run_tasks_, timing.run_task);
      insert_row(db_, timing);
    }
    for (BenchRow bench : theirs<BenchRow>(db_, "WHERE run = ?", run.id)) {
      bench.run = target;
      bench.model_id = mapped(models_, bench.model_id);
      bench.sparse_id = mapped(sparse_, bench.sparse_id);
      insert_row(db_, bench);
    }
    for (ArtefactRow artefact : theirs<ArtefactRow>(db_, "WHERE run = ?", run.id)) {
      artefact.run = target;
      artefact.sample.reset();
      insert_row(db_, artefact);
    }
    copy_searches(run.id, target);
  }

  void copy_searches(int64_t run, int64_t target) {
    for (SearchRow search : theirs<SearchRow>(db_, "WHERE run = ?", run)) {
      const int64_t old = search.id;
      search.run = target;
      search.model_id = new_id(models_, search.model_id, "model");
      const int64_t id = insert_row(db_, search);
      for (SearchPointRow point : theirs<SearchPointRow>(db_, "WHERE search_id = ?", old)) {
        point.search_id = id;
        point.sparse_id = new_id(sparse_, point.sparse_id, "sparse configuration");
        insert_row(db_, point);
      }
    }
  }

  void link_cached() {
    db_.exec(
        "UPDATE main.samples SET cached_from = (SELECT b.new FROM temp.sample_map a JOIN other.samples o ON o.id = "
        "a.old JOIN "
        "temp.sample_map b ON b.old = o.cached_from WHERE a.new = samples.id) WHERE id IN (SELECT m.new FROM "
        "temp.sample_map m "
        "JOIN other.samples o ON o.id = m.old WHERE m.added AND o.cached_from IS NOT NULL)");
  }

  void copy_gates() {
    for (const GateRow& gate : theirs<GateRow>(db_, "ORDER BY id")) {
      GateRow copy = gate;
      copy.cand = new_id(runs_, gate.cand, "run");
      copy.base = new_id(runs_, gate.base, "run");
      if (db_.value("SELECT count(*) FROM main.gates WHERE cand = ? AND base = ? AND policy_sha256 = ? AND made_at = ?",
                    copy.cand, copy.base, copy.policy_sha256, copy.made_at) > 0) {
        continue;
      }
      const int64_t id = insert_row(db_, copy);
      for (ComparisonRow comparison : theirs<ComparisonRow>(db_, "WHERE gate = ? ORDER BY id", gate.id)) {
        comparison.gate = id;
        comparison.base = new_id(runs_, comparison.base, "run");
        comparison.cand = new_id(runs_, comparison.cand, "run");
        insert_row(db_, comparison);
      }
    }
  }

  // Names that are set here stay as they are.
  void copy_baselines() {
    for (const BaselineRow& row :
         theirs<BaselineRow>(db_, "WHERE name NOT IN (SELECT name FROM main.baselines) ORDER BY id")) {
      BaselineRow copy = row;
      copy.run = mapped(runs_, row.run);
      if (copy.run) copy.run_id_text = get_run(db_, *copy.run).run_id;
      insert_row(db_, copy);
    }
  }

  Connection& db_;
  std::string other_;
  MergeReport report_;
  IdMap models_, sparse_, hosts_, datasets_, tasks_, runs_, run_tasks_;
};

// Keeps the other file attached for as long as it lives.
class Attached {
 public:
  Attached(Connection& db, const std::string& uri) : db_(db) {
    db_.forget_statements();
    db_.run("ATTACH ? AS other", uri);
  }
  ~Attached() {
    db_.forget_statements();
    sqlite3_exec(db_.handle(), "DETACH other", nullptr, nullptr, nullptr);
  }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

 private:
  Connection& db_;
};

}  // namespace

MergeReport Store::merge(const std::filesystem::path& other) {
  open_database(other, OpenMode::read_only, {}, impl_->options);  // its own errors come first, and name it
  auto db = impl_->writing();
  std::error_code error;
  if (std::filesystem::equivalent(other, impl_->path, error)) {
    throw Error(ErrorCode::usage, ErrorSubject::database, "a database cannot be merged into itself",
                {.where = other.string()});
  }
  const Attached attached(db.db, read_uri(other));
  return Merger(db.db, other.string()).merge();
}

}  // namespace hayfork::runs
