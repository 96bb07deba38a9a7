// Finding runs by what people type, and listing.
#include <algorithm>
#include <cctype>
#include <chrono>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/utf8.h"
#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

constexpr size_t kMaxReference = 200;

std::string shown(std::string_view reference) {
  return printable(reference.substr(0, 80));
}

[[noreturn]] void not_found(Connection& db, std::string_view reference, const std::string& why) {
  const auto near = query_rows<BaselineListRow>(
      db, "SELECT run_id, run_id, NULL, NULL, created_at, NULL FROM runs ORDER BY created_at DESC, id DESC LIMIT 5");
  std::string next = "hayfork list runs";
  if (!near.empty()) {
    next = "newest runs:";
    for (const auto& row : near) next += " " + row.name;
  }
  throw Error(ErrorCode::not_found, ErrorSubject::database, fmt::format("no run \"{}\"", shown(reference)),
              {.where = db.name(), .why = why, .next = next});
}

std::vector<RunRow> newest(Connection& db) {
  return select_rows<RunRow>(db, "ORDER BY created_at DESC, id DESC LIMIT 1");
}

std::vector<RunRow> by_tag(Connection& db, std::string_view tag) {
  return select_rows<RunRow>(
      db, "WHERE id IN (SELECT run FROM run_tags WHERE tag = ?) ORDER BY created_at DESC, id DESC LIMIT 1", tag);
}

std::vector<RunRow> by_baseline(Connection& db, std::string_view name) {
  return select_rows<RunRow>(db, "WHERE id = (SELECT run FROM baselines WHERE name = ? ORDER BY id DESC LIMIT 1)",
                             name);
}

// Why a baseline's name finds nothing.
std::string why_no_baseline(Connection& db, std::string_view name, const std::string& unknown) {
  const auto rows = select_rows<BaselineRow>(db, "WHERE name = ? ORDER BY id DESC LIMIT 1", name);
  if (rows.empty()) return unknown;
  if (!rows.front().run_id_text) return "the baseline was cleared";
  return fmt::format("the baseline's run {} is no longer in the database", shown(*rows.front().run_id_text));
}

RunRow find(Connection& db, std::string_view reference) {
  if (reference.empty() || reference.size() > kMaxReference)
    not_found(db, reference, "a reference has 1 to 200 characters");
  const auto first = [&](const std::vector<RunRow>& rows, const std::string& why) {
    if (rows.empty()) not_found(db, reference, why);
    return rows.front();
  };
  if (reference == "@last") return first(newest(db), "the database has no runs");
  if (reference.starts_with("@tag:")) return first(by_tag(db, reference.substr(5)), "no run has this tag");
  if (reference.starts_with("@baseline:"))
    return first(by_baseline(db, reference.substr(10)),
                 why_no_baseline(db, reference.substr(10), "no such baseline is set"));
  if (reference.starts_with("@")) {
    return first(by_baseline(db, reference.substr(1)),
                 why_no_baseline(db, reference.substr(1), "no such baseline; @last, @tag:x and @baseline:x are known"));
  }
  std::vector<RunRow> rows = select_rows<RunRow>(db, "WHERE run_id = ?1 OR uuid = ?1", reference);
  if (rows.empty())
    rows = select_rows<RunRow>(db, "WHERE name = ? ORDER BY created_at DESC, id DESC LIMIT 6", reference);
  if (rows.empty() && reference.size() >= 2) {
    rows = select_rows<RunRow>(
        db,
        "WHERE substr(run_id, 1, length(?1)) = ?1 OR (length(?1) >= 8 AND substr(uuid, 1, length(?1)) = ?1) "
        "ORDER BY created_at DESC, id DESC LIMIT 6",
        reference);
  }
  if (rows.empty()) not_found(db, reference, "no run has this id, name, uuid or beginning of an id");
  if (rows.size() == 1) return rows.front();
  std::string ids;
  for (const RunRow& row : rows) ids += (ids.empty() ? "" : ", ") + row.run_id;
  throw Error(ErrorCode::usage, ErrorSubject::database, fmt::format("several runs fit \"{}\"", shown(reference)),
              {.where = db.name(), .why = ids, .next = "give the id of one"});
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 6 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string utc_before(int64_t seconds) {
  const auto then = std::chrono::system_clock::now() - std::chrono::seconds(seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(then)));
}

