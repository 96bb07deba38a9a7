// The inside of Store, shared by the sources that implement it. For runs/ alone.
#pragma once

#include <memory>
#include <mutex>

#include "runs/schema.h"
#include "runs/store.h"
#include "runs/writer.h"

namespace hayfork::runs {

// Opens the file as Store::open says, up to and including the journal and the schema.
std::unique_ptr<Connection> open_database(const std::filesystem::path& path, OpenMode mode, const EventSink& events,
                                          const StoreOptions& options);
// The file for SQLite to read only. A WAL database in a folder that cannot be written has no place for its shared
// memory; with no -wal beside it nothing is missing from the file, and it may be read as it stands.
std::string read_uri(const std::filesystem::path& path);
// True where SQLite's WAL cannot be trusted: its shared-memory index needs one machine and coherent mmap.
bool is_network_file_system(int64_t magic);

class Store::Impl {
 public:
  Impl(std::filesystem::path file, OpenMode mode, EventSink sink, StoreOptions store_options)
      : path(std::move(file)),
        read_only(mode == OpenMode::read_only),
        events(std::move(sink)),
        options(std::move(store_options)),
        db(open_database(path, mode, events, options)),
        writer(std::make_unique<Writer>(*db, db_mutex, options)) {}

  // The connection, locked, with every queued sample in it.
  struct Session {  // a temporary one locks for the whole full expression
    std::unique_lock<std::mutex> lock;
    Connection& db;
    Connection* operator->() const { return &db; }
  };
  Session reading();
  Session writing();  // Throws: what the writer met; resource when the store is read-only

  const std::filesystem::path path;
  const bool read_only;
  const EventSink events;
  const StoreOptions options;
  std::mutex db_mutex;
  std::unique_ptr<Connection> db;  // null once closed
  std::unique_ptr<Writer> writer;
};

// ---- Shared by the sources ----
RunRow get_run(Connection& db, int64_t run);  // Throws: not_found
std::string shown_status(Connection& db, const RunRow& run);
RunHandle handle_of(Connection& db, const RunRow& run);
void insert_event(Connection& db, std::optional<int64_t> run, const Event& event);
// Registering what a run refers to; each returns the row's id, the old one when it is known already.
int64_t put_model(Connection& db, ModelRow model, std::span<const ModelLayerRow> layers);
int64_t put_sparse(Connection& db, SparseRow sparse, std::span<const SparseLayerRow> layers);
int64_t put_host(Connection& db, const HostRow& host);
int64_t put_dataset(Connection& db, const DatasetRow& dataset);
int64_t put_task(Connection& db, TaskRow task, std::span<const MetricDefRow> metric_defs);
std::string new_run_id(Connection& db);
// Sets n_done, n_failed, n_truncated and n_cut of a task from its samples.
void recount(Connection& db, int64_t run_task);
// SHA-256 of what must be equal of a sample; `schema` main or an attached one.
std::string sample_sha256(Connection& db, const std::string& schema, int64_t sample);
int64_t drop_orphan_texts(Connection& db);             // Requires: no transaction; makes its own. Returns how many
std::string replace_invalid(const std::string& text);  // valid UTF-8, for JSON

}  // namespace hayfork::runs
