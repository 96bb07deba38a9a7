// A buffer whose beginning is device memory and whose end is pinned host memory, in one range of addresses (CUDA's
// virtual memory calls): kernels read and write both alike, the end at the speed of the bus.
#include "engine/cuda/device.cuh"

#include <cuda.h>

#include <utility>

namespace hayfork::engine::cuda {
namespace {

// The driver's functions, asked for by name: nothing links against the driver.
template <typename F>
F driver(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  HAY_CUDA(cudaGetDriverEntryPointByVersion(name, &function, 12020, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw Error(ErrorCode::device, ErrorSubject::general, std::string("the driver has no ") + name,
                {.next = "update the driver, or use shorter sequences"});
  }
  return reinterpret_cast<F>(function);
}

void check(CUresult result, const char* what, size_t bytes) {
  if (result == CUDA_SUCCESS) return;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    throw Error(ErrorCode::resource, ErrorSubject::memory, "no memory for parked keys and values",
                {.where = std::string(what) + " of " + std::to_string(bytes) + " bytes"});
  }
  throw Error(ErrorCode::device, ErrorSubject::general,
              "CUDA failed: error " + std::to_string(static_cast<int>(result)), {.where = what});
}

// Addresses and what they are mapped to.
struct Range {
  Range() = default;
  ~Range() {
    if (mapped > 0) driver<decltype(&cuMemUnmap)>("cuMemUnmap")(address, mapped);
    if (address != 0) driver<decltype(&cuMemAddressFree)>("cuMemAddressFree")(address, reserved);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  void reserve(size_t bytes, size_t unit) {
    check(driver<decltype(&cuMemAddressReserve)>("cuMemAddressReserve")(&address, bytes, unit, 0, 0),
          "cuMemAddressReserve", bytes);
    reserved = bytes;
  }

  // Behind what is mapped already.
  void map(size_t bytes, CUmemLocation location) {
    if (bytes == 0) return;
    const CUmemAllocationProp prop = properties(location);
    CUmemGenericAllocationHandle handle{};
    check(driver<decltype(&cuMemCreate)>("cuMemCreate")(&handle, bytes, &prop, 0), "cuMemCreate", bytes);
    const CUresult result = driver<decltype(&cuMemMap)>("cuMemMap")(address + mapped, bytes, 0, handle, 0);
    driver<decltype(&cuMemRelease)>("cuMemRelease")(handle);  // the mapping keeps the memory
    check(result, "cuMemMap", bytes);
    mapped += bytes;
  }

  static CUmemAllocationProp properties(CUmemLocation location) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = location;
    return prop;
  }
  static size_t granularity(CUmemLocation location) {
    size_t bytes = 0;
    const CUmemAllocationProp prop = properties(location);
    check(driver<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity")(
              &bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "cuMemGetAllocationGranularity", 0);
    return bytes;
  }

  CUdeviceptr address = 0;
  size_t reserved = 0, mapped = 0;
};

class ParkedBuffer : public Buffer {
 public:
  ParkedBuffer(int device, size_t bytes, size_t parked, std::shared_ptr<MemoryCount> count)
      : bytes_(bytes + parked), count_(std::move(count)) {
    int node = 0;
    HAY_CUDA(cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device));
    CUmemLocation here{}, host{};
    here.type = CU_MEM_LOCATION_TYPE_DEVICE;
    here.id = device;
    host.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    host.id = std::max(node, 0);
    const size_t unit = std::max(Range::granularity(here), Range::granularity(host));
    near_ = (bytes + unit - 1) / unit * unit;
    const size_t rest = bytes_ > near_ ? (bytes_ - near_ + unit - 1) / unit * unit : 0;
    range_.reserve(near_ + rest, unit);
    range_.map(near_, here);
    range_.map(rest, host);
    CUmemAccessDesc access{};
    access.location = here;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(driver<decltype(&cuMemSetAccess)>("cuMemSetAccess")(range_.address, range_.mapped, &access, 1),
          "cuMemSetAccess", range_.mapped);
    count_->add(static_cast<int64_t>(near_));
  }
  ~ParkedBuffer() override {
    cudaDeviceSynchronize();  // as cudaFree does: work may still use it
    count_->add(-static_cast<int64_t>(near_));
  }
  ParkedBuffer(const ParkedBuffer&) = delete;
  ParkedBuffer& operator=(const ParkedBuffer&) = delete;
  void* data() const override { return reinterpret_cast<void*>(range_.address); }
  size_t bytes() const override { return bytes_; }

 private:
  size_t bytes_, near_ = 0;
  Range range_;
  std::shared_ptr<MemoryCount> count_;
};

}  // namespace

std::unique_ptr<Buffer> make_parked_buffer(int device, size_t bytes, size_t parked,
                                           std::shared_ptr<MemoryCount> count) {
  return std::make_unique<ParkedBuffer>(device, bytes, parked, std::move(count));
}

}  // namespace hayfork::engine::cuda
