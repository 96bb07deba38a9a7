// show diff-config A B: what two runs are and were told to do, where it is not the same.
#include <map>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "runs/pairing.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using runs::Cell;

struct DiffOptions {
  std::vector<std::string> runs;
  bool all = false;
  DbOptions db;
  OutputOptions output;
};

using Settings = std::map<std::string, std::string>;  // "task_options.window" → "4096"

void flatten(const json& value, const std::string& name, Settings& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, one] : value.items()) flatten(one, name.empty() ? key : name + "." + key, out);
  } else {
    out[name] =
        value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
}

Settings settings_of(const runs::RunView& run) {
  const json config = json::parse(run.run.config_json, nullptr, false);
  Settings out;
  if (config.is_object()) flatten(config, "", out);
  return out;
}

int show(const DiffOptions& options, Console& console) {
  if (options.runs.size() != 2) {
    throw Error(ErrorCode::usage, ErrorSubject::general, "show diff-config compares two runs",
                {.next = "hayfork show diff-config @baseline:main @last"});
  }
  runs::Store store = open_to_read(options.db, console);
  const runs::RunView a = store.show_run(store.find_run(options.runs[0]).id),
                      b = store.show_run(store.find_run(options.runs[1]).id);
  runs::Section section{.name = "diff",
                        .table = {{{.name = "part"},
                                   {.name = "key"},
                                   {.name = "a", .title = a.run.run_id},
                                   {.name = "b", .title = b.run.run_id},
                                   {.name = "same", .type = runs::CellType::boolean}},
                                  {}}};
  const auto add = [&](const char* part, const std::string& key, Cell left, Cell right, bool same) {
    if (options.all || !same) section.table.rows.push_back({part, key, std::move(left), std::move(right), same});
  };
  for (const runs::IdentityColumn& column : runs::identity_columns(a, b))
    add("identity", column.name, column.base, column.cand, column.base == column.cand);
  const Settings left = settings_of(a), right = settings_of(b);
  Settings keys = left;
  keys.insert(right.begin(), right.end());
  for (const auto& [key, ignored] : keys) {
    const auto l = left.find(key), r = right.find(key);
    add("config", key, l == left.end() ? Cell() : Cell(l->second), r == right.end() ? Cell() : Cell(r->second),
        l != left.end() && r != right.end() && l->second == r->second);
  }
  if (section.table.rows.empty()) section.notes.emplace_back("nothing differs");
  print(console, {"diff-config", {std::move(section)}}, options.output);
  return 0;
}

}  // namespace

Action declare_show_diff_config(Flags& flags) {
  auto options = std::make_shared<DiffOptions>();
  flags.arguments("RUN", options->runs, "Two runs.").kind = "run";
  flags.group("What is shown");
  flags.toggle("all", options->all, "Also what is the same.").configurable = false;
  declare_db(flags, options->db);
  declare_output(flags, options->output);
  return [options](Console& console) { return show(*options, console); };
}

}  // namespace hayfork::cli
