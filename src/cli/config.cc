#include <algorithm>
#include <map>

#include "base/error.h"
#include "cli/output.h"
#include "cli/settings.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

using runs::Cell;

struct ConfigOptions {
  std::string verb;
  bool explain = false;
  OutputOptions output;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

runs::Table settings_table(const std::string& only, bool with_defaults) {
  runs::Table table{{{.name = "verb"}, {.name = "flag"}, {.name = "value"}, {.name = "origin"}}, {}};
  const Settings settings = Settings::load();
  std::map<std::string, bool> seen;  // "verb flag": a verb's parts share their settings
  for (const Command& command : commands()) {
    const std::string verb = command.path.substr(0, command.path.find(' '));
    if (!only.empty() && verb != only) continue;
    Flags flags;
    const Action keep_alive = command.declare(flags);
    for (const auto& info : flags.all()) {
      if (!info->configurable || !seen.emplace(verb + " " + info->name, true).second) continue;
      const auto setting = settings.find(verb, *info);
      if (!setting && !with_defaults) continue;
      table.rows.push_back({Cell(verb), Cell(info->name), setting ? Cell(joined(setting->values)) : Cell(info->preset),
                            Cell(setting ? setting->origin : "default")});
    }
  }
  return table;
}

int run(const ConfigOptions& options, Console& console) {
  const std::vector<std::string> known = verbs();
  if (!options.verb.empty() && std::find(known.begin(), known.end(), options.verb) == known.end()) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "unknown verb \"" + options.verb + "\"",
                {.next = did_you_mean(options.verb, known, "hayfork help lists them")});
  }
  runs::Section section{.name = "settings", .table = settings_table(options.verb, options.explain)};
  if (section.table.rows.empty()) section.notes.push_back("nothing is set; --explain shows the defaults");
  const Settings settings = Settings::load();
  for (const std::string& file : settings.files()) section.notes.push_back("read " + file);
  print(console, {"config", {std::move(section)}}, options.output);
  return 0;
}

}  // namespace

Action declare_config(Flags& flags) {
  auto options = std::make_shared<ConfigOptions>();
  flags.argument("VERB", options->verb, "Only the flags of this verb.");
  flags.toggle("explain", options->explain, "Defaults too: every flag with its value and origin.").configurable = false;
  declare_output(flags, options->output);
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
