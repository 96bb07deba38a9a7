#include "tasks/split.h"

#include <map>
#include <mutex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/file_map.h"
#include "base/json.h"
#include "datasets/import.h"

namespace hayfork::tasks {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Rows that some task still holds are not read again: 57 subjects of one file are one reading.
std::shared_ptr<const datasets::Records> shared_records(const fs::path& path) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const datasets::Records>> known;
  std::error_code ignored;
  const auto written = fs::last_write_time(path, ignored).time_since_epoch().count();
  const std::string key = fmt::format("{}\n{}\n{}", path.string(), written, fs::file_size(path, ignored));
  const std::lock_guard lock(mutex);
  if (auto held = known[key].lock()) return held;
  auto records = datasets::load_records(path);
  known[key] = records;
  return records;
}

std::string license_of(const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const nlohmann::json manifest =
      parse_json(read_file(path, ErrorSubject::data, 16 << 20), path.string(), ErrorSubject::data);
  const nlohmann::json license = manifest.is_object() ? manifest.value("license", nlohmann::json()) : nlohmann::json();
  return license.is_string() ? license.get<std::string>() : "";
}

fs::path find_file(const TaskOptions& options, const std::string& set, const std::string& split) {
  std::error_code ignored;
  for (const char* ending : {".jsonl", ".jsonl.gz"}) {
    const fs::path path = options.data_dir / set / (split + ending);
    if (fs::is_regular_file(path, ignored)) return path;
  }
  return {};
}

// Broken lines of a file with several subjects belong to all that cannot rule them out.
bool is_of(const datasets::Record& record, const std::string& subject) {
  if (record.value == nullptr) return true;
  const auto found = record.value->find("subject");
  return found != record.value->end() && *found == subject;
}

}  // namespace

const ordered_json& Split::value(int64_t i) const {
  const datasets::Record& record = row(i);
  if (record.value == nullptr) throw Error(ErrorCode::corrupt, ErrorSubject::data, record.fault);
  return *record.value;
}

namespace {

// A file named outright, in any form that data add reads.
Split open_file(const fs::path& path, const std::string& split) {
  Split out{.records = nullptr, .rows = {}, .set = path.filename().string(), .split = split, .license = {}};
  fs::path plain = path;
  if (plain.extension() == ".gz") plain = plain.stem();
  if (plain.extension() == ".csv" || plain.extension() == ".tsv") {
    std::string text;
    for (const std::string& line : datasets::import_rows("", path, {}).lines) text += line + "\n";
    out.records = std::make_shared<datasets::Records>(datasets::parse_records(text, path.string()));
  } else {
    out.records = shared_records(path);
  }
  for (size_t i = 0; i < out.records->rows.size(); ++i) out.rows.push_back(i);
  return out;
}

}  // namespace

Split open_split(const TaskOptions& options, const SplitNames& names, const std::string& split,
                 const std::string& task) {
  if (const auto file = names.files.find(split); file != names.files.end()) return open_file(file->second, split);
  const std::string next =
      fmt::format("hayfork data add {} {}=FILE, or scripts/fetch_data.py {}", names.sets.front(), split, task);
  if (options.data_dir.empty())
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("{} needs a data folder", task),
                {.why = "its documents are no part of Hayfork", .next = "give --data DIR, then " + next});
  for (const std::string& set : names.sets) {
    const fs::path path = find_file(options, set, split);
    if (path.empty()) continue;
    Split out{.records = shared_records(path),
              .rows = {},
              .set = set,
              .split = split,
              .license = license_of(path.parent_path())};
    const bool some = !names.subject.empty() && !set.ends_with(names.subject);
    for (size_t i = 0; i < out.records->rows.size(); ++i)
      if (!some || is_of(out.records->rows[i], names.subject)) out.rows.push_back(i);
    if (out.rows.empty())
      throw Error(
          ErrorCode::not_found, ErrorSubject::data, fmt::format("{}: no row is of this subject", task),
          {.where = path.string(), .why = fmt::format("want \"subject\": \"{}\"", names.subject), .next = next});
    return out;
  }
  std::string tried;
  for (const std::string& set : names.sets)
    tried += (tried.empty() ? "" : ", ") + (options.data_dir / set / (split + ".jsonl")).string();
  throw Error(ErrorCode::not_found, ErrorSubject::data, fmt::format("{} needs the split \"{}\"", task, split),
              {.where = tried, .why = "no such file", .next = next});
}

std::string doc_hash(const ordered_json& row) {
  return sha256_hex(row.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace hayfork::tasks
