#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace hayfork::cli {

void declare_output(Flags& flags, OutputOptions& options) {
  flags.group("Output");
  flags.choice("o,format", options.format, {"table", "md", "csv", "json", "jsonl", "latex"},
               "How results are printed on standard output.");
}

void print(Console& console, const runs::Document& document, const OutputOptions& options) {
  console.out(runs::render(document, runs::parse_format(options.format)));
}

void declare_db(Flags& flags, DbOptions& options) {
  flags.group("Database");
  flags.text("db", options.db, "FILE", "Results database.").kind = "file";
}

runs::Store open_to_read(const DbOptions& options, Console& console) {
  return runs::Store::open(options.db, runs::OpenMode::read_only, console.events());
}

runs::Store open_to_write(const DbOptions& options, Console& console) {
  return runs::Store::open(options.db, runs::OpenMode::create_or_open, console.events());
}

std::optional<runs::Store> open_early(const DbOptions& options, Console& console) {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::absolute(options.db, ignored).parent_path();
  const bool can_be_made = std::filesystem::is_directory(folder, ignored) && access(folder.c_str(), W_OK | X_OK) == 0;
  if (can_be_made && !std::filesystem::exists(std::filesystem::symlink_status(options.db, ignored)))
    return std::nullopt;
  return open_to_write(options, console);
}

runs::Store open_to_change(const DbOptions& options, Console& console) {
  std::error_code ignored;
  if (!std::filesystem::exists(options.db, ignored)) open_to_read(options, console);  // its error
  return open_to_write(options, console);
}

void drop_empty_columns(runs::Table& table, const std::vector<std::string>& names) {
  const auto empty = [](const runs::Cell& c) {
    if (const auto* text = std::get_if<std::string>(&c)) return text->empty();
    if (const auto* number = std::get_if<int64_t>(&c)) return *number == 0;
    return std::holds_alternative<std::monostate>(c);
  };
  for (size_t i = table.columns.size(); i-- > 0;) {
    if (std::find(names.begin(), names.end(), table.columns[i].name) == names.end()) continue;
    if (!std::all_of(table.rows.begin(), table.rows.end(), [&](const auto& row) { return empty(row[i]); })) continue;
    const auto at = static_cast<std::ptrdiff_t>(i);
    table.columns.erase(table.columns.begin() + at);
    for (auto& row : table.rows) row.erase(row.begin() + at);
  }
}

runs::Cell cell(const runs::OptText& value) {
  return value ? runs::Cell(*value) : runs::Cell();
}
runs::Cell cell(const runs::OptInt& value) {
  return value ? runs::Cell(*value) : runs::Cell();
}
runs::Cell cell(const runs::OptReal& value) {
  return value ? runs::Cell(*value) : runs::Cell();
}

}  // namespace hayfork::cli
