#include "cli/help.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "runs/report/table.h"

namespace hayfork::cli {
namespace {

constexpr size_t kWidth = 98;   // fits 100 columns
constexpr size_t kIndent = 30;  // where the explanations begin

struct Declared {
  Flags flags;
  ConsoleOptions console;
  bool help = false;
};

// The flags of a command, the global ones last. The verb's variables live in the action the declaration returns.
std::pair<std::unique_ptr<Declared>, Action> declare(const Command& command) {
  auto declared = std::make_unique<Declared>();
  Action action = command.declare(declared->flags);
  declare_global(declared->flags, declared->console, declared->help);
  return {std::move(declared), std::move(action)};
}

std::string wrapped(const std::string& text, size_t indent, size_t column) {
  std::string out;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = std::min(text.find(' ', begin), text.size());
    const size_t length = end - begin;
    if (column > indent && column + 1 + length > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += " ";
      ++column;
    }
    out += text.substr(begin, length);
    column += length;
    begin = end + 1;
  }
  return out;
}

std::string left_of(const FlagInfo& info) {
  if (info.argument) return info.repeated ? info.name + "…" : info.name;
  std::string text = info.letter != 0 ? fmt::format("-{}, --{}", info.letter, info.name) : "--" + info.name;
  if (!info.value.empty()) text += " " + info.value;
  return text;
}

std::string right_of(const FlagInfo& info) {
  std::string text = info.help;
  if (info.required) text += " Required.";
  if (!info.alias.empty()) text += fmt::format(" Also --{}.", info.alias);
  if (!info.preset.empty()) text += fmt::format(" Default: {}.", info.preset);
  return text;
}

std::string usage_of(const Command& command, const Flags& flags) {
  std::string line = "hayfork " + command.path;
  for (const auto& info : flags.all()) {
    if (!info->argument && info->required) line += fmt::format(" --{} {}", info->name, info->value);
  }
  for (const auto& info : flags.all()) {
    if (!info->argument) continue;
    const std::string name = info->repeated ? info->name + "…" : info->name;
    line += info->required ? " " + name : " [" + name + "]";
  }
  return line + " [options]";
}

std::vector<std::string> groups_of(const Flags& flags) {
  std::vector<std::string> groups;
  for (const auto& info : flags.all()) {
    if (std::find(groups.begin(), groups.end(), info->group) == groups.end()) groups.push_back(info->group);
  }
  // Arguments first, whatever the order of declaration.
  std::stable_partition(groups.begin(), groups.end(), [](const std::string& group) { return group == "Arguments"; });
  return groups;
}

std::string markdown_cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

void append_markdown(const Command& command, std::string& out) {
  const auto [declared, action] = declare(command);
  out += fmt::format("\n### hayfork {}\n\n{}.\n", command.path, command.summary);
  if (!command.detail.empty()) out += "\n" + command.detail + "\n";
  out += fmt::format("\n    {}\n", usage_of(command, declared->flags));
  for (const std::string& example : command.examples) out += fmt::format("    $ {}\n", example);
  std::string rows;
  for (const auto& info : declared->flags.all()) {
    if (info->group == "Everywhere") continue;
    rows += fmt::format("| `{}` | {} |\n", markdown_cell(left_of(*info)), markdown_cell(right_of(*info)));
  }
  if (!rows.empty()) out += "\n| | |\n|---|---|\n" + rows;
}

}  // namespace

std::string help_of(const Command& command, const Console& console) {
  const auto [declared, action] = declare(command);
  const Flags& flags = declared->flags;
  std::string out = fmt::format("{}\n", wrapped(fmt::format("hayfork {}: {}.", command.path, command.summary), 0, 0));
  if (!command.detail.empty()) out += "\n" + wrapped(command.detail, 0, 0) + "\n";
  out += fmt::format("\n{} {}\n", console.styled(Style::bold, "usage:", false), usage_of(command, flags));
  for (const std::string& group : groups_of(flags)) {
    out += fmt::format("\n{}\n", console.styled(Style::bold, group, false));
    for (const auto& info : flags.all()) {
      if (info->group != group) continue;
      const std::string left = "  " + left_of(*info);
      const auto width = static_cast<size_t>(runs::display_width(left));
      if (width + 1 >= kIndent) {
        out += left + "\n" + std::string(kIndent, ' ');
      } else {
        out += left + std::string(kIndent - width, ' ');
      }
      out += wrapped(right_of(*info), kIndent, kIndent) + "\n";
    }
  }
  if (!command.examples.empty()) {
    out += fmt::format("\n{}\n", console.styled(Style::bold, "Examples", false));
    for (const std::string& example : command.examples) out += "  " + example + "\n";
  }
  return out;
}

