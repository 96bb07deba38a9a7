#include "cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/help.h"
#include "cli/settings.h"
#include "cli/suggest.h"

namespace hayfork::cli {
namespace {

using Words = std::vector<std::string>;

bool is_global(const std::string& word) {
  return word == "--quiet" || word == "--plain" || word == "--debug" || word == "--help" || word == "-h" ||
         word == "-q";
}

// Global flags may stand before the verb; they are moved behind it.
Words verb_first(Words words) {
  size_t n = 0;
  while (n < words.size() && is_global(words[n])) ++n;
  std::rotate(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(n), words.end());
  return words;
}

[[noreturn]] void unknown_verb(const std::string& word) {
  const bool flag = word.starts_with("-");
  throw Error(
      ErrorCode::usage, ErrorSubject::general, fmt::format("unknown {} \"{}\"", flag ? "flag" : "verb", word),
      {.next = flag ? "a verb comes first: hayfork help" : did_you_mean(word, verbs(), "hayfork help lists them")});
}

// A verb that only has parts ("probe") and was given none, or one that is not there.
int incomplete_verb(const std::string& verb, const Words& words, Console& console) {
  const bool bare = words.size() < 2 || words[1].starts_with("-");
  if (bare && std::find_if(words.begin(), words.end(),
                           [](const std::string& w) { return w == "--help" || w == "-h"; }) != words.end()) {
    console.out(help_of_verb(verb, console));
    return 0;
  }
  const std::vector<std::string> parts = parts_of(verb);
  std::string list;
  for (const std::string& part : parts) list += (list.empty() ? "" : ", ") + part;
  throw Error(ErrorCode::usage, ErrorSubject::general,
              bare ? fmt::format("hayfork {} needs to know what", verb)
                   : fmt::format("hayfork {}: unknown part \"{}\"", verb, words[1]),
              {.why = "want one of: " + list, .next = bare ? "" : did_you_mean(words[1], parts, "")});
}

int dispatch(const Words& words, Console& console, ConsoleOptions& options) {
  const Found found = find_command(words);
  if (found.command == nullptr) {
    if (!parts_of(words[0]).empty()) return incomplete_verb(words[0], words, console);
    unknown_verb(words[0]);
  }
  const Command& command = *found.command;
  Flags flags;
  bool help = false;
  const Action action = command.declare(flags);
  declare_global(flags, options, help);
  const Words rest(words.begin() + static_cast<std::ptrdiff_t>(found.n_words), words.end());
  const bool asks_help = std::find_if(rest.begin(), rest.end(),
                                      [](const std::string& w) { return w == "--help" || w == "-h"; }) != rest.end();
  if (asks_help && (rest.size() == 1 || flags.find("text") == nullptr)) {  // --help works whatever else is wrong
    const bool part_left_out = found.n_words == 1 && command.path.find(' ') != std::string::npos;
    console.out(part_left_out ? help_of_verb(words[0], console) : help_of(command, console));
    return 0;
  }
  flags.parse(rest);
  if (help) {
    console.out(help_of(command, console));
    return 0;
  }
  const std::string verb = command.path.substr(0, command.path.find(' '));
  if (verb != "help" && verb != "version" && verb != "completion" && verb != "explain" && verb != "__complete") {
    Settings::load().apply(verb, flags);
  }
  flags.check_required(command.path);
  console.configure(options);
  return action(console);
}

int run_words(Words words, Console& console, ConsoleOptions& options) {
  words = verb_first(std::move(words));
  if (words.empty() || words[0] == "--help" || words[0] == "-h") {
    if (words.empty()) {
      throw Error(ErrorCode::usage, ErrorSubject::general, "no verb",
                  {.next = "hayfork help lists them; hayfork demo shows what it does"});
    }
    console.out(help_overview(console));
    return 0;
  }
  if (words[0] == "--version" || words[0] == "-V") words[0] = "version";
  return dispatch(words, console, options);
}

int report(const Error& error, Console& console) {
  console.error(error);
  if (console.debug()) {
    console.note(fmt::format("debug {} error, exit {}; hayfork {} {}", name(error.code()), exit_code(error), version(),
                             commit()));
  }
  return exit_code(error);
}

// Results that cannot be written are an error of their own, whatever the verb said.
int guarded(const std::function<int()>& body, Console& console) {
  try {
    return body();
  } catch (const Error& error) {
    return report(error, console);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorCode::resource, ErrorSubject::memory, "out of memory",
                        {.next = "give a smaller --batch-size or a shorter length"}),
                  console);
  } catch (const std::exception& error) {
    return report(Error(ErrorCode::internal, ErrorSubject::general, fmt::format("internal error: {}", error.what()),
                        {.where = fmt::format("hayfork {} {}", version(), commit()),
                         .next = "report this with the command that caused it"}),
                  console);
  }
}

}  // namespace

int run_program(int argc, char** argv) {
  ConsoleOptions options;
  Words words(argv + (argc > 0 ? 1 : 0), argv + argc);
  for (const std::string& word : words) {
    options.plain |= word == "--plain";
    options.quiet |= word == "--quiet" || word == "-q";
  }
  Console console(options);
  console.set_command_line(words);
  const int status = guarded([&] { return run_words(std::move(words), console, options); }, console);
  const int written = guarded(
      [&] {
        console.finish();
        return 0;
      },
      console);
  return status != 0 ? status : written;
}

}  // namespace hayfork::cli
