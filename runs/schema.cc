#include "runs/schema.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "runs/store.h"

namespace hayfork::runs {
namespace {

constexpr Migration kMigrations[] = {{1, nullptr}};  // 1 is kSchema1: its text is not a constant expression

struct Header {
  int64_t application_id;
  int64_t version;
  bool empty;  // no table of anybody's
};

// In one statement, so that another process's commit falls before all three or after.
Header read_header(Connection& connection) {
  Statement s = connection.statement(
      "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) = 0 "
      "FROM pragma_application_id, pragma_user_version");
  HAY_CHECK(s.step(), "a header is one row");
  return {s.get<int64_t>(0), s.get<int64_t>(1), s.get<int64_t>(2) != 0};
}

bool is_new(const Header& header) {
  return header.empty && header.application_id == 0 && header.version == 0;
}

void refuse_foreign(const Header& header, const std::string& file) {
  if (header.application_id == kApplicationId && header.version >= 1) return;
  if (header.application_id == kApplicationId) {
    throw Error(ErrorCode::corrupt, ErrorSubject::database, "the results database is damaged",
                {.where = file,
                 .why = "it has tables and no schema version: making it was cut off, or another hand wrote in it",
                 .next = "use its copy (.bak) or a backup; this one was not changed"});
  }
  throw Error(ErrorCode::corrupt, ErrorSubject::database, "this file is no Hayfork database",
              {.where = file,
               .why = fmt::format("it is another program's SQLite database (application id {:#x}, want {:#x})",
                                  header.application_id, kApplicationId),
               .next = "give another file with --db; this one was not changed"});
}

void refuse_newer(const Header& header, int ours, const std::string& file) {
  if (header.version <= ours) return;
  throw Error(ErrorCode::unsupported, ErrorSubject::database, "the results database is newer than this program",
              {.where = file,
               .why = fmt::format("its schema version is {}, this hayfork knows up to {}", header.version, ours),
               .next = "use a newer hayfork, or another --db; this one was not changed"});
}

const char* sql_of(const Migration& migration) {
  return migration.sql != nullptr ? migration.sql : kSchema1;
}

// One migration; nothing happens when another process has done it meanwhile.
void apply(Connection& connection, const Migration& migration) {
  Transaction transaction(connection);
  if (connection.value("PRAGMA user_version") >= migration.version) return;
  connection.exec(sql_of(migration));
  connection.exec(fmt::format("PRAGMA user_version = {}", migration.version));
  transaction.commit();
}

// "table samples" → its columns; views alike.
std::map<std::string, std::set<std::string>> columns_in(Connection& connection) {
  std::map<std::string, std::set<std::string>> out;
  Statement s = connection.statement(
      "SELECT m.type || ' ' || m.name, c.name FROM sqlite_schema m JOIN pragma_table_info(m.name) c WHERE m.type IN "
      "('table', 'view')");
  while (s.step()) out[s.get<std::string>(0)].insert(s.get<std::string>(1));
  return out;
}

// A migration that was cut off, or a hand that dropped something: told here, not by whichever query meets it first.
void refuse_incomplete(Connection& connection, std::span<const Migration> list) {
  Connection model(":memory:", "a new database", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  for (const Migration& migration : list) apply(model, migration);
  const auto there = columns_in(connection);
  std::string missing;
  const auto add = [&missing](const std::string& what) { missing += (missing.empty() ? "" : ", ") + what; };
  for (const auto& [name, columns] : columns_in(model)) {
    const auto here = there.find(name);
    if (here == there.end()) {
      add(name);
      continue;
    }
    for (const std::string& column : columns) {
      if (!here->second.contains(column)) add(fmt::format("column {} of {}", column, name));
    }
  }
  if (missing.empty()) return;
  throw Error(ErrorCode::corrupt, ErrorSubject::database, "the results database is damaged",
              {.where = connection.name(),
               .why = "missing: " + missing,
               .next = "use its copy (.bak) or a backup; this one was not changed"});
}

std::filesystem::path back_up(Connection& connection, const std::filesystem::path& path, int64_t version) {
  std::filesystem::path copy;
  for (int n = 0;; ++n) {  // VACUUM INTO refuses a file that is there
    copy = fmt::format("{}.v{}{}.bak", path.string(), version, n == 0 ? "" : fmt::format("-{}", n));
    if (!std::filesystem::exists(copy)) break;
  }
  connection.run("VACUUM INTO ?", copy.string());
  return copy;
}

}  // namespace

std::span<const Migration> migrations() {
  return kMigrations;
}

int schema_version() {
  return migrations().back().version;
}

void check_version(Connection& connection, std::span<const Migration> list, bool exact) {
  const Header header = read_header(connection);
  refuse_foreign(header, connection.name());
  refuse_newer(header, list.back().version, connection.name());
  if (exact && header.version < list.back().version) {
    throw Error(ErrorCode::unsupported, ErrorSubject::database, "the results database has an older schema",
                {.where = connection.name(),
                 .why = fmt::format("its version is {}, this hayfork reads {}", header.version, list.back().version),
                 .next = "hayfork db migrate --db FILE (a copy is kept)"});
  }
  if (exact) refuse_incomplete(connection, list);
}

void check_attached(Connection& db, const std::string& file) {
  const int64_t app = db.value("PRAGMA other.application_id");
  const int64_t version = db.value("PRAGMA other.user_version");
  if (app != kApplicationId) {
    throw Error(ErrorCode::corrupt, ErrorSubject::database, "this file is no Hayfork database", {.where = file});
  }
  if (version != schema_version()) {
    throw Error(ErrorCode::unsupported, ErrorSubject::database, "the other database has another schema version",
                {.where = file,
                 .why = fmt::format("it has {}, this hayfork {}", version, schema_version()),
                 .next = "hayfork db migrate --db FILE, or use the newer hayfork"});
  }
  const int64_t odd = db.value(
      "SELECT count(*) FROM main.sqlite_schema a WHERE a.sql IS NOT NULL AND NOT EXISTS (SELECT 1 FROM "
      "other.sqlite_schema b WHERE b.type = a.type AND b.name = a.name AND b.sql = a.sql)");
  const auto sound = db.value<std::string>("PRAGMA other.quick_check(1)");
  if (odd == 0 && sound == "ok") return;
  throw Error(ErrorCode::corrupt, ErrorSubject::database, "the other database is damaged",
              {.where = file,
               .why = odd != 0 ? fmt::format("{} of its tables differ from this version's", odd) : sound,
               .next = "hayfork db check --db FILE"});
}

void migrate(Connection& connection, const std::filesystem::path& path, std::span<const Migration> list,
             const EventSink& events) {
  const Header header = read_header(connection);
  if (!is_new(header)) {
    refuse_foreign(header, connection.name());
    refuse_newer(header, list.back().version, connection.name());
    if (header.version == list.back().version) return;
    const std::filesystem::path copy = back_up(connection, path, header.version);
    if (events) {
      events({Event::Level::info, "HAY-I001",
              fmt::format("{}: schema {} -> {}, the old file is kept as {}", path.string(), header.version,
                          list.back().version, copy.string()),
              ""});
    }
  }
  for (const Migration& migration : list) {
    if (migration.version > header.version) apply(connection, migration);
  }
}

}  // namespace hayfork::runs