bool is_date(std::string_view text) {
  static constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != 10 && text.size() != kForm.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    if (kForm[i] == 'd' ? !digit : text[i] != kForm[i]) return false;
  }
  return true;
}

}  // namespace

std::string parse_since(std::string_view text) {
  if (is_date(text)) return std::string(text);
  int64_t seconds = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'm':
        seconds = 60;
        break;
      case 'h':
        seconds = 3600;
        break;
      case 'd':
        seconds = 86400;
        break;
      case 'w':
        seconds = 7 * 86400;
        break;
      default:
        break;
    }
  }
  if (seconds == 0 || !is_number(text.substr(0, text.size() - 1))) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--since: cannot read \"{}\"", shown(text)),
                {.next = "write 30m, 12h, 7d, 2w, or a date: 2026-11-30"});
  }
  seconds *= std::stoll(std::string(text.substr(0, text.size() - 1)));
  return utc_before(seconds);
}

RunFilter parse_run_filter(std::span<const std::string> items) {
  RunFilter filter;
  for (const std::string& item : items) {
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (equals != std::string::npos && key == "arch")
      filter.arch = value;
    else if (equals != std::string::npos && key == "status")
      filter.status = value;
    else if (equals != std::string::npos && key == "tag")
      filter.tag = value;
    else if (equals != std::string::npos && key == "model")
      filter.model = value;
    else if (equals != std::string::npos && key == "task")
      filter.task = value;
    else if (equals != std::string::npos && key == "series")
      filter.series = value;
    else if (equals != std::string::npos && key == "dtype")
      filter.dtype = value;
    else if (equals != std::string::npos && key == "name")
      filter.name = value;
    else if (equals != std::string::npos && key == "since")
      filter.since = parse_since(value);
    else {
      throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("--filter: cannot read \"{}\"", shown(item)),
                  {.next = "write key=value; keys: arch, status, tag, model, task, series, dtype, name, since"});
    }
  }
  return filter;
}

RunRow Store::find_run(std::string_view reference) {
  return find(impl_->reading().db, reference);
}

RunSelection Store::select(std::string_view reference) {
  auto db = impl_->reading();
  size_t from = 0;  // the colon of @tag: and @baseline: belongs to the reference
  for (const std::string_view prefix : {"@tag:", "@baseline:"}) {
    if (reference.starts_with(prefix)) from = prefix.size();
  }
  const size_t colon = reference.find(':', from);
  if (colon == std::string_view::npos) return {find(db.db, reference), {}};
  return {find(db.db, reference.substr(0, colon)), std::string(reference.substr(colon + 1))};
}

std::vector<RunRow> Store::runs_of_plan(const std::string& plan_sha256) {
  return select_rows<RunRow>(impl_->reading().db, "WHERE plan_sha256 = ? ORDER BY created_at, id", plan_sha256);
}

std::string Store::shown_status(const RunRow& run) {
  return runs::shown_status(impl_->reading().db, run);
}

