// Where a task finds the rows of a data set: <data folder>/<name>/<split>.jsonl (or .jsonl.gz), as `hayfork data add`
// leaves them. Several tasks on one file share its rows in memory.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "datasets/records.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

struct Split {
  std::shared_ptr<const datasets::Records> records;
  std::vector<size_t> rows;  // of records, in order: those of the subject, when one is asked for
  std::string set, split, license;

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
  const datasets::Record& row(int64_t i) const { return records->rows[rows[static_cast<size_t>(i)]]; }
  std::string where(int64_t i) const { return records->where(rows[static_cast<size_t>(i)]); }
  // The row as JSON. Throws: corrupt (data) with its fault.
  const nlohmann::ordered_json& value(int64_t i) const;
};

// What a data set is called, the most particular name first. With `subject` set, sets that are not named after it hold
// several: their rows are taken by the field "subject". `files`: splits that lie elsewhere than in the data folder.
struct SplitNames {
  std::vector<std::string> sets;
  std::string subject = {};
  std::map<std::string, std::filesystem::path> files = {};
};

// Throws: usage without a data folder; not_found (data) saying which files were looked for.
Split open_split(const TaskOptions& options, const SplitNames& names, const std::string& split,
                 const std::string& task);

// SHA-256 of the row as lm-evaluation-harness hashes a document (its doc_hash): JSON with indent 2, keys as stored.
std::string doc_hash(const nlohmann::ordered_json& row);

}  // namespace hayfork::tasks
