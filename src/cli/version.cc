#include "base/version.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"
#include "runs/store.h"

namespace hayfork::cli {
namespace {

struct VersionOptions {
  bool json = false;
};

int run(const VersionOptions& options, Console& console) {
  if (options.json) {
    const nlohmann::ordered_json value = {{"schema", "hayfork/version/1"},
                                          {"version", version()},
                                          {"commit", commit()},
                                          {"dirty", commit_dirty()},
                                          {"db_schema", runs::schema_version()},
                                          {"compiler", __VERSION__}};
    console.out(value.dump() + "\n");
    return 0;
  }
  const std::string_view full = commit();
  console.out(fmt::format("hayfork {} ({}{})\n", version(), full.substr(0, 7), commit_dirty() ? ", changed" : ""));
  return 0;
}

}  // namespace

Action declare_version(Flags& flags) {
  auto options = std::make_shared<VersionOptions>();
  flags.toggle("json", options->json, "As JSON, with the database schema this program writes.").configurable = false;
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