std::vector<RunListRow> Store::list_runs(const RunFilter& f) {
  auto db = impl_->reading();
  auto rows = query_rows<RunListRow>(
      db.db,
      "SELECT r.run_id, r.name, r.created_at, m.name, coalesce(m.arch_label, m.arch), m.train_tokens, sc.label, "
      "r.dtype, "
      "coalesce((SELECT group_concat(name, ',') FROM (SELECT t.name FROM run_tasks rt JOIN tasks t ON t.id = "
      "rt.task_id "
      "WHERE rt.run = r.id ORDER BY rt.id)), ''), r.status, "
      "coalesce((SELECT group_concat(tag, ',') FROM (SELECT tag FROM run_tags WHERE run = r.id ORDER BY tag)), ''), "
      "k.planned, k.done, k.failed, k.truncated, r.wall_s, r.note, r.id, r.uuid "
      "FROM runs r JOIN models m ON m.id = r.model_id LEFT JOIN sparse_configs sc ON sc.id = r.sparse_id "
      "LEFT JOIN (SELECT run, sum(n_planned) AS planned, sum(n_done) AS done, sum(n_failed) AS failed, "
      "sum(n_truncated) AS truncated FROM run_tasks GROUP BY run) k ON k.run = r.id "
      "WHERE (?1 IS NULL OR m.arch = ?1 OR m.arch_label = ?1) AND (?2 IS NULL OR m.name = ?2) "
      "AND (?3 IS NULL OR m.series = ?3) AND (?4 IS NULL OR r.dtype = ?4) AND (?5 IS NULL OR r.name = ?5) "
      "AND (?6 IS NULL OR r.created_at >= ?6) "
      "AND (?7 IS NULL OR EXISTS (SELECT 1 FROM run_tags g WHERE g.run = r.id AND g.tag = ?7)) "
      "AND (?8 IS NULL OR EXISTS (SELECT 1 FROM run_tasks rt JOIN tasks t ON t.id = rt.task_id WHERE rt.run = r.id "
      "AND (t.name = ?8 OR t.family = ?8))) "
      "ORDER BY r.created_at DESC, r.id DESC",
      f.arch, f.model, f.series, f.dtype, f.name, f.since, f.tag, f.task);
  for (RunListRow& row : rows) {
    if (row.status == "running") row.status = runs::shown_status(db.db, get_run(db.db, row.run));
  }
  if (f.status) std::erase_if(rows, [&](const RunListRow& row) { return row.status != *f.status; });
  if (f.limit > 0 && static_cast<int64_t>(rows.size()) > f.limit) rows.resize(static_cast<size_t>(f.limit));
  return rows;
}

std::vector<ModelListRow> Store::list_models(const RunFilter& f) {
  return query_rows<ModelListRow>(
      impl_->reading().db,
      "SELECT m.name, m.series, m.arch, m.arch_label, m.n_params, m.n_params_noemb, m.train_tokens, m.train_step, "
      "m.max_len, "
      "m.verified, (SELECT count(*) FROM runs WHERE model_id = m.id), "
      "(SELECT run_id FROM runs WHERE model_id = m.id ORDER BY created_at DESC, id DESC LIMIT 1), m.path, "
      "m.weights_sha256, "
      "m.id FROM models m WHERE (?1 IS NULL OR m.arch = ?1 OR m.arch_label = ?1) AND (?2 IS NULL OR m.name = ?2) "
      "AND (?3 IS NULL OR m.series = ?3) ORDER BY m.series, m.n_params, m.train_tokens, m.name, m.id",
      f.arch, f.model, f.series);
}

std::vector<TaskListRow> Store::list_tasks() {
  return query_rows<TaskListRow>(
      impl_->reading().db,
      "SELECT t.name, t.family, t.version, t.kind, t.protocol, t.primary_metric, t.higher_is_better, d.name, "
      "(SELECT count(DISTINCT run) FROM run_tasks WHERE task_id = t.id), t.config_sha256 "
      "FROM tasks t LEFT JOIN datasets d ON d.id = t.dataset_id ORDER BY t.name, t.id");
}

std::vector<DeviceListRow> Store::list_devices() {
  return query_rows<DeviceListRow>(impl_->reading().db,
                                   "SELECT h.hostname, a.device, h.cpu, h.gpus_json, h.driver, h.cuda, h.os, "
                                   "count(DISTINCT a.run), max(a.started_at) "
                                   "FROM hosts h LEFT JOIN run_attempts a ON a.host_id = h.id GROUP BY h.id, a.device "
                                   "ORDER BY h.hostname, a.device, h.id");
}

std::vector<BaselineListRow> Store::list_baselines() {
  return query_rows<BaselineListRow>(
      impl_->reading().db,
      "SELECT b.name, r.run_id, m.name, r.status, b.set_at, b.set_by FROM baselines b LEFT JOIN runs r ON r.id = b.run "
      "LEFT JOIN models m ON m.id = r.model_id WHERE b.id IN (SELECT max(id) FROM baselines GROUP BY name) ORDER BY "
      "b.name");
}

}  // namespace hayfork::runs
