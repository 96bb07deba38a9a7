// The list of verbs. One entry each; help, completion, documentation and the program itself read it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"
#include "cli/flags.h"

namespace hayfork::cli {

using Action = std::function<int(Console&)>;  // the exit status; errors are thrown

struct Command {
  std::string path;     // "run", "probe logits"
  std::string group;    // heading in the list of verbs
  std::string summary;  // one line
  std::string detail;   // a paragraph for its help text; may be empty
  std::vector<std::string> examples;
  Action (*declare)(Flags&);  // declares the flags and gives what to do once they are parsed
};

std::span<const Command> commands();
const Command& complete_command();  // "__complete": what completion scripts ask; not in the list
// The command named by the first words, and how many of them name it; null when the first word is no verb. The part may
// be left out of "show run" and "list runs".
struct Found {
  const Command* command = nullptr;
  size_t n_words = 0;
};
Found find_command(std::span<const std::string> words);
std::vector<std::string> verbs();                          // first words, in order
std::vector<std::string> parts_of(std::string_view verb);  // second words of one verb: "logits", "nll", …

// Flags every verb has: --quiet, --plain, --debug, --help. They may also stand before the verb.
void declare_global(Flags& flags, ConsoleOptions& options, bool& help);

}  // namespace hayfork::cli
