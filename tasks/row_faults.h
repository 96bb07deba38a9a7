// Which rows of a data set its task could not use, before anything is run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "datasets/records.h"

namespace hayfork::tasks {

// One message a row, with file, line and field; none when no task is known that reads a set of this name. Lines that
// are no JSON are left out: whoever read them knows. `where`: the place of each row as messages name it.
std::vector<std::string> row_faults(const std::string& set, const datasets::Records& records,
                                    std::span<const std::string> where);

}  // namespace hayfork::tasks
