// Completion scripts: each asks the program itself (`hayfork __complete`), so that all shells know the same.

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/complete.h"
#include "cli/output.h"
#include "cli/settings.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

namespace hayfork::cli {
namespace {

// Answers are lines "word<TAB>about"; a line ":file" or ":dir" asks the shell to add paths.
constexpr const char* kBash = R"(# hayfork completion for bash: source <(hayfork completion bash)
_hayfork() {
  local line cur="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=()
  while IFS= read -r line; do
    case "$line" in
      :file) compopt -o filenames; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$cur") ;;
      :dir) compopt -o filenames; while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "$cur") ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <(hayfork __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _hayfork hayfork
)";

constexpr const char* kZsh = R"(#compdef hayfork
# hayfork completion for zsh: source <(hayfork completion zsh), or as _hayfork in a folder of $fpath
_hayfork() {
  local line word about
  local -a entries
  while IFS= read -r line; do
    case "$line" in
      :file) _files ;;
      :dir) _files -/ ;;
      *) word="${line%%$'\t'*}"; about="${line#*$'\t'}"; entries+=("${word//:/\\:}:$about") ;;
    esac
  done < <(hayfork __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
  (( ${#entries} )) && _describe hayfork entries
}
if [ "$funcstack[1]" = "_hayfork" ]; then _hayfork "$@"; else compdef _hayfork hayfork; fi
)";

constexpr const char* kFish =
    R"(# hayfork completion for fish: hayfork completion fish > ~/.config/fish/completions/hayfork.fish
function __hayfork_complete
  set -l words (commandline -opc)[2..-1] (commandline -ct)
  for line in (hayfork __complete -- $words 2>/dev/null)
    switch $line
      case ':file'
        __fish_complete_path (commandline -ct)
      case ':dir'
        __fish_complete_directories (commandline -ct)
      case '*'
        echo $line
    end
  end
end
complete -c hayfork -f -a '(__hayfork_complete)'
)";

constexpr const char* kPowershell =
    R"(# hayfork completion for PowerShell: hayfork completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName hayfork -ScriptBlock {
  param($wordToComplete, $commandAst, $cursorPosition)
  $words = @($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object { $_.ToString() })
  if ($wordToComplete -eq '') { $words += '' }
  hayfork __complete -- @words 2>$null | ForEach-Object {
    $word, $about = $_ -split "`t", 2
    if ($word -ne ':file' -and $word -ne ':dir') {
      if (-not $about) { $about = $word }
      [System.Management.Automation.CompletionResult]::new($word, $word, 'ParameterValue', $about)
    }
  }
}
)";

struct CompletionOptions {
  std::string shell;
};

int run(const CompletionOptions& options, Console& console) {
  static const std::vector<std::string> shells = {"bash", "zsh", "fish", "powershell"};
  const auto found = std::find(shells.begin(), shells.end(), options.shell);
  if (found == shells.end()) {
    throw Error(ErrorCode::usage, ErrorSubject::general, fmt::format("unknown shell \"{}\"", options.shell),
                {.why = "want bash, zsh, fish or powershell", .next = did_you_mean(options.shell, shells, "")});
  }
  static constexpr const char* kScripts[] = {kBash, kZsh, kFish, kPowershell};
  console.out(kScripts[found - shells.begin()]);
  return 0;
}

struct CompleteOptions {
  std::vector<std::string> words;
};

int answer(const CompleteOptions& options, Console& console) {
  const std::string db = environment("HAYFORK_DB");
  const Completion completion = complete(options.words, db.empty() ? "runs.db" : db);
  for (const Candidate& candidate : completion.candidates) {
    const size_t stop = candidate.about.find(". ");  // the first sentence will do
    console.out(fmt::format("{}\t{}\n", candidate.word, candidate.about.substr(0, stop)));
  }
  if (!completion.files.empty()) console.out(":" + completion.files + "\n");
  return 0;
}

}  // namespace

Action declare_completion(Flags& flags) {
  auto options = std::make_shared<CompletionOptions>();
  FlagInfo& shell = flags.argument("SHELL", options->shell, "bash, zsh, fish or powershell.");
  shell.required = true;
  shell.choices = {"bash", "zsh", "fish", "powershell"};
  return [options](Console& console) { return run(*options, console); };
}

Action declare_complete(Flags& flags) {
  auto options = std::make_shared<CompleteOptions>();
  flags.arguments("WORDS", options->words, "The words so far, behind --.");
  return [options](Console& console) { return answer(*options, console); };
}

}  // namespace hayfork::cli
