// Where a run happens: the host's row, and which process it is, so that a dead run can be told from a live one.
#pragma once

#include <cstdint>
#include <string>

#include "runs/rows.h"

namespace hayfork::runs {

// Hostname, processor and operating system; accelerators are the caller's to fill in (gpus_json, driver, cuda).
HostRow this_host();

// boot_id = "<kernel boot id>/<pid namespace>/<start time of the process in ticks>": with the pid it names one process
// among all that ever ran, so a pid that was given away again is not mistaken for the old process.
struct ProcessIdentity {
  int64_t pid = 0;
  std::string boot_id;
};
ProcessIdentity this_process();

enum class Liveness { alive, dead, elsewhere };  // elsewhere: another machine, container or boot: cannot be asked
Liveness liveness(int64_t pid, const std::string& boot_id);

}  // namespace hayfork::runs
