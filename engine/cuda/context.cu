#include <algorithm>
#include <cstring>

#include "engine/cuda/device.cuh"
#include "engine/cuda/devices.h"

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
              std::string("cuBLAS failed: ") + cublasLtGetStatusString(status),
              {.where = std::string(expression) + " at " + file + ":" + std::to_string(line)});
}

namespace {

class CudaBuffer : public Buffer {
 public:
  explicit CudaBuffer(size_t bytes) : bytes_(bytes) { HAY_CUDA(cudaMalloc(&data_, std::max<size_t>(bytes, 256))); }
  ~CudaBuffer() override { cudaFree(data_); }
  void* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

// One slab, and overflow slabs until the next reset makes the slab large enough: addresses never move inside a pass.
class CudaArena : public Arena {
 public:
  explicit CudaArena(cudaStream_t stream) : stream_(stream) {}
  ~CudaArena() override { release(); }

  void* allocate(size_t bytes) override {
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    in_pass_ += bytes;
    peak_ = std::max(peak_, in_pass_);
    if (used_ + bytes <= capacity_) {
      void* p = slab_ + used_;
      used_ += bytes;
      return p;
    }
    void* extra = nullptr;
    HAY_CUDA(cudaMalloc(&extra, std::max(bytes, kAlign)));
    overflow_.push_back(extra);
    return extra;
  }

  void reset() override {
    if (!overflow_.empty()) {
      HAY_CUDA(cudaStreamSynchronize(stream_));
      release();
      const size_t want = peak_ + peak_ / 8;
      HAY_CUDA(cudaMalloc(reinterpret_cast<void**>(&slab_), want));
      capacity_ = want;
    }
    used_ = 0;
    in_pass_ = 0;
  }

  size_t peak_bytes() const override { return peak_; }

