// What most verbs share: -o/--format, --db, and printing a document of tables.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/flags.h"
#include "runs/report/table.h"
#include "runs/store.h"

namespace hayfork::cli {

struct OutputOptions {
  std::string format = "table";
};
void declare_output(Flags& flags, OutputOptions& options);
void print(Console& console, const runs::Document& document, const OutputOptions& options);

struct DbOptions {
  std::string db = "runs.db";
};
void declare_db(Flags& flags, DbOptions& options);
// For verbs that only look. Throws as Store::open; a missing file says how to make one.
runs::Store open_to_read(const DbOptions& options, Console& console);
runs::Store open_to_write(const DbOptions& options, Console& console);  // makes one where there is none
// For verbs that work for long before they write: the file that is there, so that its faults come first. Nothing where
// there is none: open_to_write makes it when there is something to keep. Throws: what open_to_write would throw then.
std::optional<runs::Store> open_early(const DbOptions& options, Console& console);
// To change what is in it: where there is none, none is made. Throws: not_found.
runs::Store open_to_change(const DbOptions& options, Console& console);

// Columns of `names` that hold nothing (or only zeros) leave the table: for people only.
void drop_empty_columns(runs::Table& table, const std::vector<std::string>& names);

// Cells of optional columns.
runs::Cell cell(const runs::OptText& value);
runs::Cell cell(const runs::OptInt& value);
runs::Cell cell(const runs::OptReal& value);

}  // namespace hayfork::cli
