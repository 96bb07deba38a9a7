// Files a user names, "-" meaning standard input.
#pragma once

#include <string>

#include "base/error.h"

namespace hayfork::cli {

// Throws: as read_file; corrupt when there is more than `limit_bytes`.
std::string read_input(const std::string& path, ErrorSubject subject, size_t limit_bytes = size_t{1} << 30);

}  // namespace hayfork::cli
