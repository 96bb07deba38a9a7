// Which devices there are, and the context of one.
#include "engine/cuda/devices.h"

#include "engine/cuda/device.cuh"

namespace hayfork::engine::cuda {

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

int64_t free_bytes_of(DeviceInfo& device) {
  int before = 0;
  cudaGetDevice(&before);
  size_t free = 0, total = 0;
  cudaError_t error = cudaSetDevice(device.index);
  if (error == cudaSuccess) error = cudaMemGetInfo(&free, &total);
  cudaSetDevice(before);
  if (error == cudaSuccess) return static_cast<int64_t>(free);
  cudaGetLastError();
  device.usable = false;
  device.reason = cudaGetErrorString(error);
  return 0;
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
