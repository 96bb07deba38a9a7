// What must be equal between two runs of one plan, as a digest. In: the plan, tasks, samples in the order
// of their documents with choices and metrics, aggregates. Out: times, row ids, batch, reuse, host, attempts, paths,
// the words of an error. Each sample's canonical JSON is hashed, then the canonical JSON of the whole with these hashes
// in it.
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "runs/store_impl.h"

namespace hayfork::runs {
namespace {

using nlohmann::json;

// SampleRow's columns that are the sample; the prompt's and response's texts stand as their digests.
constexpr const char* kSampleColumns =
    "doc_id, doc_sha256, repeat, subtask, ctx_len, depth_pct, depth_real, cluster, seed, occurrence, prompt_sha256, "
    "ids_sha256, prompt_tokens, kept_tokens, needle_tok, needle_tokens, needle_distance, ctx_nll, ctx_tokens, "
    "gen_tokens, "
    "status, finish, stop, max_new_tokens, response_ids, truncated, response_sha256, answer, target, score";
constexpr const char* kMetricColumns = "metric, filter, value, weight";
constexpr const char* kChoiceColumns =
    "choice, logprob, n_tokens, n_chars, n_bytes, uncond_logprob, ctx_nll, ctx_tokens, ids_sha256, greedy, gold";
constexpr const char* kAggregateColumns = "slice, metric, filter, value, n, stderr, ci_low, ci_high, ci_method";

std::string hex_of(const std::string& bytes) {
  return hex({reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()});
}

// JSON has no bytes and no infinities; each gets a form that no other value has.
json value_of(sqlite3_stmt* statement, int column) {
  const auto bytes = [&] {
    const void* data = sqlite3_column_blob(statement, column);
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
    return size == 0 ? std::string() : std::string(static_cast<const char*>(data), size);
  };
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return sqlite3_column_int64(statement, column);
    case SQLITE_FLOAT: {
      const double value = sqlite3_column_double(statement, column);
      if (std::isfinite(value)) return value;
      return json{{"float", value > 0 ? "inf" : "-inf"}};
    }
    case SQLITE_TEXT: {
      std::string text = bytes();
      if (find_invalid_utf8(text)) return json{{"bytes", hex_of(text)}};
      return text;
    }
    case SQLITE_BLOB:
      return json{{"blob", hex_of(bytes())}};
    default:
      return nullptr;
  }
}

// Every row as an array of its columns.
json rows_of(Connection& db, const std::string& sql, int64_t key) {
  Statement s = db.statement(sql);
  s.bind_all(key);
  json rows = json::array();
  while (s.step()) {
    json row = json::array();
    for (int c = 0; c < sqlite3_column_count(s.raw()); ++c) row.push_back(value_of(s.raw(), c));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string select_sql(const char* columns, const std::string& from, const std::string& tail) {
  return std::string("SELECT ") + columns + " FROM " + from + " WHERE " + tail;
}

}  // namespace

std::string sample_sha256(Connection& db, const std::string& schema, int64_t sample) {
  const std::string in = schema + ".";
  const json value = {
      {"sample", rows_of(db, select_sql(kSampleColumns, in + "samples", "id = ?"), sample)},
      {"metrics",
       rows_of(db, select_sql(kMetricColumns, in + "sample_metrics", "sample = ? ORDER BY metric, filter"), sample)},
      {"choices",
       rows_of(db, select_sql(kChoiceColumns, in + "sample_choices", "sample = ? ORDER BY choice"), sample)}};
  return sha256_hex(canonical_json(value));
}

namespace {

// One state of the file for many statements, which then take its lock once and not each of them.
class Snapshot {
 public:
  explicit Snapshot(Connection& db) : db_(db) { db_.exec("BEGIN"); }
  ~Snapshot() { sqlite3_exec(db_.handle(), "ROLLBACK", nullptr, nullptr, nullptr); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  Connection& db_;
};

}  // namespace

RunDigest Store::digest(int64_t run, bool samples) {
  auto db = impl_->reading();
  const Snapshot snapshot(db.db);
  RunDigest digest;
  json whole = {{"schema", "hayfork/digest/1"}, {"plan", get_run(db.db, run).plan_sha256}, {"tasks", json::array()}};
  struct Task {
    int64_t run_task;
    std::string name;
    json facts;
  };
  std::vector<Task> tasks;
  {
    // By name, so that files merged from shards agree whatever order their rows were made in.
    Statement s = db->statement(
        "SELECT rt.id, t.name, t.config_sha256, t.protocol, rt.num_fewshot, rt.fewshot_seed, rt.chat FROM run_tasks rt "
        "JOIN tasks t ON t.id = rt.task_id WHERE rt.run = ? "
        "ORDER BY t.name, t.config_sha256, rt.num_fewshot, rt.fewshot_seed, rt.chat");
    s.bind_all(run);
    while (s.step()) {
      tasks.push_back({s.get<int64_t>(0), s.get<std::string>(1),
                       json::array({replace_invalid(s.get<std::string>(1)), s.get<std::string>(2),
                                    s.get<std::string>(3), s.get<int64_t>(4), s.get<int64_t>(5), s.get<int64_t>(6)})});
    }
  }
  for (const Task& task : tasks) {
    json hashes = json::array();
    std::vector<SampleDigest> ids;
    std::vector<int64_t> keys;
    {
      Statement s = db->statement("SELECT id, doc_id, repeat FROM samples WHERE run_task = ? ORDER BY doc_id, repeat");
      s.bind_all(task.run_task);
      while (s.step()) {
        keys.push_back(s.get<int64_t>(0));
        if (samples) ids.push_back({task.name, s.get<std::string>(1), s.get<int64_t>(2), ""});
      }
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      std::string sha = sample_sha256(db.db, "main", keys[i]);
      if (samples) ids[i].sha256 = sha;
      hashes.push_back(std::move(sha));
    }
    digest.n_samples += static_cast<int64_t>(keys.size());
    digest.samples.insert(digest.samples.end(), std::make_move_iterator(ids.begin()),
                          std::make_move_iterator(ids.end()));
    whole["tasks"].push_back(
        {{"task", task.facts},
         {"samples", std::move(hashes)},
         {"metrics",
          rows_of(db.db, select_sql(kAggregateColumns, "metrics", "run_task = ? ORDER BY slice, metric, filter"),
                  task.run_task)}});
  }
  digest.sha256 = sha256_hex(canonical_json(whole));
  return digest;
}

}  // namespace hayfork::runs
