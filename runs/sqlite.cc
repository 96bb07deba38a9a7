#include "runs/sqlite.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace hayfork::runs {

bool is_shared_memory_fault(int code) {
  return code == SQLITE_IOERR_SHMOPEN || code == SQLITE_IOERR_SHMSIZE || code == SQLITE_IOERR_SHMMAP ||
         code == SQLITE_IOERR_SHMLOCK;
}

Error sqlite_error(int code, const std::string& message, const std::string& file, const std::string& doing,
                   int system_errno) {
  const int primary = code & 0xFF;
  const auto make = [&](ErrorCode kind, ErrorSubject subject, const std::string& what, const std::string& next) {
    const std::string os = system_errno != 0 ? fmt::format(" ({})", std::strerror(system_errno)) : "";
    return Error(kind, subject, what,
                 {.where = file, .why = fmt::format("{}: {}{}", doing, message, os), .next = next});
  };
  const bool no_space = system_errno == ENOSPC || system_errno == EDQUOT;
  if (primary == SQLITE_FULL || no_space) {
    return make(ErrorCode::resource, ErrorSubject::disk, "no space left for the results database",
                "free space or use another --db, then hayfork resume: what was committed is kept");
  }
  switch (primary) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return make(ErrorCode::resource, ErrorSubject::database, "the results database is locked by another process",
                  "wait for that process, or use another --db");
    case SQLITE_READONLY:
      return make(ErrorCode::resource, ErrorSubject::database, "the results database cannot be written",
                  "check the permissions of the file and its folder, or use another --db");
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_CANTOPEN:
      return make(ErrorCode::not_found, ErrorSubject::database, "the results database cannot be opened",
                  "check that the folder exists and may be written, or use another --db");
    case SQLITE_NOTADB:
      return make(ErrorCode::corrupt, ErrorSubject::database, "this file is no Hayfork database",
                  "give another file with --db; this one was not changed");
    case SQLITE_CORRUPT:
      return make(ErrorCode::corrupt, ErrorSubject::database, "the results database is damaged",
                  "restore a copy, or try sqlite3 FILE .recover");
    case SQLITE_IOERR:
      if (is_shared_memory_fault(code)) {
        return make(ErrorCode::resource, ErrorSubject::disk, "the file system has no memory for processes to share",
                    "copy the database to a local disk");
      }
      return make(ErrorCode::resource, ErrorSubject::disk, "the disk failed under the results database",
                  "check the disk, then hayfork resume");
    case SQLITE_NOMEM:
      return make(ErrorCode::resource, ErrorSubject::memory, "out of memory in the results database", "");
    case SQLITE_TOOBIG:
      return make(ErrorCode::resource, ErrorSubject::database, "a value is too large for the results database", "");
    case SQLITE_CONSTRAINT:
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
    case SQLITE_MISMATCH:
      return make(ErrorCode::internal, ErrorSubject::database, "a row does not fit the results database", "");
    default:  // SQLITE_ERROR: our statements are right, so the file's tables are not those of its version
      return make(ErrorCode::corrupt, ErrorSubject::database,
                  "the results database does not answer as its version should", "hayfork db check, or restore a copy");
  }
}

// ---- Statement -----------------------------------------------------------------------------------------------------

Statement::~Statement() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Statement::bind(int index, int64_t value) {
  const int rc = sqlite3_bind_int64(statement_, index, value);
  if (rc != SQLITE_OK) connection_.fail(rc, "binding a value");
}

void Statement::bind(int index, double value) {
  if (std::isnan(value)) return;  // SQLite has no NaN: unknown
  const int rc = sqlite3_bind_double(statement_, index, value);
  if (rc != SQLITE_OK) connection_.fail(rc, "binding a value");
}

void Statement::bind(int index, std::string_view value) {
  const char* data = value.data() == nullptr ? "" : value.data();  // a null pointer would bind NULL
  const int rc = sqlite3_bind_text64(statement_, index, data, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (rc != SQLITE_OK) connection_.fail(rc, "binding a text");
}

void Statement::bind(int index, const Blob& value) {
  const int rc = sqlite3_bind_blob64(statement_, index, value.bytes.data(), value.bytes.size(), SQLITE_TRANSIENT);
  if (rc != SQLITE_OK) connection_.fail(rc, "binding bytes");
}

void Statement::bind(int index, const StoredText& value) {
  bind(index, put_text(connection_, value.text));
}

bool Statement::step() {
  const int rc = sqlite3_step(statement_);
  if (rc == SQLITE_ROW) return true;
  if (rc == SQLITE_DONE) return false;
  const std::string sql = sqlite3_sql(statement_);
  connection_.fail(rc, sql.substr(0, 60) + (sql.size() > 60 ? "…" : ""));
}

void Statement::run() {
  while (step()) {
  }
}

void Statement::reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

void Statement::read(int column, std::string& out) const {
  const void* data = sqlite3_column_blob(statement_, column);  // as stored: text may hold NUL and broken UTF-8
  const int size = sqlite3_column_bytes(statement_, column);
  if (size > 0)
    out.assign(static_cast<const char*>(data), static_cast<size_t>(size));
  else
    out.clear();
}

void Statement::read(int column, StoredText& out) const {
  out.text = get_text(connection_, get<Blob>(column));
}

// ---- Connection ----------------------------------------------------------------------------------------------------

Connection::Connection(const std::string& uri, std::string name, int flags) : name_(std::move(name)) {
  const int rc = sqlite3_open_v2(uri.c_str(), &handle_, flags | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  if (rc != SQLITE_OK) {
    const std::string message = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(rc);
    const int system_errno = handle_ != nullptr ? sqlite3_system_errno(handle_) : 0;
    sqlite3_close(handle_);
    throw sqlite_error(rc, message, name_, "opening", system_errno);
  }
  sqlite3_extended_result_codes(handle_, 1);
  // The file may come from anyone: its schema may not call functions with side effects, and nothing may write to
  // SQLite's own tables.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
}

Connection::~Connection() {
  forget_statements();
  sqlite3_close_v2(handle_);
}

void Connection::forget_statements() {
  for (const auto& [sql, statement] : prepared_) sqlite3_finalize(statement);
  prepared_.clear();
}

Statement Connection::statement(const std::string& sql) {
  sqlite3_stmt*& prepared = prepared_[sql];
  if (prepared == nullptr) {
    const int rc = sqlite3_prepare_v3(handle_, sql.c_str(), static_cast<int>(sql.size()) + 1, SQLITE_PREPARE_PERSISTENT,
                                      &prepared, nullptr);
    if (rc != SQLITE_OK) {
      prepared_.erase(sql);
      fail(rc, sql.substr(0, 60));
    }
  }
  HAY_CHECK(sqlite3_stmt_busy(prepared) == 0, sql);
  return Statement(*this, prepared);
}

void Connection::exec(const std::string& sql) {
  const int rc = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) fail(rc, sql.substr(0, 60));
}

void Connection::fail(int code, const std::string& doing) const {
  const int primary = code & 0xFF;
  const bool disk = primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN || primary == SQLITE_FULL;
  throw sqlite_error(code, sqlite3_errmsg(handle_), name_, doing, disk ? sqlite3_system_errno(handle_) : 0);
}

Transaction::Transaction(Connection& connection) : connection_(connection) {
  connection_.exec("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
  if (connection_.in_transaction()) sqlite3_exec(connection_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

void Transaction::commit() {
  connection_.exec("COMMIT");
}

}  // namespace hayfork::runs
