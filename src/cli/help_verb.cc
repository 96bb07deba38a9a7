#include <fmt/format.h>

#include "base/error.h"
#include "cli/help.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

struct HelpOptions {
  std::vector<std::string> words;
  bool markdown = false;
};

int run(const HelpOptions& options, Console& console) {
  if (options.markdown) {
    console.out(help_markdown());
    return 0;
  }
  if (options.words.empty()) {
    console.out(help_overview(console));
    return 0;
  }
  const Found found = find_command(options.words);
  if (found.command != nullptr && found.n_words == options.words.size()) {
    console.out(help_of(*found.command, console));
  } else if (found.command == nullptr && options.words.size() == 1 && !parts_of(options.words[0]).empty()) {
    console.out(help_of_verb(options.words[0], console));
  } else {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("unknown verb \"{}\"", options.words.back()),
                {.next = did_you_mean(options.words[0], verbs(), "hayfork help lists them")});
  }
  return 0;
}

}  // namespace

Action declare_help(Flags& flags) {
  auto options = std::make_shared<HelpOptions>();
  flags.arguments("VERB", options->words, "A verb, or a verb and its part: run, probe logits.");
  flags.toggle("markdown", options->markdown, "Everything, as docs/cli.md.").configurable = false;
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
