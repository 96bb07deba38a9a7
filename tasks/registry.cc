// The table of tasks: a new one is a line here. (Objects that register themselves would be dropped by the linker.)
#include <algorithm>
#include <numeric>

#include "tasks/choice.h"
#include "tasks/custom.h"
#include "tasks/forms/forms.h"
#include "tasks/groups.h"
#include "tasks/niah.h"
#include "tasks/opencompass.h"
#include "tasks/recall.h"
#include "tasks/rolling.h"
#include "tasks/ruler.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {
namespace {

// Optimal string alignment distance: insertions, deletions, changes and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::unique_ptr<Task> make_lm_eval(const std::string& name, const TaskOptions& options, const TextContext& text) {
  for (const DocumentForm& form : lm_eval_forms())
    if (form.name == name) return make_choice_task(form, options, text);
  HAY_CHECK(false, name);
}

void add_choice_tasks(std::vector<TaskEntry>& table) {
  for (auto make : {choice_groups, rolling_tasks, recall_tasks, opencompass_tasks})
    for (TaskEntry& entry : make()) table.push_back(std::move(entry));
  for (const DocumentForm& form : lm_eval_forms())
    table.push_back({form.name,
                     "choice",
                     "choice",
                     "multiple choice, as lm-evaluation-harness asks it",
                     {},
                     choice_options(),
                     make_lm_eval});
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view wrong, std::span<const std::string> names) {
  wrong = wrong.substr(0, 64);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& candidate : names) {
    const size_t d = edit_distance(wrong, candidate);
    const bool part = wrong.size() >= 3 && candidate.find(wrong) != std::string::npos;
    if (d <= std::max<size_t>(2, candidate.size() / 3) || part)
      near.emplace_back(part ? std::min<size_t>(d, 1) : d, candidate);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> out;
  for (size_t i = 0; i < near.size() && i < 3; ++i) out.push_back(near[i].second);
  return out;
}

const std::vector<TaskEntry>& task_table() {
  static const std::vector<TaskEntry> kTable = [] {
    std::vector<TaskEntry> table = {
        {"niah",
         "niah",
         "generate",
         "needle in a haystack: a grid of context lengths and depths",
         {},
         niah_options(),
         make_niah,
         nullptr},
        {"ruler",
         "ruler",
         "group",
         "RULER: thirteen synthetic tasks at fixed lengths",
         ruler_members(),
         {},
         nullptr,
         fold_ruler_group,
         "1",
         "ruler/p1",
         "score",
         {{"score"},
          {"wavg_inc"},
          {"wavg_dec"},
          {"effective_length", true, "largest", "tokens"},
          {"effective_length_ci", true, "largest", "tokens"}}},
    };
    for (const std::string& name : ruler_members())
      table.push_back(
          {name, "ruler", "generate", "one of RULER's thirteen tasks", {}, ruler_options(), make_ruler, nullptr});
    add_choice_tasks(table);
    return table;
  }();
  return kTable;
}

const TaskEntry& find_task(std::string_view name) {
  if (is_task_file(name)) return task_file_entry(std::string(name));
  std::vector<std::string> names;
  for (const TaskEntry& entry : task_table()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  std::string next = "hayfork list tasks shows all";
  const std::vector<std::string> near = nearest_names(name, names);
  if (!near.empty()) {
    next = "did you mean " + near[0];
    for (size_t i = 1; i < near.size(); ++i) next += (i + 1 == near.size() ? " or " : ", ") + near[i];
    next += "?";
  }
  throw Error(ErrorCode::usage, ErrorSubject::general, "unknown task \"" + std::string(name) + "\"", {"", "", next});
}

std::vector<std::string> expand_tasks(std::span<const std::string> names) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& task) {
    if (std::find(out.begin(), out.end(), task) == out.end()) out.push_back(task);
  };
  for (const std::string& asked : names) {
    const TaskEntry& entry = find_task(asked);
    if (entry.members.empty())
      add(entry.name);
    else
      for (const std::string& member : expand_tasks(entry.members)) add(member);
  }
  return out;
}

std::unique_ptr<Task> make_task(std::string_view name, const TaskOptions& options, const TextContext& text) {
  const TaskEntry& entry = find_task(name);
  if (entry.make == nullptr)
    throw Error(ErrorCode::usage, ErrorSubject::general, entry.name + " is a group", {"", "", "run its members"});
  return entry.make(entry.name, options, text);
}

}  // namespace hayfork::tasks
