// Tasks without C++: a YAML file with lm-evaluation-harness's key names, for the subset that is supported. What is not
// is an error that names the key.
#pragma once

#include <memory>
#include <string>

#include "tasks/document_form.h"
#include "tasks/tasks.h"

namespace hayfork::tasks {

bool is_task_file(std::string_view name);  // "….yaml", "….yml"

// Reads the file. Throws: not_found; usage naming the key (unknown, not supported, of the wrong type, missing) or the
// template and its line.
DocumentForm load_task_file(const std::string& path);

// What the registry gives for a task file; kept for the life of the program. Throws: as load_task_file.
const TaskEntry& task_file_entry(const std::string& path);

}  // namespace hayfork::tasks
