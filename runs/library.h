// The SQLite in use.
#pragma once

#include <string>

namespace hayfork::runs {

std::string sqlite_version();  // "3.40.1"

}  // namespace hayfork::runs
