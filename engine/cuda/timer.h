// Device time between two points of a context's stream, for benchmarks.
#pragma once

#include "engine/context.h"

namespace hayfork::engine::cuda {

class Timer {
 public:
  explicit Timer(Context& context);  // Requires: a CUDA context, which outlives the timer
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  void start();
  double seconds();  // since start(); waits for the device

 private:
  Context& context_;
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

}  // namespace hayfork::engine::cuda
