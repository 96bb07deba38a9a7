// The schema's history: numbered migrations, each in one transaction, after a copy of the file. For runs/ alone.
#pragma once

#include <filesystem>
#include <span>

#include "base/events.h"
#include "runs/sqlite.h"

namespace hayfork::runs {

extern const char* const kSchema1;

struct Migration {
  int version;  // user_version after it
  const char* sql;
};
std::span<const Migration> migrations();

// Brings the file to the last version of `list`: all of it for an empty file, the missing ones (after VACUUM INTO
// <file>.v<N>.bak) for an older one. Safe against another process doing the same.
// Throws: unsupported/database (newer, both versions named), corrupt (another program's database), resource; the file
// is then as it was.
void migrate(Connection& connection, const std::filesystem::path& path, std::span<const Migration> list,
             const EventSink& events);

// The same checks without changing anything; an older file is refused too when `exact`.
void check_version(Connection& connection, std::span<const Migration> list, bool exact);

// The database attached as `other` (read from `file`) is not ours to trust: its tables must be exactly those of this
// version, and its pages sound. Throws: corrupt, unsupported.
void check_attached(Connection& db, const std::string& file);

}  // namespace hayfork::runs
