// task validate: a task file and its rows, before anything is run.
#include <fmt/format.h>

#include "base/error.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "tasks/custom.h"

namespace hayfork::cli {
namespace {

struct ValidateOptions {
  std::string file, data;
  OutputOptions output;
};

int run(const ValidateOptions& options, Console& console) {
  using runs::CellType;
  const tasks::DocumentForm form = tasks::load_task_file(options.file);
  tasks::TaskOptions task_options;
  task_options.data_dir = options.data;
  runs::Section section{.name = "validate",
                        .table = {{{.name = "task"},
                                   {.name = "split"},
                                   {.name = "rows", .type = CellType::integer},
                                   {.name = "faults", .type = CellType::integer},
                                   {.name = "first_fault"}},
                                  {}}};
  int64_t n_faults = 0;
  std::vector<std::string> splits = {form.eval_split()};
  if (form.num_fewshot > 0 && form.pool_split() != splits[0]) splits.push_back(form.pool_split());
  for (const std::string& name : splits) {
    const tasks::Split split = tasks::open_split(task_options, form.data, name, form.name);
    int64_t faults = 0;
    std::string first;
    for (int64_t i = 0; i < split.size(); ++i) {
      const std::string where = split.where(i);
      try {
        form.document(tasks::Fields(split.value(i), where));
      } catch (const Error& error) {  // this row's; all are counted
        if (error.subject() != ErrorSubject::data) throw;
        if (faults++ == 0) first = error.what();
      }
    }
    n_faults += faults;
    section.table.rows.push_back({form.name, name, split.size(), faults, runs::Cell(first)});
  }
  print(console, {"task-validate", {std::move(section)}}, options.output);
  return n_faults == 0 ? 0 : 11;
}

}  // namespace

Action declare_task_validate(Flags& flags) {
  auto options = std::make_shared<ValidateOptions>();
  FlagInfo& file = flags.argument("FILE", options->file, "The task file.");
  file.required = true;
  file.kind = "file";
  flags.text("data", options->data, "DIR", "Folder of data sets.").kind = "dir";
  declare_output(flags, options->output);
  return [options](Console& console) { return run(*options, console); };
}

}  // namespace hayfork::cli
