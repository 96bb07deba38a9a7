// Which accelerators are here, without a context: for `doctor`, for --device auto, for errors that help. Never throws
// for a missing driver; says why instead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/context.h"

namespace hayfork::engine::cuda {

struct DeviceInfo {
  int32_t index = 0;
  std::string name;
  int32_t major = 0, minor = 0;  // compute capability
  int64_t free_bytes = 0, total_bytes = 0;
  int32_t n_multiprocessors = 0;
  bool usable = false;
  std::string reason;  // why not
};
struct Devices {
  std::vector<DeviceInfo> devices;
  std::string driver_version, runtime_version;  // "13.0"; empty when unknown
  std::string problem;                          // why the list is empty
};
Devices list_devices();
// Free memory of a usable device; makes a context on it, which takes a moment. Sets `reason` and gives 0 when it
// cannot.
int64_t free_bytes_of(DeviceInfo& device);

// Why cuBLASLt cannot be used, with what to install; empty: it can. Loads it. `file`: another library, for tests.
std::string cublas_problem(const std::string& file = {});

// Throws: device, with what to do, when the device is absent, too old (below 8.0), or held by others.
std::unique_ptr<Context> make_cuda_context(int32_t index, DType weights);
// cuBLASLt version and digest of the fixed algorithm table in use.
std::string cuda_numerics();

}  // namespace hayfork::engine::cuda
