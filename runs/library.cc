#include "runs/library.h"

#include <sqlite3.h>

namespace hayfork::runs {

std::string sqlite_version() {
  return sqlite3_libversion();
}

}  // namespace hayfork::runs