 private:
  static constexpr size_t kAlign = 256;
  void release() {
    for (void* p : overflow_) cudaFree(p);
    overflow_.clear();
    cudaFree(slab_);
    slab_ = nullptr;
    capacity_ = used_ = 0;
  }
  cudaStream_t stream_;
  char* slab_ = nullptr;
  size_t capacity_ = 0, used_ = 0, in_pass_ = 0, peak_ = 0;
  std::vector<void*> overflow_;
};

}  // namespace

CudaContext::CudaContext(int device, DType weights) : Context(Device::cuda, weights, weights), device_index_(device) {
  HAY_CUDA(cudaSetDevice(device));
  HAY_CUDA(cudaGetDeviceProperties(&properties_, device));
  HAY_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  HAY_CUBLAS(cublasLtCreate(&cublas_));
  HAY_CUDA(cudaMalloc(&workspace_, kWorkspaceBytes));
  for (Slab& slab : slabs_) HAY_CUDA(cudaEventCreateWithFlags(&slab.done, cudaEventDisableTiming));
  arena_ = std::make_unique<CudaArena>(stream_);
}

CudaContext::~CudaContext() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  arena_.reset();
  for (Slab& slab : slabs_) {
    if (slab.host != nullptr) cudaFreeHost(slab.host);
    if (slab.done != nullptr) cudaEventDestroy(slab.done);
  }
  cudaFree(workspace_);
  if (cublas_ != nullptr) cublasLtDestroy(cublas_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

std::unique_ptr<Buffer> CudaContext::make_buffer(size_t bytes) {
  return std::make_unique<CudaBuffer>(bytes);
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

void* CudaContext::stage(const void* from_host, size_t bytes) {
  void* to = arena_->allocate(std::max<size_t>(bytes, 16));
  if (bytes == 0) return to;
  Slab& slab = slabs_[slab_];
  const size_t rounded = (bytes + 255) / 256 * 256;
  if (slab.used + rounded > slab.capacity) {
    // Too small: copies already queued from it must end before it can be replaced.
    HAY_CUDA(cudaStreamSynchronize(stream_));
    if (slab.host != nullptr) HAY_CUDA(cudaFreeHost(slab.host));
    slab.capacity = std::max<size_t>((slab.used + rounded) * 2, size_t{1} << 20);
    slab.used = 0;
    HAY_CUDA(cudaMallocHost(reinterpret_cast<void**>(&slab.host), slab.capacity));
  }
  std::memcpy(slab.host + slab.used, from_host, bytes);
  HAY_CUDA(cudaMemcpyAsync(to, slab.host + slab.used, bytes, cudaMemcpyHostToDevice, stream_));
  slab.used += rounded;
  return to;
}

const Row* CudaContext::device_rows(std::span<const Row> rows) const {
  const auto offset = rows.data() - host_rows_.data();
  HAY_CHECK(offset >= 0 && static_cast<size_t>(offset) + rows.size() <= host_rows_.size());
  return device_pass_.rows + offset;
}

void CudaContext::begin_pass(const Pass& pass) {
  host_rows_ = pass.rows;
  HAY_CUDA(cudaEventRecord(slabs_[slab_].done, stream_));
  slab_ ^= 1;
  HAY_CUDA(cudaEventSynchronize(slabs_[slab_].done));
  slabs_[slab_].used = 0;

  DevicePass& out = device_pass_;
  out = {};
  out.n_rows = static_cast<int32_t>(pass.rows.size());
  std::vector<RowTile> tiles;
  std::vector<std::vector<int32_t>> split[2];  // [kind][seq] → rows
  for (auto& of_kind : split) of_kind.resize(pass.seqs.size());
  for (int32_t i = 0; i < out.n_rows; ++i) {
    const Row& row = pass.rows[static_cast<size_t>(i)];
    out.max_pos = std::max(out.max_pos, row.pos);
    if (row.kind == RowKind::decode || row.stream == Stream::output) {
      split[static_cast<size_t>(row.kind)][static_cast<size_t>(row.seq)].push_back(i);
      continue;
    }
    const bool extends = !tiles.empty() && tiles.back().first + tiles.back().n == i && tiles.back().seq == row.seq &&
                         tiles.back().n < kTileRows;
    if (!extends) tiles.push_back({i, 0, row.seq, row.pos, row.pos, row.stream});
    RowTile& tile = tiles.back();
    ++tile.n;
    tile.min_pos = std::min(tile.min_pos, row.pos);
    tile.max_pos = std::max(tile.max_pos, row.pos);
  }
  // Long tiles first: causal work grows with the position, and the last blocks to start should be short.
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const RowTile& a, const RowTile& b) { return a.max_pos > b.max_pos; });
  split_items_.clear();
  split_runs_.clear();
  std::vector<int32_t> split_rows;
  for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
    SplitRun run{kind, static_cast<int32_t>(split_items_.size()), 0, 0, -1};
    for (size_t seq = 0; seq < pass.seqs.size(); ++seq) {
      const std::vector<int32_t>& rows = split[static_cast<size_t>(kind)][seq];
      for (size_t i = 0; i < rows.size(); i += kSplitRows) {
        const size_t n = std::min<size_t>(kSplitRows, rows.size() - i);
        SplitItem item{static_cast<int32_t>(split_rows.size()), static_cast<int32_t>(n), static_cast<int32_t>(seq), -1};
        for (size_t j = i; j < i + n; ++j) {
          split_rows.push_back(rows[j]);
          item.max_pos = std::max(item.max_pos, pass.rows[static_cast<size_t>(rows[j])].pos);
        }
        split_items_.push_back(item);
        ++run.n_items;
        run.n_rows += item.n;
        run.max_pos = std::max(run.max_pos, item.max_pos);
      }
    }
    if (run.n_items > 0) split_runs_.push_back(run);
  }
  for (const SeqView& seq : pass.seqs) {
    out.n_groups = std::max(out.n_groups, seq.n_groups);
    out.max_blocks = std::max(out.max_blocks, seq.n_blocks);
  }
  std::vector<int32_t> tables(
      pass.seqs.size() * static_cast<size_t>(out.n_groups) * static_cast<size_t>(out.max_blocks), -1);
  for (size_t s = 0; s < pass.seqs.size(); ++s) {
    const SeqView& seq = pass.seqs[s];
    for (int32_t g = 0; g < seq.n_groups; ++g) {
      std::copy_n(
          seq.blocks[g], seq.n_blocks,
          tables.begin() + static_cast<int64_t>((s * static_cast<size_t>(out.n_groups) + static_cast<size_t>(g)) *
                                                static_cast<size_t>(out.max_blocks)));
    }
  }
  out.n_tiles = static_cast<int32_t>(tiles.size());
  out.n_items = static_cast<int32_t>(split_items_.size());
  out.n_split_rows = static_cast<int32_t>(split_rows.size());
  out.rows = static_cast<const Row*>(stage(pass.rows.data(), pass.rows.size_bytes()));
  out.tables = static_cast<const int32_t*>(stage(tables.data(), tables.size() * sizeof(int32_t)));
  out.tiles = static_cast<const RowTile*>(stage(tiles.data(), tiles.size() * sizeof(RowTile)));
  out.items = static_cast<const SplitItem*>(stage(split_items_.data(), split_items_.size() * sizeof(SplitItem)));
  out.split_rows = static_cast<const int32_t*>(stage(split_rows.data(), split_rows.size() * sizeof(int32_t)));
}

