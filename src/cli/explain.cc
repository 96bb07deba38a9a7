#include <fmt/format.h>

#include "base/error.h"
#include "cli/codes.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

struct ExplainOptions {
  std::string code;
};

int run(const ExplainOptions& options, Console& console) {
  std::string wanted;
  for (const char c : options.code) wanted += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  if (wanted.size() == 4 && (wanted[0] == 'W' || wanted[0] == 'E')) wanted = "HAY-" + wanted;
  std::vector<std::string> known;
  for (const CodeText& text : code_texts()) {
    if (wanted.empty()) console.out(fmt::format("{:<9} {}\n", text.code, text.summary));
    if (text.code == wanted) {
      console.out(fmt::format("{}: {}\n\n{}\n", text.code, text.summary, text.detail));
      return 0;
    }
    known.emplace_back(text.code);
  }
  if (wanted.empty()) return 0;
  throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("unknown code \"{}\"", options.code),
              {.next = did_you_mean(wanted, known, "hayfork explain lists them")});
}

}  // namespace

Action declare_explain(Flags& flags) {
  auto options = std::make_shared<ExplainOptions>();
  flags.argument("CODE", options->code, "HAY-W003, W003 or an exit status; all of them without it.");
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
