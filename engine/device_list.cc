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
  for (const cuda::DeviceInfo& device : found.devices) {
    list.accelerators.push_back({"cuda:" + std::to_string(device.index), device.name,
                                 "sm_" + std::to_string(device.major) + std::to_string(device.minor), device.free_bytes,
                                 device.total_bytes, device.usable ? "" : device.reason});
  }
#else
  list.problem = "this build has no CUDA code (cmake --preset cuda)";
#endif
  return list;
}

}  // namespace hayfork::engine
