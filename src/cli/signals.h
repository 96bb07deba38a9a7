// Ctrl-C and SIGTERM as a StopFlag. The first asks for a soft stop: what is in flight is finished and kept. The second
// ends the process at once; the database is made for that.
#pragma once

#include "base/stop.h"

namespace hayfork::cli {

// Catches SIGINT and SIGTERM while it lives. One at a time.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

  const StopFlag& flag() const { return flag_; }
  StopFlag& flag() { return flag_; }
  int exit_status() const;  // 130 or 143 once a signal came, else 0

 private:
  StopFlag flag_;
};

}  // namespace hayfork::cli
