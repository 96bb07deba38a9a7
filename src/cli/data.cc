// data list, add, verify: data sets as folders of JSONL files with a manifest. The program downloads nothing.

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/output.h"
#include "cli/suggest.h"
#include "cli/verbs.h"
#include "datasets/catalog.h"
#include "datasets/import.h"
#include "datasets/records.h"
#include "tasks/row_faults.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using runs::Align;
using runs::Cell;
using runs::CellType;

struct DataOptions {
  std::string data, name, source, license;
  std::vector<std::string> words;  // NAME, then SPLIT=FILE…
  OutputOptions output;
  bool force = false, keep_broken = false;
};

fs::path data_folder(const DataOptions& options) {
  if (!options.data.empty()) return options.data;
  throw Error(ErrorCode::usage, ErrorSubject::general, "no data folder",
              {.next = "give --data DIR, or set HAYFORK_DATA"});
}

json read_manifest(const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return nullptr;
  json manifest = parse_json(read_file(path, ErrorSubject::data, 16 << 20), path.string(), ErrorSubject::data);
  const bool sound = manifest.is_object() && manifest.contains("splits") && manifest["splits"].is_object();
  if (!sound)
    throw Error(ErrorCode::corrupt, ErrorSubject::data, "the manifest is malformed", {.where = path.string()});
  return manifest;
}

std::vector<fs::path> data_sets(const fs::path& root) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  if (error)
    throw Error(ErrorCode::not_found, ErrorSubject::data, "no such data folder",
                {.where = root.string(), .why = error.message()});
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string text_of(const json& object, const char* key) {
  const json value = object.value(key, json());
  return value.is_string() ? value.get<std::string>() : "";
}

int list(const DataOptions& options, Console& console) {
  runs::Section section{.name = "data",
                        .table = {{{.name = "name"},
                                   {.name = "split"},
                                   {.name = "rows", .align = Align::right, .type = CellType::integer},
                                   {.name = "bytes", .align = Align::right, .type = CellType::bytes},
                                   {.name = "license"},
                                   {.name = "source"},
                                   {.name = "sha256"}},
                                  {}}};
  for (const fs::path& folder : data_sets(data_folder(options))) {
    const json manifest = read_manifest(folder);
    if (manifest.is_null()) {
      section.notes.push_back(fmt::format("{}: no manifest (hayfork data add makes one)", folder.filename().string()));
      continue;
    }
    for (const auto& [split, about] : manifest["splits"].items()) {
      section.table.rows.push_back({folder.filename().string(), split, about.value("rows", int64_t{0}),
                                    about.value("bytes", int64_t{0}), text_of(manifest, "license"),
                                    text_of(manifest, "source"), text_of(about, "sha256")});
    }
  }
  print(console, {"data-list", {std::move(section)}}, options.output);
  return 0;
}

bool plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

// "test=a.jsonl" or "validation=dev.jsonl,dev-labels.lst".
struct SplitFile {
  std::string split;
  fs::path file, labels;
};

SplitFile split_file(const std::string& name, const std::string& word) {
  const size_t equals = word.find('=');
  const std::string split = word.substr(0, equals);
  if (equals == std::string::npos || !plain_name(split) || !plain_name(name)) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("data add: cannot use \"{}\"", word),
                {.why = "want NAME SPLIT=FILE…, names of letters, digits, _ - ."});
  }
  std::string file = word.substr(equals + 1), labels;
  if (const size_t comma = file.rfind(','); comma != std::string::npos && file.ends_with(".lst")) {
    labels = file.substr(comma + 1);
    file.resize(comma);
  }
  return {split, file, labels};
}

// Rows that no task could use: refused, unless they are to be kept.
void check_faults(const std::vector<std::string>& faults, size_t n_rows, bool keep, const std::string& file,
                  Console& console) {
  if (faults.empty()) return;
  constexpr size_t kShown = 5;
  for (size_t i = 0; i < std::min(faults.size(), kShown); ++i) console.warn("HAY-W042", faults[i]);
  const std::string what = fmt::format("{} of {} rows cannot be used", faults.size(), n_rows);
  if (!keep)
    throw Error(ErrorCode::corrupt, ErrorSubject::data, what,
                {.where = file,
                 .why = faults.front(),
                 .next = "correct the file, or add it with --keep-broken: those documents fail, the others go on"});
  console.note(what + "; they are kept, and will fail");
}

