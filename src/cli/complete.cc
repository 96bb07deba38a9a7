#include "cli/complete.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/codes.h"
#include "cli/command.h"
#include "runs/store.h"
#include "tasks/tasks.h"

namespace hayfork::cli {
namespace {

constexpr int kBusyMs = 100;
constexpr int64_t kMaxRuns = 50;

void add(Completion& to, const std::string& partial, const std::string& word, const std::string& about) {
  if (word.starts_with(partial)) to.candidates.push_back({word, about});
}

void add_runs(Completion& to, const std::string& partial, const std::string& db) {
  std::error_code ignored;
  if (!std::filesystem::exists(db, ignored)) return;
  try {
    runs::StoreOptions options;
    options.busy_timeout_ms = kBusyMs;
    runs::Store store = runs::Store::open(db, runs::OpenMode::read_only, {}, options);
    runs::RunFilter filter;
    filter.limit = kMaxRuns;
    add(to, partial, "@last", "the newest run");
    for (const runs::RunListRow& run : store.list_runs(filter)) {
      add(to, partial, run.run_id, fmt::format("{} {} {}", run.model, run.tasks, run.status));
      if (run.name) add(to, partial, *run.name, run.run_id);
    }
  } catch (const Error&) {
    return;
  }
}

void add_tasks(Completion& to, const std::string& partial) {
  const size_t comma = partial.rfind(',');
  const std::string before = comma == std::string::npos ? "" : partial.substr(0, comma + 1);
  for (const tasks::TaskEntry& entry : tasks::task_table()) add(to, partial, before + entry.name, entry.summary);
}

void add_values(Completion& to, const FlagInfo& info, const std::string& partial, const std::string& before,
                const std::string& db) {
  for (const std::string& choice : info.choices) add(to, before + partial, before + choice, "");
  if (info.kind == "file" || info.kind == "dir") to.files = info.kind;
  if (info.kind == "run") add_runs(to, partial, db);
  if (info.kind == "task") add_tasks(to, partial);
  if (info.name == "CODE") {
    for (const CodeText& text : code_texts()) add(to, partial, std::string(text.code), std::string(text.summary));
  }
  if (info.name == "VERB") {
    for (const std::string& verb : verbs()) add(to, partial, verb, "");
  }
}

const FlagInfo* flag_of(const Flags& flags, const std::string& word) {
  if (word.starts_with("--")) return flags.find(fold_underscores(word.substr(2)));
  if (word.size() != 2 || word[0] != '-') return nullptr;
  for (const auto& info : flags.all()) {
    if (info->letter == word[1]) return info.get();
  }
  return nullptr;
}

// How many plain arguments stand before the last word.
size_t n_arguments(const Flags& flags, std::span<const std::string> words) {
  size_t n = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i].starts_with("-") && words[i].size() > 1) {
      const FlagInfo* flag = flag_of(flags, words[i]);
      if (flag != nullptr && !flag->value.empty()) ++i;
    } else {
      ++n;
    }
  }
  return n;
}

void complete_flags(Completion& to, const Flags& flags, const std::string& partial) {
  for (const auto& info : flags.all()) {
    if (!info->argument) add(to, fold_underscores(partial), "--" + info->name, info->help);
  }
}

void complete_command(Completion& to, const Command& command, std::span<const std::string> words,
                      const std::string& db) {
  Flags flags;
  const Action keep_alive = command.declare(flags);
  ConsoleOptions console;
  bool help = false;
  declare_global(flags, console, help);
  const std::string& partial = words.back();
  if (words.size() >= 2) {
    const FlagInfo* before = flag_of(flags, words[words.size() - 2]);
    if (before != nullptr && !before->value.empty()) return add_values(to, *before, partial, "", db);
  }
  if (partial.starts_with("-")) {
    const size_t equals = partial.find('=');
    if (equals == std::string::npos) return complete_flags(to, flags, partial);
    const FlagInfo* flag = flag_of(flags, partial.substr(0, equals));
    if (flag != nullptr) add_values(to, *flag, partial.substr(equals + 1), partial.substr(0, equals + 1), db);
    return;
  }
  size_t n = n_arguments(flags, words);
  for (const auto& info : flags.all()) {
    if (!info->argument) continue;
    if (n == 0 || info->repeated) return add_values(to, *info, partial, "", db);
    --n;
  }
  complete_flags(to, flags, partial);
}

}  // namespace

Completion complete(std::span<const std::string> words, const std::string& db) {
  Completion completion;
  if (words.empty()) return completion;
  if (words.size() == 1) {
    for (const std::string& verb : verbs()) {
      const Found found = find_command(std::vector{verb});
      add(completion, words[0], verb,
          found.command != nullptr && found.command->path == verb ? found.command->summary : "");
    }
    return completion;
  }
  const std::vector<std::string> parts = parts_of(words[0]);
  if (words.size() == 2 && !words[1].starts_with("-")) {
    for (const std::string& part : parts)
      add(completion, words[1], part, find_command(std::vector{words[0], part}).command->summary);
  }
  const Found found = find_command(words.first(words.size() - 1));
  if (found.command != nullptr) complete_command(completion, *found.command, words.subspan(found.n_words), db);
  return completion;
}

}  // namespace hayfork::cli
