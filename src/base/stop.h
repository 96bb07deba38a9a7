// Asking work to stop: `soft` finishes what is in flight and keeps it, `hard` gives up at the next safe point.
#pragma once

#include <atomic>

namespace hayfork {

class StopFlag {
 public:
  void request_soft() { level_.store(1, std::memory_order_relaxed); }
  void request_hard() { level_.store(2, std::memory_order_relaxed); }
  bool soft() const { return level_.load(std::memory_order_relaxed) >= 1; }
  bool hard() const { return level_.load(std::memory_order_relaxed) >= 2; }

 private:
  std::atomic<int> level_{0};  // lock-free: set from a signal handler
};

}  // namespace hayfork
