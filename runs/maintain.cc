// check, vacuum, prune.
#include <fmt/format.h>

#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

constexpr size_t kMaxFaults = 100;
constexpr const char* kOrphanTexts =
    "FROM texts WHERE NOT EXISTS (SELECT 1 FROM samples WHERE response_sha256 = texts.sha256) "
    "AND sha256 NOT IN (SELECT prompt_text FROM samples WHERE prompt_text IS NOT NULL)";

void check_pages(Connection& db, CheckReport& report) {
  Statement s = db.statement(fmt::format("PRAGMA integrity_check({})", kMaxFaults));
  while (s.step()) {
    std::string line = s.get<std::string>();
    if (line != "ok") report.faults.push_back("integrity: " + std::move(line));
  }
}

void check_keys(Connection& db, CheckReport& report) {
  Statement s = db.statement("PRAGMA foreign_key_check");
  while (s.step() && report.faults.size() < kMaxFaults) {
    report.faults.push_back(fmt::format("foreign key: {} row {} points to a missing row of {}", s.get<std::string>(0),
                                        s.get<int64_t>(1), s.get<std::string>(2)));
  }
}

void check_counts(Connection& db, CheckReport& report) {
  Statement s = db.statement(
      "SELECT r.run_id, t.name, rt.n_done, rt.n_failed, total(x.status = 'ok'), total(x.status = 'failed'), "
      "count(x.id) "
      "FROM run_tasks rt JOIN runs r ON r.id = rt.run JOIN tasks t ON t.id = rt.task_id "
      "LEFT JOIN samples x ON x.run_task = rt.id WHERE t.kind <> 'group' GROUP BY rt.id");
  while (s.step() && report.faults.size() < kMaxFaults) {
    if (s.get<int64_t>(6) == 0) continue;  // pruned, or nothing stored: the counters say what there was
    if (s.get<int64_t>(2) == s.get<int64_t>(4) && s.get<int64_t>(3) == s.get<int64_t>(5)) continue;
    report.faults.push_back(fmt::format("counters: {} {} says {} done, {} failed; there are {} and {}",
                                        s.get<std::string>(0), s.get<std::string>(1), s.get<int64_t>(2),
                                        s.get<int64_t>(3), s.get<int64_t>(4), s.get<int64_t>(5)));
  }
}

void check_texts(Connection& db, CheckReport& report) {
  std::vector<Blob> keys;
  {
    Statement s = db.statement("SELECT sha256 FROM texts");
    while (s.step()) keys.push_back(s.get<Blob>());
  }
  for (const Blob& key : keys) {
    if (report.faults.size() >= kMaxFaults) return;
    try {
      get_text(db, key);
    } catch (const Error& error) {  // a damaged text is a finding; the check goes on
      if (error.code() != ErrorCode::corrupt) throw;
      report.faults.push_back(std::string("text: ") + error.what());
    }
  }
}

}  // namespace

int64_t drop_orphan_texts(Connection& db) {
  // Foreign keys off: samples.prompt_text has no index, so each deleted text would cost a scan of all samples. What is
  // deleted has just been found to be referred to by nothing, in the same transaction.
  db.exec("PRAGMA foreign_keys = OFF");
  int64_t n = 0;
  {
    Transaction transaction(db);
    db.run(std::string("DELETE ") + kOrphanTexts);
    n = db.changes();
    transaction.commit();
  }
  db.exec("PRAGMA foreign_keys = ON");
  return n;
}

CheckReport Store::check() {
  auto db = impl_->reading();
  CheckReport report;
  check_pages(db.db, report);
  if (report.faults.empty()) {  // queries on a broken tree would only repeat its faults
    check_keys(db.db, report);
    check_counts(db.db, report);
    check_texts(db.db, report);
    report.n_runs = db->value("SELECT count(*) FROM runs");
    report.n_samples = db->value("SELECT count(*) FROM samples");
    report.n_texts = db->value("SELECT count(*) FROM texts");
    report.n_orphan_texts = db->value(std::string("SELECT count(*) ") + kOrphanTexts);
  }
  report.n_bytes = db->value("PRAGMA page_count") * db->value("PRAGMA page_size");
  return report;
}

void Store::vacuum() {
  auto db = impl_->writing();
  drop_orphan_texts(db.db);
  db->forget_statements();
  db->exec("VACUUM");
}

PruneReport Store::prune(int64_t keep) {
  auto db = impl_->writing();
  Transaction transaction(db.db);
  PruneReport report;
  std::vector<int64_t> runs;
  {
    Statement s = db->statement(
        "SELECT id FROM runs r WHERE id NOT IN (SELECT run FROM run_tags) "
        "AND id NOT IN (SELECT run FROM baselines WHERE run IS NOT NULL "
        "AND id IN (SELECT max(id) FROM baselines GROUP BY name)) "
        "AND id NOT IN (SELECT id FROM runs ORDER BY created_at DESC, id DESC LIMIT ?1) "
        "AND EXISTS (SELECT 1 FROM samples s JOIN run_tasks rt ON rt.id = s.run_task WHERE rt.run = r.id)");
    s.bind_all(std::max<int64_t>(keep, 0));
    while (s.step()) runs.push_back(s.get<int64_t>());
  }
  for (const int64_t id : runs) {
    const RunRow run = get_run(db.db, id);
    if (runs::shown_status(db.db, run) == "running") continue;
    db->run("DELETE FROM samples WHERE run_task IN (SELECT id FROM run_tasks WHERE run = ?)", id);
    report.n_samples += db->changes();
    ++report.n_runs;
    insert_event(db.db, id, {Event::Level::info, "HAY-I002", "samples were deleted by db prune; metrics are kept", ""});
  }
  transaction.commit();
  report.n_texts = drop_orphan_texts(db.db);
  return report;
}

}  // namespace hayfork::runs