int add(const DataOptions& options, Console& console) {
  if (options.words.size() < 2) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "data add needs a name and files",
                {.next = "hayfork data add NAME test=FILE.jsonl"});
  }
  const std::string& name = options.words[0];
  const fs::path folder = data_folder(options) / name;
  json manifest = plain_name(name) ? read_manifest(folder) : json();
  if (manifest.is_null()) manifest = {{"schema", "hayfork/data/1"}, {"name", name}, {"splits", json::object()}};
  const datasets::CatalogEntry* known = datasets::find_in_catalog(name);
  for (const auto& [key, given, otherwise] : {std::tuple{"source", options.source, known ? known->source : ""},
                                              std::tuple{"license", options.license, known ? known->license : ""}}) {
    if (!given.empty())
      manifest[key] = given;
    else if (!manifest.contains(key) && *otherwise != '\0')
      manifest[key] = otherwise;
  }
  for (size_t i = 1; i < options.words.size(); ++i) {
    const SplitFile from = split_file(name, options.words[i]);
    const fs::path to = folder / (from.split + ".jsonl");
    std::error_code error;
    if (fs::exists(to, error) && !options.force) {
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  fmt::format("{} has a split \"{}\" already", name, from.split),
                  {.where = to.string(), .next = "--force replaces it"});
    }
    datasets::Imported imported = datasets::import_rows(name, from.file, from.labels);
    std::string text;
    for (const std::string& line : imported.lines) text += line + "\n";
    std::vector<std::string> faults = std::move(imported.faults);
    for (std::string& fault : tasks::row_faults(name, datasets::parse_records(text, to.string()), imported.where))
      faults.push_back(std::move(fault));
    check_faults(faults, imported.lines.size(), options.keep_broken, from.file.string(), console);
    fs::create_directories(folder, error);
    write_file_atomically(to, text);
    manifest["splits"][from.split] = {{"rows", imported.lines.size()},
                                      {"bytes", text.size()},
                                      {"sha256", sha256_hex(text)},
                                      {"from", from.file.filename().string()},
                                      {"added", utc_now()}};
    console.note(fmt::format("{}/{}: {} rows, {}", name, from.split, imported.lines.size(),
                             format_bytes(static_cast<double>(text.size()))));
  }
  write_file_atomically(folder / "manifest.json", manifest.dump(1) + "\n");
  return 0;
}

int verify(const DataOptions& options, Console& console) {
  runs::Section section{.name = "verify", .table = {{{.name = "name"}, {.name = "split"}, {.name = "state"}}, {}}};
  int64_t n_bad = 0;
  for (const fs::path& folder : data_sets(data_folder(options))) {
    const std::string name = folder.filename().string();
    if (!options.words.empty() && std::find(options.words.begin(), options.words.end(), name) == options.words.end())
      continue;
    const json manifest = read_manifest(folder);
    if (manifest.is_null()) continue;
    for (const auto& [split, about] : manifest["splits"].items()) {
      const fs::path path = folder / (split + ".jsonl");
      std::error_code ignored;
      std::string state = "ok";
      if (!fs::exists(path, ignored)) {
        state = "missing";
      } else if (sha256_hex(read_file(path, ErrorSubject::data, size_t{1} << 34)) != text_of(about, "sha256")) {
        state = "changed";
      }
      n_bad += state == "ok" ? 0 : 1;
      section.table.rows.push_back({name, split, state});
    }
  }
  print(console, {"data-verify", {std::move(section)}}, options.output);
  return n_bad == 0 ? 0 : 11;
}

std::shared_ptr<DataOptions> declare(Flags& flags) {
  auto options = std::make_shared<DataOptions>();
  flags.group("Data");
  flags.text("data", options->data, "DIR", "Folder of data sets.").kind = "dir";
  return options;
}

}  // namespace

Action declare_data_list(Flags& flags) {
  auto options = declare(flags);
  declare_output(flags, options->output);
  return [options](Console& console) { return list(*options, console); };
}

Action declare_data_add(Flags& flags) {
  auto options = declare(flags);
  flags
      .arguments("NAME SPLIT=FILE", options->words,
                 "The data set's name, then its splits: test=test.jsonl. A file of labels follows a comma.")
      .required = true;
  flags.text("source", options->source, "TEXT", "Where it comes from.").configurable = false;
  flags.text("license", options->license, "TEXT", "Its licence.").configurable = false;
  flags.toggle("force", options->force, "Replace splits that are there.").configurable = false;
  flags.toggle("keep-broken", options->keep_broken, "Add the file though rows of it cannot be used: those will fail.")
      .configurable = false;
  return [options](Console& console) { return add(*options, console); };
}

Action declare_data_verify(Flags& flags) {
  auto options = declare(flags);
  flags.arguments("NAME", options->words, "Only these. Default: all.");
  declare_output(flags, options->output);
  return [options](Console& console) { return verify(*options, console); };
}

}  // namespace hayfork::cli
