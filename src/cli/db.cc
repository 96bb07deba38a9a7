#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/execute.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

using runs::Cell;
using runs::CellType;
using runs::Section;

struct DbVerb {
  DbOptions db;
  OutputOptions output;
  std::string run = "@last", other;
  bool samples = false;
  std::optional<int64_t> keep;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : "\n") + word;
  return text;
}

int check(const DbVerb& options, Console& console) {
  runs::Store store = open_to_read(options.db, console);
  const runs::CheckReport report = store.check();
  Section section{.name = "check",
                  .table = {{{.name = "faults", .type = CellType::integer},
                             {.name = "runs", .type = CellType::integer},
                             {.name = "samples", .type = CellType::integer},
                             {.name = "texts", .type = CellType::integer},
                             {.name = "orphan_texts", .type = CellType::integer},
                             {.name = "bytes", .type = CellType::bytes}},
                            {{static_cast<int64_t>(report.faults.size()), report.n_runs, report.n_samples,
                              report.n_texts, report.n_orphan_texts, report.n_bytes}}},
                  .record = true};
  Section faults{.name = "fault_list", .table = {{{.name = "fault"}}, {}}};
  for (const std::string& fault : report.faults) faults.table.rows.push_back({Cell(fault)});
  runs::Document document{"db-check", {std::move(section)}};
  if (!report.faults.empty() || options.output.format != "table") document.sections.push_back(std::move(faults));
  print(console, document, options.output);
  return report.faults.empty() ? 0 : 6;
}

int digest(const DbVerb& options, Console& console) {
  runs::Store store = open_to_read(options.db, console);
  const runs::RunRow run = store.find_run(options.run);
  const runs::RunDigest digest = store.digest(run.id, options.samples);
  if (options.output.format == "table" && !options.samples) {  // a line as sha256sum has it
    console.out(fmt::format("{}  {}\n", digest.sha256, run.run_id));
    return 0;
  }
  Section head{.name = "digest",
               .table = {{{.name = "run"}, {.name = "sha256"}, {.name = "samples", .type = CellType::integer}},
                         {{run.run_id, digest.sha256, digest.n_samples}}},
               .record = true};
  runs::Document document{"db-digest", {std::move(head)}};
  if (options.samples) {
    Section list{
        .name = "samples",
        .table = {
            {{.name = "task"}, {.name = "doc_id"}, {.name = "repeat", .type = CellType::integer}, {.name = "sha256"}},
            {}}};
    for (const runs::SampleDigest& sample : digest.samples) {
      list.table.rows.push_back({sample.task, sample.doc_id, sample.repeat, sample.sha256});
    }
    document.sections.push_back(std::move(list));
  }
  print(console, document, options.output);
  return 0;
}

int vacuum(const DbVerb& options, Console& console) {
  runs::Store store = open_to_change(options.db, console);
  const int64_t before = store.check().n_bytes;
  store.vacuum();
  const int64_t after = store.check().n_bytes;
  store.close();
  console.note(fmt::format("{}: {} → {}", options.db.db, format_bytes(static_cast<double>(before)),
                           format_bytes(static_cast<double>(after))));
  return 0;
}

int merge(const DbVerb& options, Console& console) {
  runs::Store::open(options.other, runs::OpenMode::read_only);  // its errors come before a new database does
  runs::Store store = open_to_write(options.db, console);
  const runs::MergeReport report = store.merge(options.other);
  refold_runs(store, report.refold, console);
  store.close();
  Section section{.name = "merge",
                  .table = {{{.name = "runs_added", .type = CellType::integer},
                             {.name = "runs_joined", .type = CellType::integer},
                             {.name = "samples_added", .type = CellType::integer},
                             {.name = "samples_same", .type = CellType::integer},
                             {.name = "renamed"}},
                            {{report.n_runs_added, report.n_runs_joined, report.n_samples_added, report.n_samples_same,
                              joined(report.renamed)}}},
                  .record = true};
  print(console, {"db-merge", {std::move(section)}}, options.output);
  return 0;
}

int prune(const DbVerb& options, Console& console) {
  if (!options.keep) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "db prune needs --keep N",
                {.next = "N newest runs are left whole"});
  }
  runs::Store store = open_to_change(options.db, console);
  const runs::PruneReport report = store.prune(*options.keep);
  store.close();
  Section section{.name = "prune",
                  .table = {{{.name = "runs", .type = CellType::integer},
                             {.name = "samples", .type = CellType::integer},
                             {.name = "texts", .type = CellType::integer}},
                            {{report.n_runs, report.n_samples, report.n_texts}}},
                  .record = true};
  print(console, {"db-prune", {std::move(section)}}, options.output);
  return 0;
}

int migrate(const DbVerb& options, Console& console) {
  runs::Store store = open_to_change(options.db, console);
  store.close();
  console.note(fmt::format("{}: schema {}", options.db.db, runs::schema_version()));
  return 0;
}

std::shared_ptr<DbVerb> declare(Flags& flags, bool with_output) {
  auto options = std::make_shared<DbVerb>();
  declare_db(flags, options->db);
  if (with_output) declare_output(flags, options->output);
  return options;
}

}  // namespace

Action declare_db_check(Flags& flags) {
  return [options = declare(flags, true)](Console& console) { return check(*options, console); };
}

Action declare_db_digest(Flags& flags) {
  auto options = declare(flags, true);
  flags.argument("RUN", options->run, "Which run.");
  flags.toggle("samples", options->samples, "One digest a sample as well.").configurable = false;
  return [options](Console& console) { return digest(*options, console); };
}

Action declare_db_vacuum(Flags& flags) {
  return [options = declare(flags, false)](Console& console) { return vacuum(*options, console); };
}

Action declare_db_merge(Flags& flags) {
  auto options = declare(flags, true);
  flags.argument("OTHER.db", options->other, "The database to add.").required = true;
  return [options](Console& console) { return merge(*options, console); };
}

Action declare_db_prune(Flags& flags) {
  auto options = declare(flags, true);
  flags.count("keep", options->keep, "N", "So many of the newest runs are left whole.").configurable = false;
  return [options](Console& console) { return prune(*options, console); };
}

Action declare_db_migrate(Flags& flags) {
  return [options = declare(flags, false)](Console& console) { return migrate(*options, console); };
}

}  // namespace hayfork::cli
