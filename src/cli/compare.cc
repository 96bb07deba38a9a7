#include "runs/compare.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/compare_flags.h"
#include "cli/compare_view.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

struct CompareVerb {
  std::string base;
  std::vector<std::string> candidates;
  CompareFlags compare;
  DbOptions db;
  OutputOptions output;
};

int compare(const CompareVerb& options, Console& console) {
  const runs::CompareOptions compare = compare_options(options.compare);
  runs::Store store = open_to_read(options.db, console);
  const runs::RunView base = store.show_run(store.find_run(options.base).id);
  std::vector<runs::RunView> cands;
  for (const std::string& reference : options.candidates) cands.push_back(store.show_run(store.find_run(reference).id));
  const runs::Comparison comparison = runs::compare_runs(store, base, cands, compare);
  if (comparison.rows.empty()) {
    for (const std::string& note : comparison.notes) console.note(note);
    console.error(Error(ErrorCode::not_found, ErrorSubject::database, "the runs have no pair of samples in common",
                        {.where = options.db.db, .next = "hayfork show RUN lists what a run holds"}));
    return 5;
  }
  const bool people =
      options.output.format != "json" && options.output.format != "jsonl" && options.output.format != "csv";
  runs::Document document{"compare", {comparison_section(comparison, cands, people)}};
  if (people) {
    document.sections[0].notes = identity_lines(comparison, cands);
    for (const std::string& note : comparison.notes) document.sections[0].notes.push_back(note);
  } else if (options.output.format != "csv") {
    document.sections.push_back(identity_section(comparison, cands));
    runs::Section notes{.name = "notes", .table = {{{.name = "note"}}, {}}};
    for (const std::string& note : comparison.notes) notes.table.rows.push_back({note});
    document.sections.push_back(std::move(notes));
  }
  if (compare.flips > 0) document.sections.push_back(flips_section(comparison, cands, store));
  print(console, document, options.output);
  return 0;
}

}  // namespace

Action declare_compare(Flags& flags) {
  auto options = std::make_shared<CompareVerb>();
  FlagInfo& base = flags.argument("BASE", options->base, "The run to compare with.");
  base.required = true;
  base.kind = "run";
  FlagInfo& candidates = flags.arguments("CAND", options->candidates, "One run or several.");
  candidates.required = true;
  candidates.kind = "run";
  declare_compare_flags(flags, options->compare);
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return compare(*options, console); };
}

}  // namespace hayfork::cli
