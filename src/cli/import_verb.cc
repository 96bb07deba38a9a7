#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/import/importer.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

struct ImportVerb {
  std::string importer;
  std::vector<std::string> files, samples, map, tags;
  std::string name, note;
  DbOptions db;
  OutputOptions output;
};

const Importer& find_importer(const std::string& name) {
  std::string known;
  for (const Importer& importer : importers()) {
    if (name == importer.name) return importer;
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", importer.name, importer.files);
  }
  throw Error(ErrorCode::usage, ErrorSubject::general,
              fmt::format("there is no importer \"{}\"", printable(name.substr(0, 60))), {.next = "known: " + known});
}

ImportOptions import_options(const ImportVerb& verb, Console& console) {
  ImportOptions options;
  for (const std::string& file : verb.files) options.files.emplace_back(file);
  for (const std::string& file : verb.samples) options.files.emplace_back(file);
  for (const std::filesystem::path& file : options.files) {
    std::error_code error;
    if (std::filesystem::is_regular_file(file, error)) continue;
    throw Error(ErrorCode::not_found, ErrorSubject::data, "no such file", {.where = file.string()});
  }
  for (const std::string& item : verb.map) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error(ErrorCode::usage, ErrorSubject::general,
                  fmt::format("--map: cannot read \"{}\"", printable(item.substr(0, 60))),
                  {.next = "write --map model=NAME"});
    }
    options.facts[item.substr(0, equals)] = item.substr(equals + 1);
  }
  if (!verb.name.empty()) options.name = verb.name;
  if (!verb.note.empty()) options.note = verb.note;
  options.tags = verb.tags;
  options.cli_json =
      nlohmann::json(console.command_line()).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return options;
}

int import_files(const ImportVerb& verb, Console& console) {
  const Importer& importer = find_importer(verb.importer);
  const ImportOptions options = import_options(verb, console);
  std::optional<runs::Store> store;
  const OpenStore open = [&]() -> runs::Store& {
    return store ? *store : store.emplace(open_to_write(verb.db, console));
  };
  const ImportReport report = importer.import(open, options);
  if (store) store->close();
  for (const Event& event : report.events) {
    event.level == Event::Level::warn ? console.warn(event.code, event.message) : console.note(event.message);
  }
  std::string ids;
  for (const std::string& id : report.run_ids) ids += (ids.empty() ? "" : "\n") + id;
  runs::Section section{.name = "import",
                        .table = {{{.name = "runs"},
                                   {.name = "tasks", .type = runs::CellType::integer},
                                   {.name = "samples", .type = runs::CellType::integer},
                                   {.name = "bench", .type = runs::CellType::integer}},
                                  {{ids, report.n_tasks, report.n_samples, report.n_bench}}},
                        .record = true};
  print(console, {"import", {std::move(section)}}, verb.output);
  return 0;
}

}  // namespace

Action declare_import(Flags& flags) {
  auto options = std::make_shared<ImportVerb>();
  std::string known;
  for (const Importer& importer : importers()) known += (known.empty() ? "" : ", ") + std::string(importer.name);
  flags.argument("KIND", options->importer, known + ".").required = true;
  FlagInfo& files = flags.arguments("FILE", options->files, "The files to read.");
  files.required = true;
  files.kind = "file";
  flags.group("Import");
  flags
      .list("samples", options->samples, "FILE", "Samples files of lm-eval; they may also stand with the others.",
            false)
      .configurable = false;
  flags
      .list("map", options->map, "KEY=VALUE",
            "What the files do not say: model, series, arch, train_tokens, length, ….", false)
      .configurable = false;
  flags.text("name", options->name, "NAME", "A name for the run.").configurable = false;
  flags.text("note", options->note, "TEXT", "A note for people.").configurable = false;
  flags.list("tag", options->tags, "TAG", "A tag.").configurable = false;
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return import_files(*options, console); };
}

}  // namespace hayfork::cli
