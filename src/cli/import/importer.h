// Results of other programs as runs of the store. An importer is one file and one line in importers(); it reads its
// files whole before anything is written, so that a file with a fault changes nothing.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/events.h"
#include "cli/console.h"
#include "runs/store.h"

namespace hayfork::cli {

struct ImportOptions {
  std::vector<std::filesystem::path> files;
  // Facts the files do not have, by name: model, series, arch, train_tokens, train_step, dtype, length. Each importer
  // says which it knows.
  std::map<std::string, std::string> facts;
  runs::OptText name, note;
  std::vector<std::string> tags;
  std::string cli_json = "[]";
};

// A task of a run to be, with all of its samples and aggregates.
struct ImportedTask {
  runs::PlannedTask planned;
  std::vector<runs::SampleRow> samples;
  std::vector<runs::MetricRow> metrics;
};

struct ImportedRun {
  runs::RunIdentity identity;
  std::vector<ImportedTask> tasks;
  std::vector<runs::BenchRow> bench;
  std::vector<runs::ArtefactRow> artefacts;
  std::vector<Event> events;
  runs::OptReal wall_s;
};

struct ImportReport {
  std::vector<std::string> run_ids;
  int64_t n_tasks = 0, n_samples = 0, n_bench = 0;
  std::vector<Event> events;
};

// The database, opened when it is first asked for: files with faults make none.
using OpenStore = std::function<runs::Store&()>;

struct Importer {
  const char* name;
  const char* summary;
  const char* files;  // what it reads, for the help text
  ImportReport (*import)(const OpenStore& open, const ImportOptions& options);
};
std::span<const Importer> importers();

ImportReport import_lm_eval(const OpenStore& open, const ImportOptions& options);
ImportReport import_llama_bench(const OpenStore& open, const ImportOptions& options);
ImportReport import_ruler(const OpenStore& open, const ImportOptions& options);
ImportReport import_hayfork(const OpenStore& open, const ImportOptions& options);

// ---- What importers share ------------------------------------------------------------------------------------------

// An identity of status and origin "imported", its plan the digest of the files' content. Throws: usage when these
// files are in the database already.
runs::RunIdentity imported_identity(runs::Store& store, const std::string& origin, const std::string& content_sha256,
                                    const std::string& config_json, const ImportOptions& options);
// Writes a run. Occurrences of documents are counted here, aggregates without an interval get one from the samples.
void store_imported(runs::Store& store, ImportedRun run, ImportReport& report);
void check_facts(const ImportOptions& options, std::span<const char* const> known);  // Throws: usage
[[noreturn]] void refuse_import(const std::string& where, const std::string& why, const std::string& next = {});

}  // namespace hayfork::cli
