#include "cli/command.h"

#include <algorithm>
#include <string>

#include "cli/verbs.h"

namespace hayfork::cli {

Found find_command(std::span<const std::string> words) {
  Found found;
  for (const Command& command : commands()) {
    if (words.size() >= 2 && command.path == words[0] + " " + words[1]) return {&command, 2};
    if (!words.empty() && command.path == words[0]) found = {&command, 1};
  }
  if (found.command != nullptr || words.empty()) return found;
  if (words[0] == complete_command().path) return {&complete_command(), 1};
  const bool bare = words.size() < 2 || words[1].starts_with("-");
  const bool one_word = bare || words.size() < 3 || words[2].starts_with("-");  // "show mdoel swa" is no run
  const std::string assumed = words[0] == "show" && one_word ? "show run"
                              : words[0] == "list" && bare   ? "list runs"
                                                             : "";
  for (const Command& command : commands()) {
    if (command.path == assumed) return {&command, 1};
  }
  return found;
}

std::vector<std::string> verbs() {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    const std::string verb = command.path.substr(0, command.path.find(' '));
    if (std::find(names.begin(), names.end(), verb) == names.end()) names.push_back(verb);
  }
  return names;
}

std::vector<std::string> parts_of(std::string_view verb) {
  std::vector<std::string> parts;
  const std::string prefix = std::string(verb) + " ";
  for (const Command& command : commands()) {
    if (command.path.starts_with(prefix)) parts.push_back(command.path.substr(prefix.size()));
  }
  return parts;
}

void declare_global(Flags& flags, ConsoleOptions& options, bool& help) {
  flags.group("Everywhere");
  flags.toggle("q,quiet", options.quiet, "No notes and no progress; warnings and errors stay.");
  flags.toggle("plain", options.plain, "No colour and no progress bar, as when the output is no terminal.");
  flags.toggle("debug", options.debug, "Also the kind of an error, its exit status and the commit.");
  flags.toggle("h,help", help, "This text.").configurable = false;
}

}  // namespace hayfork::cli
