#include "engine/cuda/recording.cuh"

#include <algorithm>

namespace hayfork::engine::cuda {
namespace {

constexpr size_t kConstantBytes = size_t{1} << 20;  // rotary frequencies and the like: a few kilobytes

// Ends the capture whatever happens in between: a stream left in capture mode takes no other work.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    HAY_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  }
  ~Capture() {
    if (graph_ == nullptr && !ended_) cudaStreamEndCapture(stream_, &graph_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    cudaGetLastError();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  cudaGraph_t end() {
    ended_ = true;
    HAY_CUDA(cudaStreamEndCapture(stream_, &graph_));
    return graph_;
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  bool ended_ = false;
};

// Sets a pointer for as long as it lives.
class Among {
 public:
  Among(CudaRecording*& place, CudaRecording* value) : place_(place) { place = value; }
  ~Among() { place_ = nullptr; }
  Among(const Among&) = delete;
  Among& operator=(const Among&) = delete;

 private:
  CudaRecording*& place_;
};

}  // namespace

CudaRecording::CudaRecording(CudaContext& context) : context_(context) {}

CudaRecording::~CudaRecording() {
  if (graph_ == nullptr) return;
  cudaStreamSynchronize(context_.stream());  // it may still run
  cudaGraphExecDestroy(graph_);
}

void* CudaRecording::keep(const void* from_host, size_t bytes) {
  const size_t at = kept_.size();
  kept_.resize(at + (std::max<size_t>(bytes, 1) + 255) / 256 * 256);
  HAY_CHECK(kept_.size() <= kConstantBytes, "a recording stages too much");
  if (bytes > 0) std::copy_n(static_cast<const char*>(from_host), bytes, kept_.begin() + static_cast<int64_t>(at));
  return static_cast<char*>(constants_->data()) + at;
}

bool CudaRecording::capture(const std::function<void()>& work) {
  constants_ = context_.make_buffer(kConstantBytes);
  kept_.reserve(kConstantBytes);
  context_.arena().reset();  // the slab grows now if it has to
  {
    Capture capture(context_.stream());
    {
      const Among among(context_.recording_, this);
      work();
    }
    const cudaGraph_t graph = capture.end();
    if (!arena().in_one_slab()) return false;
    HAY_CUDA(cudaGraphInstantiate(&graph_, graph, 0));
  }
  generation_ = arena().generation();
  context_.upload(constants_->data(), kept_.data(), kept_.size());
  return true;
}

void CudaRecording::run(const Pass& pass) {
  HAY_CHECK(valid() && context_.recording_ == nullptr);
  context_.arena().reset();
  HAY_CHECK(valid());
  context_.begin_pass(pass);
  HAY_CUDA(cudaGraphLaunch(graph_, context_.stream()));
}

std::unique_ptr<Recording> CudaContext::record(const std::function<void()>& work) {
  auto recording = std::make_unique<CudaRecording>(*this);
  if (!recording->capture(work)) return nullptr;
  return recording;
}

}  // namespace hayfork::engine::cuda
