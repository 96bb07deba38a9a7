#include <unistd.h>

#include <algorithm>

#include "base/units.h"
#include "engine/cuda/device.cuh"

namespace hayfork::engine::cuda {

void throw_cuda(cudaError_t error, const char* expression, const char* file, int line) {
  cudaGetLastError();  // a sticky error would be reported again by every later call
  const std::string where = std::string(expression) + " at " + file + ":" + std::to_string(line);
  if (error == cudaErrorMemoryAllocation) {
    throw Error(ErrorCode::resource, ErrorSubject::memory, "out of GPU memory",
                {.where = where, .next = "use a smaller --batch-size, or free the memory other processes hold"});
  }
  throw Error(ErrorCode::device, ErrorSubject::general, std::string("CUDA failed: ") + cudaGetErrorString(error),
              {.where = where, .next = "run `hayfork doctor`; with --device cpu everything runs without a GPU"});
}

void throw_cublas(cublasStatus_t status, const char* expression, const char* file, int line) {
  throw Error(ErrorCode::device, ErrorSubject::general,
              std::string("cuBLAS failed: ") + cublas_lt().GetStatusString(status),
              {.where = std::string(expression) + " at " + file + ":" + std::to_string(line)});
}

namespace {

class CudaBuffer : public Buffer {
 public:
  CudaBuffer(size_t bytes, std::shared_ptr<MemoryCount> count)
      : memory_(std::max<size_t>(bytes, 256), std::move(count)), bytes_(bytes) {}
  void* data() const override { return memory_.data(); }
  size_t bytes() const override { return bytes_; }

