// What benchmarks of CUDA ops share: the device, and how a call is timed and put beside the device's limits,
// 775 TFLOP/s of bf16 products and 4.2 TB/s of memory (both measured on an H200).
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>

#include "engine/cuda/devices.h"
#include "engine/cuda/timer.h"

namespace hayfork::engine {

constexpr double kFlops = 775e12, kBytes = 4.2e12;

inline Context& gpu() {
  static const std::unique_ptr<Context> context = cuda::make_cuda_context(0, DType::bf16);
  return *context;
}

// Times run(), which makes `calls` calls of `flops` and `bytes` each; 0: not reported. Between two events on the
// stream, which add 3–5 µs.
template <typename F>
void measure(benchmark::State& state, double flops, double bytes, F run, int calls = 1) {
  for (int i = 0; i < 3; ++i) run();
  cuda::Timer timer(gpu());
  double seconds = 0;
  int64_t n = 0;
  for (auto _ : state) {
    timer.start();
    run();
    const double s = timer.seconds() / calls;
    state.SetIterationTime(s);
    seconds += s;
    ++n;
  }
  seconds /= static_cast<double>(n);
  if (flops > 0) state.counters["TFLOP/s"] = flops / seconds / 1e12;
  if (bytes > 0) state.counters["GB/s"] = bytes / seconds / 1e9;
  state.counters["of_floor"] = std::max(flops / kFlops, bytes / kBytes) / seconds;
}

}  // namespace hayfork::engine
