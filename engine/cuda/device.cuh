// The CUDA device layer: error wrappers, the context behind Context for Device::cuda, and the device copy of a pass.
// Included by .cu files only.
#pragma once

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/context.h"
#include "engine/rows.h"

namespace hayfork::engine::cuda {

[[noreturn]] void throw_cuda(cudaError_t error, const char* expression, const char* file, int line);
[[noreturn]] void throw_cublas(cublasStatus_t status, const char* expression, const char* file, int line);

// Rows of one sequence that read its K/V together: prefill-kind base rows of up to kTileRows, in pass order.
struct RowTile {
  int32_t first;  // row index in the pass
  int32_t n;      // rows, consecutive in the pass
  int32_t seq;
  int32_t min_pos;  // smallest and largest position among them
  int32_t max_pos;
  Stream stream;
};
constexpr int32_t kTileRows = 128;

// Rows that go through the split-KV kernel: decode rows, and output rows of prefill kind (rulings A4). Rows of one
// sequence stand together so that K/V are read once for an Orthros pair.
struct SplitItem {
  int32_t first;  // offset into DevicePass::split_rows
  int32_t n;      // rows
  int32_t seq;
  int32_t max_pos;
};
constexpr int32_t kSplitRows = 4;  // rows an item at most

// A stretch of items of one row kind (the kind decides how keys are cut into segments).
struct SplitRun {
  RowKind kind;
  int32_t first_item, n_items;
  int32_t n_rows;
  int32_t max_pos;
};

// What kernels read of the pass in flight, in device memory.
struct DevicePass {
  const Row* rows = nullptr;
  int32_t n_rows = 0;
  const int32_t* tables = nullptr;  // [n_seqs][n_groups][max_blocks]
  int32_t n_groups = 0;
  int32_t max_blocks = 0;
  const RowTile* tiles = nullptr;
  int32_t n_tiles = 0;
  const SplitItem* items = nullptr;
  int32_t n_items = 0;
  const int32_t* split_rows = nullptr;  // row indices
  int32_t n_split_rows = 0;
  int32_t max_pos = -1;  // over all rows
};

__host__ __device__ inline const int32_t* block_table(const DevicePass& pass, int32_t seq, int32_t group) {
  return pass.tables + (static_cast<int64_t>(seq) * pass.n_groups + group) * pass.max_blocks;
}

class CudaContext : public Context {
 public:
  CudaContext(int device, DType weights);
  ~CudaContext() override;

  std::unique_ptr<Buffer> make_buffer(size_t bytes) override;
  void upload(void* to, const void* from_host, size_t bytes) override;
  void download(void* to_host, const void* from, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void zero(void* to, size_t bytes) override;
  size_t free_bytes() const override;
  void begin_pass(const Pass& pass) override;

  cudaStream_t stream() const { return stream_; }
  cublasLtHandle_t cublas() const { return cublas_; }
  void* workspace() const { return workspace_; }
  size_t workspace_bytes() const { return kWorkspaceBytes; }
  const DevicePass& pass() const { return device_pass_; }
  const std::vector<SplitRun>& split_runs() const { return split_runs_; }
  const SplitItem& split_item(int32_t i) const { return split_items_[static_cast<size_t>(i)]; }
  // The device copy of a stretch of the pass's rows. Requires: `rows` lies inside the pass in flight.
  const Row* device_rows(std::span<const Row> rows) const;
  const cudaDeviceProp& properties() const { return properties_; }

  // Copies host bytes through the pinned staging ring into arena memory; ordered on the stream.
  void* stage(const void* from_host, size_t bytes);

 private:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // cuBLAS asks for 32 MiB on Hopper

  int device_index_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t cublas_ = nullptr;
  void* workspace_ = nullptr;
  DevicePass device_pass_;
  std::span<const Row> host_rows_;
  std::vector<SplitItem> split_items_;
  std::vector<SplitRun> split_runs_;
  // Two pinned slabs used in turn: the host fills one while the copy of the other may still run.
  struct Slab {
    char* host = nullptr;
    size_t capacity = 0, used = 0;
    cudaEvent_t done = nullptr;
  };
  Slab slabs_[2];
  int slab_ = 0;
};

inline CudaContext& of(Context& context) {
  return static_cast<CudaContext&>(context);
}

// Device arithmetic helpers.
__device__ inline float load(const float* p) {
  return *p;
}
__device__ inline float load(const __nv_bfloat16* p) {
  return __bfloat162float(*p);
}
__device__ inline void store(float* p, float v) {
  *p = v;
}
__device__ inline void store(__nv_bfloat16* p, float v) {
  *p = __float2bfloat16_rn(v);
}
// v rounded as the activation type rounds it.
template <typename T>
__device__ inline float rounded(float v);
template <>
__device__ inline float rounded<float>(float v) {
  return v;
}
template <>
__device__ inline float rounded<__nv_bfloat16>(float v) {
  return __bfloat162float(__float2bfloat16_rn(v));
}

// Calls f with a value of the activation's element type.
template <typename F>
void with_type(DType type, F f) {
  if (type == DType::bf16) {
    f(__nv_bfloat16{});
  } else {
    HAY_CHECK(type == DType::f32);
    f(float{});
  }
}

}  // namespace hayfork::engine::cuda

#define HAY_CUDA(expression)                                                                                       \
  do {                                                                                                             \
    const cudaError_t hay_error = (expression);                                                                    \
    if (hay_error != cudaSuccess) ::hayfork::engine::cuda::throw_cuda(hay_error, #expression, __FILE__, __LINE__); \
  } while (false)
#define HAY_CUBLAS(expression)                                                            \
  do {                                                                                    \
    const cublasStatus_t hay_status = (expression);                                       \
    if (hay_status != CUBLAS_STATUS_SUCCESS)                                              \
      ::hayfork::engine::cuda::throw_cublas(hay_status, #expression, __FILE__, __LINE__); \
  } while (false)
#define HAY_LAUNCHED() HAY_CUDA(cudaGetLastError())