 private:
  DeviceMemory memory_;
  size_t bytes_;
};

class CudaHostBuffer : public Buffer {
 public:
  explicit CudaHostBuffer(size_t bytes) : bytes_(bytes) {
    HAY_CUDA(cudaMallocHost(&data_, std::max<size_t>(bytes, 64)));
  }
  ~CudaHostBuffer() override { cudaFreeHost(data_); }
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

class CudaFence : public Fence {
 public:
  explicit CudaFence(cudaStream_t stream) : stream_(stream) { HAY_CUDA(cudaEventCreate(&event_)); }
  ~CudaFence() override { cudaEventDestroy(event_); }
  CudaFence(const CudaFence&) = delete;
  CudaFence& operator=(const CudaFence&) = delete;
  void set() override { HAY_CUDA(cudaEventRecord(event_, stream_)); }
  void wait() override { HAY_CUDA(cudaEventSynchronize(event_)); }
  double ms_since(const Fence& earlier) const override {
    float ms = 0;
    HAY_CUDA(cudaEventElapsedTime(&ms, static_cast<const CudaFence&>(earlier).event_, event_));
    return static_cast<double>(ms);
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

constexpr size_t kAlign = 256;  // of arena memory

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes, std::shared_ptr<MemoryCount> count) : bytes_(bytes), count_(std::move(count)) {
  const cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&data_), bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    const auto text = [](size_t n) { return format_bytes(static_cast<double>(n)); };
    throw Error(ErrorCode::resource, ErrorSubject::memory, "out of GPU memory",
                {.why = text(bytes) + " asked for, " + text(free) + " of " + text(total) + " free",
                 .next = "use a smaller --batch-size, or free the memory other processes hold"});
  }
  HAY_CUDA(error);
  count_->add(static_cast<int64_t>(bytes));
}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  release();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  count_ = std::move(other.count_);
  return *this;
}

void DeviceMemory::release() {
  if (data_ == nullptr) return;
  cudaFree(data_);
  count_->now -= static_cast<int64_t>(bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

void* CudaArena::allocate(size_t bytes) {
  bytes = (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  in_pass_ += bytes;
  peak_ = std::max(peak_, in_pass_);
  if (used_ + bytes <= slab_.bytes()) {
    void* p = slab_.data() + used_;
    used_ += bytes;
    return p;
  }
  overflow_.emplace_back(bytes, count_);
  return overflow_.back().data();
}

void CudaArena::reset() {
  if (!overflow_.empty()) grow(peak_ + peak_ / 8);
  used_ = 0;
  in_pass_ = 0;
  ++n_resets_;
}

void CudaArena::reserve(size_t bytes) {
  reset();
  count_->peak = count_->now;  // what was planned is compared with what is taken from here on
  size_t free = 0, total = 0;
  HAY_CUDA(cudaMemGetInfo(&free, &total));
  if (bytes > slab_.bytes() && bytes < free + slab_.bytes()) grow(bytes);
}

void CudaArena::grow(size_t bytes) {
  HAY_CUDA(cudaStreamSynchronize(stream_));
  overflow_.clear();
  slab_.release();  // first: both would be held at once otherwise
  ++generation_;
  slab_ = DeviceMemory(bytes, count_);
}

void* CudaContext::op_scratch(size_t bytes) {
  const int64_t now = static_cast<CudaArena&>(*arena_).n_resets();
  if (op_scratch_reset_ != now || op_scratch_bytes_ < bytes) {
    op_scratch_ = arena_->allocate(bytes);
    op_scratch_bytes_ = bytes;
    op_scratch_reset_ = now;
  }
  return op_scratch_;
}

CudaContext::CudaContext(int device, DType weights) : Context(Device::cuda, weights, weights), device_index_(device) {
  HAY_CUDA(cudaSetDevice(device));
  HAY_CUDA(cudaGetDeviceProperties(&properties_, device));
  HAY_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  HAY_CUBLAS(cublas_lt().Create(&cublas_));
  workspace_ = DeviceMemory(kWorkspaceBytes, memory_);
  last_ids_ = DeviceMemory(kRememberedIds * sizeof(int32_t), memory_);
  HAY_CUDA(cudaMemsetAsync(last_ids_.data(), 0, last_ids_.bytes(), stream_));
  for (Slab& slab : slabs_) HAY_CUDA(cudaEventCreateWithFlags(&slab.done, cudaEventDisableTiming));
  arena_ = std::make_unique<CudaArena>(stream_, memory_);
}

CudaContext::~CudaContext() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  arena_.reset();
  for (Slab& slab : slabs_) {
    if (slab.host != nullptr) cudaFreeHost(slab.host);
    if (slab.done != nullptr) cudaEventDestroy(slab.done);
  }
  if (cublas_ != nullptr) cublas_lt().Destroy(cublas_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

std::unique_ptr<Buffer> CudaContext::make_buffer(size_t bytes) {
  return std::make_unique<CudaBuffer>(bytes, memory_);
}

std::unique_ptr<Buffer> CudaContext::make_parked_buffer(size_t bytes, size_t parked) {
  if (parked == 0) return make_buffer(bytes);
  return cuda::make_parked_buffer(device_index_, bytes, parked, memory_);
}

// What can be read once a layer in about a second, and leaves the host half of its memory.
int64_t CudaContext::parking_bytes() const {
  constexpr int64_t kMost = int64_t{48} * 1000 * 1000 * 1000;
  return std::min<int64_t>(kMost, int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / 2);
}

std::unique_ptr<Buffer> CudaContext::make_host_buffer(size_t bytes) {
  return std::make_unique<CudaHostBuffer>(bytes);
}

std::unique_ptr<Fence> CudaContext::make_fence() {
  return std::make_unique<CudaFence>(stream_);
}

void CudaContext::fetch(void* to, const void* from, size_t bytes) {
  if (bytes > 0) HAY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
}

void CudaContext::upload(void* to, const void* from_host, size_t bytes) {
  if (bytes == 0) return;
  HAY_CUDA(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, stream_));
  HAY_CUDA(cudaStreamSynchronize(stream_));  // the caller may reuse its memory at once
}

void CudaContext::download(void* to_host, const void* from, size_t bytes) {
  if (bytes == 0) return;
  HAY_CUDA(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, stream_));
  HAY_CUDA(cudaStreamSynchronize(stream_));
}

void CudaContext::copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) HAY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
}

void CudaContext::zero(void* to, size_t bytes) {
  if (bytes > 0) HAY_CUDA(cudaMemsetAsync(to, 0, bytes, stream_));
}

size_t CudaContext::free_bytes() const {
  size_t free = 0, total = 0;
  HAY_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

}  // namespace hayfork::engine::cuda
