// The CUDA device layer: error wrappers, the context behind Context for Device::cuda, and the device copy of a pass.
// Included by .cu files only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/context.h"
#include "engine/cuda/cublas_lt.cuh"
#include "engine/rows.h"

namespace hayfork::engine::cuda {

[[noreturn]] void throw_cuda(cudaError_t error, const char* expression, const char* file, int line);
[[noreturn]] void throw_cublas(cublasStatus_t status, const char* expression, const char* file, int line);

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

namespace hayfork::engine::cuda {

// Rows of one sequence that read its K/V together: prefill-kind base rows, in pass order.
struct RowTile {
  int32_t first;  // row index in the pass
  int32_t n;      // rows, consecutive in the pass
  int32_t seq;
  int32_t min_pos;  // smallest and largest position among them
  int32_t max_pos;
  Stream stream;
};
constexpr int32_t kTileRows = 128, kWideTileRows = 192;  // rows a tile of either list has at most

// Rows that go through the split-KV kernel: decode rows, and output rows of prefill kind. Rows of one
// sequence stand together so that K/V are read once for an Orthros pair.
struct SplitItem {
  int32_t first;  // offset into DevicePass::split_rows
  int32_t n;      // rows
  int32_t seq;
  int32_t max_pos;
  int32_t settled;  // nothing that the pass writes stands at lower positions of this sequence; −1: not known
  // Lowest position among its rows of either stream, for where their windows begin; −1: no such row.
  int32_t min_base, min_output;
};
constexpr int32_t kSplitRows = 4;  // rows an item at most

// A stretch of items of one row kind (the kind decides how keys are cut into segments).
struct SplitRun {
  RowKind kind;
  int32_t first_item, n_items;
  int32_t n_rows;
  int32_t max_pos;
};

// Rows of one sequence, for the recurrent ops: of each kind and stream a stretch of the pass, ascending by position.
struct SequenceSpans {
  int32_t slot;                      // of its state
  int32_t first[4] = {}, n[4] = {};  // row indices; [kind · 2 + stream]
  int32_t first_cell = 0, n_cells = 0;
  int32_t first_slot = 0, n_slots = 0;  // its segments (kSegmentChunks chunks) when there are several
};
// A chunk (kChunkRows positions of the absolute grid) that prefill rows of a sequence touch: those of a pass, and the
// one before when it is still open.
struct ChunkCell {
  int32_t seq, index;  // positions index · kChunkRows …
};

// What kernels read of the pass in flight, in device memory.
struct DevicePass {
  const Row* rows = nullptr;
  int32_t n_rows = 0;
  const int32_t* tables = nullptr;  // [n_seqs][n_groups][max_blocks]
  int32_t n_groups = 0;
  int32_t max_blocks = 0;
  // Prefill base rows, those that end last first.
  const RowTile* tiles = nullptr;
  int32_t n_tiles = 0;
  const RowTile* wide_tiles = nullptr;
  int32_t n_wide_tiles = 0;
  const SplitItem* items = nullptr;
  int32_t n_items = 0;
  const int32_t* split_rows = nullptr;  // row indices
  int32_t n_split_rows = 0;
  int32_t max_pos = -1;                      // over all rows
  const SequenceSpans* sequences = nullptr;  // one a sequence of the pass
  int32_t n_sequences = 0;
  const ChunkCell* cells = nullptr;  // by sequence, ascending
};

__host__ __device__ inline const int32_t* block_table(const DevicePass& pass, int32_t seq, int32_t group) {
  return pass.tables + (static_cast<int64_t>(seq) * pass.n_groups + group) * pass.max_blocks;
}

struct MemoryCount {
  int64_t now = 0, peak = 0;
  void add(int64_t bytes) { peak = std::max(peak, now += bytes); }
};

// Device memory with its size counted. Throws: resource, naming the size.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(size_t bytes, std::shared_ptr<MemoryCount> count);
  ~DeviceMemory() { release(); }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  void release();
  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<MemoryCount> count_;
};

// The first bytes on the device, the others in pinned host memory (parked.cu). Throws: resource, device.
std::unique_ptr<Buffer> make_parked_buffer(int device, size_t bytes, size_t parked, std::shared_ptr<MemoryCount> count);

// One slab, and overflow slabs until the next reset makes the slab large enough: addresses never move inside a pass.
class CudaArena : public Arena {
 public:
  CudaArena(cudaStream_t stream, std::shared_ptr<MemoryCount> count) : stream_(stream), count_(std::move(count)) {}
  void* allocate(size_t bytes) override;
  void reset() override;
  void reserve(size_t bytes) override;
  size_t peak_bytes() const override { return peak_; }
  // What was allocated since the reset lies in one slab, where it will lie again; `generation` counts the slabs so far.
  bool in_one_slab() const { return overflow_.empty(); }
  int64_t generation() const { return generation_; }
  int64_t n_resets() const { return n_resets_; }

