#include "engine/device_list.h"

#if defined(HAYFORK_WITH_CUDA)
#include "engine/cuda/devices.h"
#endif

namespace hayfork::engine {

AcceleratorList list_accelerators() {
  AcceleratorList list;
#if defined(HAYFORK_WITH_CUDA)
  const cuda::Devices found = cuda::list_devices();
  list.compiled = true;
  list.driver = found.driver_version;
  list.runtime = found.runtime_version;
  list.problem = found.problem;
  for (cuda::DeviceInfo device : found.devices) {
    if (device.usable && device.reason.empty()) device.reason = cuda::cublas_problem();
    if (!device.reason.empty()) device.usable = false;
    if (device.usable) device.free_bytes = cuda::free_bytes_of(device);
    list.accelerators.push_back({"cuda:" + std::to_string(device.index), device.name,
                                 "sm_" + std::to_string(device.major) + std::to_string(device.minor), device.free_bytes,
                                 device.total_bytes, device.usable ? "" : device.reason,
                                 device.major == 9 ? "bf16 by wgmma and TMA" : "bf16 by mma.sync"});
  }
#else
  list.problem = "this build has no CUDA code (cmake --preset cuda)";
#endif
  return list;
}

}  // namespace hayfork::engine
