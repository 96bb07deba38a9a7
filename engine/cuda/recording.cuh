// A pass's kernels as one CUDA graph. Its pass lies where begin_pass() puts it in the arena, so that a run is an upload
// of rows and tables to the same addresses and one launch.
#pragma once

#include "engine/cuda/device.cuh"

namespace hayfork::engine::cuda {

class CudaRecording : public Recording {
 public:
  explicit CudaRecording(CudaContext& context);
  ~CudaRecording() override;
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  // Captures what `work` queues. False when it took memory that a later pass would not find at the same place.
  bool capture(const std::function<void()>& work);
  void run(const Pass& pass) override;
  bool valid() const override { return generation_ == arena().generation(); }

  // Memory that keeps these bytes as long as the recording; for CudaContext::stage.
  void* keep(const void* from_host, size_t bytes);

 private:
  CudaArena& arena() const { return static_cast<CudaArena&>(context_.arena()); }

  CudaContext& context_;
  cudaGraphExec_t graph_ = nullptr;
  int64_t generation_ = -1;
  std::unique_ptr<Buffer> constants_;
  std::vector<char> kept_;  // host copy of the constants
};

}  // namespace hayfork::engine::cuda