 private:
  void grow(size_t bytes);
  cudaStream_t stream_;
  std::shared_ptr<MemoryCount> count_;
  DeviceMemory slab_;
  size_t used_ = 0, in_pass_ = 0, peak_ = 0;
  int64_t generation_ = 0, n_resets_ = 0;
  std::vector<DeviceMemory> overflow_;
};

// Fills both lists (sequences.cu).
void split_sequences(const Pass& pass, std::vector<SequenceSpans>& sequences, std::vector<ChunkCell>& cells);

class CudaContext : public Context {
 public:
  CudaContext(int device, DType weights);
  ~CudaContext() override;

  std::unique_ptr<Buffer> make_buffer(size_t bytes) override;
  std::unique_ptr<Buffer> make_parked_buffer(size_t bytes, size_t parked) override;
  int64_t parking_bytes() const override;
  void upload(void* to, const void* from_host, size_t bytes) override;
  void download(void* to_host, const void* from, size_t bytes) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void zero(void* to, size_t bytes) override;
  size_t free_bytes() const override;
  int64_t peak_bytes() const override { return memory_->peak; }
  int64_t fixed_bytes() const override { return static_cast<int64_t>(workspace_.bytes() + last_ids_.bytes()); }
  void begin_pass(const Pass& pass) override;
  bool queues() const override { return true; }
  std::unique_ptr<Buffer> make_host_buffer(size_t bytes) override;
  void fetch(void* to, const void* from, size_t bytes) override;
  std::unique_ptr<Fence> make_fence() override;
  std::unique_ptr<Recording> record(const std::function<void()>& work) override;

  cudaStream_t stream() const { return stream_; }
  cublasLtHandle_t cublas() const { return cublas_; }
  void* workspace() const { return workspace_.data(); }
  size_t workspace_bytes() const { return kWorkspaceBytes; }
  const DevicePass& pass() const { return device_pass_; }
  const std::vector<SplitRun>& split_runs() const { return split_runs_; }
  // As in DevicePass, on the host.
  const std::vector<SequenceSpans>& sequences() const { return sequences_; }
  const std::vector<ChunkCell>& cells() const { return cells_; }
  const SplitItem& split_item(int32_t i) const { return split_items_[static_cast<size_t>(i)]; }
  // The device copy of a stretch of the pass's rows. Requires: `rows` lies inside the pass in flight.
  const Row* device_rows(std::span<const Row> rows) const;
  const cudaDeviceProp& properties() const { return properties_; }

  // Copies host bytes through the pinned staging ring into arena memory; ordered on the stream. In a recording: into
  // memory of its own, once.
  void* stage(const void* from_host, size_t bytes);
  // Memory of one op: the next one that asks gets the same.
  void* op_scratch(size_t bytes);
  // The arg max of the last pass's slots, for rows whose token is ~slot; kRememberedIds of them.
  int32_t* last_ids() const { return reinterpret_cast<int32_t*>(last_ids_.data()); }
  static constexpr int32_t kRememberedIds = 1 << 16;  // PassRunner::kSlots

 private:
  friend class CudaRecording;
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // cuBLAS asks for 32 MiB on Hopper

  int device_index_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t cublas_ = nullptr;
  std::shared_ptr<MemoryCount> memory_ = std::make_shared<MemoryCount>();
  DeviceMemory workspace_, last_ids_;
  void* op_scratch_ = nullptr;
  size_t op_scratch_bytes_ = 0;
  int64_t op_scratch_reset_ = -1;
  DevicePass device_pass_;
  std::span<const Row> host_rows_;
  class CudaRecording* recording_ = nullptr;  // the one being made
  char* pinned(size_t bytes);                 // room in the slab in use
  std::vector<RowTile> tiles_, wide_tiles_;
  std::vector<int32_t> tables_, split_rows_;
  void split_pass(const Pass& pass);
  std::vector<SplitItem> split_items_;
  std::vector<SplitRun> split_runs_;
  std::vector<SequenceSpans> sequences_;
  std::vector<ChunkCell> cells_;
  // Pinned slabs used in turn: the host fills one while copies of the others may still run. A slab is free again when
  // the pass it served has run, and two passes in flight begin up to four times.
  struct Slab {
    char* host = nullptr;
    size_t capacity = 0, used = 0;
    cudaEvent_t done = nullptr;
  };
  Slab slabs_[6];
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

// Programmatic dependent launch (compute capability 9.0): a kernel launched by launch_early may start while the one
// before it in the stream still runs. It calls wait_for_previous() before it reads or writes what other kernels touch
// (weights are nobody's but its own); behind that, everything earlier in the stream is complete. let_next_start() in
// the kernel before says when.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

template <typename... Parameters, typename... Arguments>
void launch_early(CudaContext& context, void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                  Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = context.stream();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = context.properties().major >= 9 ? 1 : 0;
  HAY_CUDA(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
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
