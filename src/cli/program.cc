#include "cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
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

// What is stored and printed is text. Only the text to be tokenized may be any bytes.
void require_utf8(const Words& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const bool any_bytes = words[i].starts_with("--text=") || (i > 0 && words[i - 1] == "--text");
    if (any_bytes || !find_invalid_utf8(words[i])) continue;
    throw Error(ErrorCode::usage, ErrorSubject::general, "an argument is not UTF-8",
                {.where = words[i].substr(0, 80),
                 .why = "it would be stored with the run, as text",
                 .next = "give names, notes and paths in UTF-8"});
  }
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
  require_utf8(rest);
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

// What to do now, where an error does not say it itself.
std::string next_step(const Error& error) {
  if (!error.detail().next.empty()) return error.detail().next;
  if (error.code() == ErrorCode::usage) return "hayfork help shows the verbs, and a verb with --help its flags";
  if (error.code() == ErrorCode::unsupported) return "use a checkpoint or an option of the kinds named above";
  if (error.code() == ErrorCode::resource) return "make room, or ask for less at a time";
  if (error.code() == ErrorCode::device) return "hayfork doctor shows the devices; --device cpu needs none";
  if (error.code() == ErrorCode::internal) return "report this with the command that caused it";
  switch (error.subject()) {
    case ErrorSubject::model:
      return "correct the file, or get the checkpoint again from where it came from";
    case ErrorSubject::data:
      return "correct the file at the place named above";
    case ErrorSubject::database:
      return "hayfork db check looks at the whole file; --db names another";
    default:
      return "check the path and its permissions";
  }
}

int report(const Error& unfinished, Console& console) {
  ErrorDetail detail = unfinished.detail();
  detail.next = next_step(unfinished);
  const Error error(unfinished.code(), unfinished.subject(), unfinished.summary(), std::move(detail));
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
  } catch (const std::filesystem::filesystem_error& error) {
    return report(Error(ErrorCode::not_found, ErrorSubject::general, "a path cannot be used",
                        {.where = error.path1().string(), .why = error.code().message()}),
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
