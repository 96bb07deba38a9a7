#include "engine/cuda/timer.h"

#include "engine/cuda/device.cuh"

namespace hayfork::engine::cuda {

Timer::Timer(Context& context) : context_(context) {
  HAY_CUDA(cudaEventCreate(reinterpret_cast<cudaEvent_t*>(&begin_)));
  HAY_CUDA(cudaEventCreate(reinterpret_cast<cudaEvent_t*>(&end_)));
}

Timer::~Timer() {
  cudaEventDestroy(static_cast<cudaEvent_t>(begin_));
  cudaEventDestroy(static_cast<cudaEvent_t>(end_));
}

void Timer::start() {
  HAY_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(begin_), of(context_).stream()));
}

double Timer::seconds() {
  HAY_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(end_), of(context_).stream()));
  HAY_CUDA(cudaEventSynchronize(static_cast<cudaEvent_t>(end_)));
  float ms = 0;
  HAY_CUDA(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin_), static_cast<cudaEvent_t>(end_)));
  return static_cast<double>(ms) / 1e3;
}

}  // namespace hayfork::engine::cuda