std::string help_of_verb(const std::string& verb, const Console& console) {
  std::string out = fmt::format("hayfork {}: one of\n\n", verb);
  for (const Command& command : commands()) {
    if (command.path == verb || command.path.starts_with(verb + " ")) {
      out += fmt::format("  {:<22}{}\n", command.path, wrapped(command.summary, 24, 24));
    }
  }
  return out + fmt::format("\n{} hayfork {} … --help\n", console.styled(Style::bold, "more:", false), verb);
}

std::string help_overview(const Console& console) {
  std::string out = "hayfork: evaluates long-context language models.\n\n";
  out += console.styled(Style::bold, "usage:", false) + " hayfork VERB [options]\n";
  std::string group;
  std::string last_verb;
  for (const Command& command : commands()) {
    if (command.group != group) {
      group = command.group;
      out += fmt::format("\n{}\n", console.styled(Style::bold, group, false));
    }
    const std::string verb = command.path.substr(0, command.path.find(' '));
    if (verb == last_verb) continue;
    last_verb = verb;
    const std::vector<std::string> parts = parts_of(verb);
    std::string summary = command.summary;
    if (!parts.empty()) {
      summary = verb == command.path ? summary + "; also" : "";
      for (const std::string& part : parts) summary += (summary.empty() ? "" : " ") + part;
    }
    out += fmt::format("  {:<12}{}\n", verb, wrapped(summary, 14, 14));
  }
  out += fmt::format(
      "\n{}\n  hayfork help VERB, hayfork VERB --help     flags of one verb, with their defaults\n"
      "  flag > HAYFORK_<FLAG> > hayfork.yaml > user's config.yaml > default (hayfork config --explain)\n"
      "  exit status: 0 done, 1 gate failed, 2 usage, 3 inconclusive, 4 partial, 5 nothing selected, 6 storage,\n"
      "  7 model, 8 memory, 9 remote engine, 10 device, 11 data, 70 internal, 130/143 stopped by a signal\n",
      console.styled(Style::bold, "More", false));
  return out;
}

std::string help_markdown() {
  std::string out =
      "# The command line\n\nMade by `scripts/make_cli_docs.sh` from the program's own help; a test compares them.\n\n"
      "Every verb also takes `--help`, `--quiet` (no notes, no progress), `--plain` (no colour, no bar) and `--debug`. "
      "`--num_fewshot` and `--num-fewshot` are the same flag. Values come from the flag, then `HAYFORK_<FLAG>`, then "
      "`hayfork.yaml` (from the working folder up to the git root), then `$XDG_CONFIG_HOME/hayfork/config.yaml`, then "
      "the default; `hayfork config --explain` shows which. Results go to standard output, everything else to standard "
      "error.\n\n"
      "| exit | meaning | exit | meaning |\n|---|---|---|---|\n"
      "| 0 | done | 7 | model or tokenizer cannot be loaded, or is not supported |\n"
      "| 1 | gate failed | 8 | out of memory after all fallbacks |\n"
      "| 2 | usage or configuration error, nothing was run | 9 | remote engine unusable |\n"
      "| 3 | gate inconclusive | 10 | device missing, too old, lost or not supported |\n"
      "| 4 | partial: samples or tasks failed, or truncation under `--strict` | 11 | data set or request file missing "
      "or malformed |\n"
      "| 5 | nothing selected | 70 | internal error |\n"
      "| 6 | storage: not writable, full, newer schema, locked | 130, 143 | stopped by SIGINT, SIGTERM after a clean "
      "checkpoint |\n";
  std::string group;
  for (const Command& command : commands()) {
    if (command.group != group) {
      group = command.group;
      out += "\n## " + group + "\n";
    }
    append_markdown(command, out);
  }
  return out;
}

}  // namespace hayfork::cli
