// How far a run is: a bar that redraws itself on a terminal, one line every 30 seconds elsewhere, or JSON lines for
// machines (--events jsonl, on standard error). Never part of a result.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/console.h"

namespace hayfork::cli {

struct ProgressState {
  std::string task;
  int64_t n_done = 0, n_total = 0;       // samples
  double work_done = 0, work_total = 0;  // tokens, so that long samples weigh more
  int64_t rows = 0, rows_reused = 0;     // computed and taken over so far
  int64_t n_failed = 0;
};

class Progress {
 public:
  Progress(Console& console, bool events);
  ~Progress();  // wipes the bar

  void preparing(const std::string& task, int64_t n_prepared, int64_t n_total);
  void update(const ProgressState& state);  // cheap: draws only when it is time
  // One JSON line of --events: {"event":kind,…members of `json`}.
  void event(const std::string& kind, const std::string& json_members);

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(const ProgressState& state) const;
  bool due();

  Console& console_;
  bool events_;
  Clock::time_point start_, last_;
  std::string task_;
  double first_work_ = 0;  // what was done already when this task began
};

}  // namespace hayfork::cli
