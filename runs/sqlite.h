// SQLite behind two small classes, for runs/ alone: a connection that turns every failure into an Error naming the
// file, and statements that bind and read typed values. Rows go in and out through their field tables (runs/fields.h).
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "runs/fields.h"

namespace hayfork::runs {

class Connection;

// A prepared statement in use: reset and unbound when it goes out of scope, so that no read lock outlives it.
class Statement {
 public:
  Statement(Connection& connection, sqlite3_stmt* statement) : connection_(connection), statement_(statement) {}
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int index, int64_t value);
  void bind(int index, int value) { bind(index, static_cast<int64_t>(value)); }
  void bind(int index, bool value) { bind(index, static_cast<int64_t>(value)); }
  void bind(int index, double value);  // NaN becomes NULL
  void bind(int index, std::string_view value);
  void bind(int index, const std::string& value) { bind(index, std::string_view(value)); }
  void bind(int index, const char* value) { bind(index, std::string_view(value)); }
  void bind(int index, const Blob& value);
  void bind(int index, const StoredText& value);  // stores the text and binds its digest
  template <typename T>
  void bind(int index, const std::optional<T>& value) {
    if (value) bind(index, *value);
  }
  template <typename... Args>
  Statement& bind_all(const Args&... args) {
    int index = 0;
    (bind(++index, args), ...);
    return *this;
  }

  bool step();  // true: a row is there
  void run();   // steps to the end
  void reset();
  sqlite3_stmt* raw() const { return statement_; }

  bool is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  void read(int column, int64_t& out) const { out = sqlite3_column_int64(statement_, column); }
  void read(int column, bool& out) const { out = sqlite3_column_int64(statement_, column) != 0; }
  void read(int column, double& out) const { out = sqlite3_column_double(statement_, column); }
  void read(int column, std::string& out) const;
  void read(int column, Blob& out) const { read(column, out.bytes); }
  void read(int column, StoredText& out) const;  // loads the text. Throws: corrupt
  template <typename T>
  void read(int column, std::optional<T>& out) const {
    if (is_null(column)) return out.reset();
    read(column, out.emplace());
  }
  template <typename T>
  T get(int column = 0) const {
    T value{};
    read(column, value);
    return value;
  }

 private:
  Connection& connection_;
  sqlite3_stmt* statement_;
};

class Connection {
 public:
  // flags: SQLITE_OPEN_*; `uri` as sqlite3_open_v2 takes it, `name` for messages.
  Connection(const std::string& uri, std::string name, int flags);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Statement statement(const std::string& sql);  // prepared once. Requires: not in use already
  void exec(const std::string& sql);            // any number of statements without values
  template <typename T = int64_t, typename... Args>
  T value(const std::string& sql, const Args&... args) {
    Statement s = statement(sql);
    s.bind_all(args...);
    return s.step() ? s.get<T>() : T{};
  }
  template <typename... Args>
  void run(const std::string& sql, const Args&... args) {
    statement(sql).bind_all(args...).run();
  }
  int64_t last_id() const { return sqlite3_last_insert_rowid(handle_); }
  int64_t changes() const { return sqlite3_changes64(handle_); }
  bool in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }
  sqlite3* handle() const { return handle_; }
  const std::string& name() const { return name_; }
  // Forgets prepared statements: needed before ATTACH and DETACH change what names mean.
  void forget_statements();

  [[noreturn]] void fail(int code, const std::string& doing) const;

 private:
  sqlite3* handle_ = nullptr;
  std::string name_;
  std::unordered_map<std::string, sqlite3_stmt*> prepared_;
};

// BEGIN IMMEDIATE … COMMIT; rolled back unless committed.
class Transaction {
 public:
  explicit Transaction(Connection& connection);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Connection& connection_;
};

// The file system has no memory that processes share, which WAL needs.
bool is_shared_memory_fault(int code);

// The error for a SQLite result code met while `doing`; `system_errno` 0 when unknown.
Error sqlite_error(int code, const std::string& message, const std::string& file, const std::string& doing,
                   int system_errno);

// Stores a text once; returns its SHA-256.
Blob put_text(Connection& connection, std::string_view text);
// Throws: corrupt, when the stored bytes do not give the digest.
std::string get_text(Connection& connection, const Blob& sha256, const std::string& schema = "main");

// ---- Rows ----------------------------------------------------------------------------------------------------------

// "a, b, c"; `prefix` ("s.") before each.
template <typename Row>
std::string column_list(const std::string& prefix = "", bool with_id = true) {
  std::string out;
  for_each_field<Row>([&](const auto& f) {
    if (!with_id && std::string_view(f.name) == "id") return;
    out += (out.empty() ? "" : ", ") + prefix + f.name;
  });
  return out;
}

// Inserts all columns but id. Returns the new rowid. `verb`: INSERT, INSERT OR REPLACE, INSERT OR IGNORE.
template <typename Row>
int64_t insert_row(Connection& connection, const Row& row, const char* verb = "INSERT") {
  static const std::string tail = [] {
    std::string marks;
    for_each_field<Row>([&](const auto& f) {
      if (std::string_view(f.name) != "id") marks += marks.empty() ? "?" : ",?";
    });
    return std::string(" INTO ") + RowTable<Row>::kName + "(" + column_list<Row>("", false) + ") VALUES(" + marks + ")";
  }();
  Statement s = connection.statement(verb + tail);
  int index = 0;
  for_each_field<Row>([&](const auto& f) {
    if (std::string_view(f.name) != "id") s.bind(++index, row.*f.member);
  });
  s.run();
  return connection.last_id();
}

// The current row of a statement whose columns are those of Row, in order, from column `first`.
template <typename Row>
Row read_row(const Statement& s, int first = 0, bool texts = true) {
  Row row{};
  int column = first;
  for_each_field<Row>([&](const auto& f) {
    auto& member = row.*f.member;
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(member)>, OptStoredText>) {
      if (texts) s.read(column, member);
    } else {
      s.read(column, member);
    }
    ++column;
  });
  return row;
}

// SELECT <columns> FROM <table> <tail>; `tail` begins with WHERE, ORDER BY or nothing.
template <typename Row, typename... Args>
std::vector<Row> select_rows(Connection& connection, const std::string& tail, const Args&... args) {
  Statement s = connection.statement("SELECT " + column_list<Row>() + " FROM " + RowTable<Row>::kName + " " + tail);
  s.bind_all(args...);
  std::vector<Row> rows;
  while (s.step()) rows.push_back(read_row<Row>(s));
  return rows;
}

// The same with a whole statement of one's own, for view rows.
template <typename Row, typename... Args>
std::vector<Row> query_rows(Connection& connection, const std::string& sql, const Args&... args) {
  Statement s = connection.statement(sql);
  s.bind_all(args...);
  std::vector<Row> rows;
  while (s.step()) rows.push_back(read_row<Row>(s));
  return rows;
}

}  // namespace hayfork::runs