Devices list_devices() {
  Devices found;
  int version = 0;
  const auto dotted = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) found.driver_version = dotted(version);
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) found.runtime_version = dotted(version);
  int n = 0;
  const cudaError_t error = cudaGetDeviceCount(&n);
  if (error != cudaSuccess || n == 0) {
    cudaGetLastError();
    found.problem = error == cudaErrorInsufficientDriver
                        ? (found.driver_version.empty()
                               ? "no NVIDIA driver is installed"
                               : "the driver (CUDA " + found.driver_version + ") is older than this build (CUDA " +
                                     found.runtime_version + "): update the driver")
                    : error != cudaSuccess ? std::string(cudaGetErrorString(error))
                                           : "the driver lists no device";
    return found;
  }
  for (int i = 0; i < n; ++i) {
    cudaDeviceProp properties{};
    DeviceInfo info;
    info.index = i;
    const cudaError_t failed = cudaGetDeviceProperties(&properties, i);
    if (failed != cudaSuccess) {
      info.reason = cudaGetErrorString(failed);
      cudaGetLastError();
    } else {
      info.name = properties.name;
      info.major = properties.major;
      info.minor = properties.minor;
      info.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
      info.n_multiprocessors = properties.multiProcessorCount;
      info.usable = properties.major >= 8;
      if (!info.usable) info.reason = "compute capability below 8.0";
    }
    found.devices.push_back(info);
  }
  return found;
}

std::unique_ptr<Context> make_cuda_context(int32_t index, DType weights) {
  const Devices found = list_devices();
  if (found.devices.empty()) {
    throw Error(ErrorCode::device, ErrorSubject::general, "no GPU can be used",
                {.where = "device cuda:" + std::to_string(index),
                 .why = found.problem,
                 .next = "--device cpu runs everything without a GPU"});
  }
  if (index < 0 || index >= static_cast<int32_t>(found.devices.size())) {
    throw Error(ErrorCode::device, ErrorSubject::general, "there is no cuda:" + std::to_string(index),
                {.why = std::to_string(found.devices.size()) + " device(s) here", .next = "see `hayfork doctor`"});
  }
  const DeviceInfo& device = found.devices[static_cast<size_t>(index)];
  if (!device.usable) {
    throw Error(ErrorCode::device, ErrorSubject::general, "cuda:" + std::to_string(index) + " cannot be used",
                {.where = device.name, .why = device.reason, .next = "--device cpu runs everything without a GPU"});
  }
  return std::make_unique<CudaContext>(index, weights);
}

}  // namespace hayfork::engine::cuda
