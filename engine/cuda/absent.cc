// What a program without CUDA says when it is asked for a device.
#if !defined(HAYFORK_WITH_CUDA)

#include "base/error.h"
#include "engine/cuda/devices.h"

namespace hayfork::engine::cuda {

Devices list_devices() {
  Devices none;
  none.problem = "this build has no CUDA";
  return none;
}

std::unique_ptr<Context> make_cuda_context(int32_t index, DType) {
  throw Error(ErrorCode::device, ErrorSubject::general, "this build of hayfork has no CUDA",
              {.where = "device cuda:" + std::to_string(index),
               .why = {},
               .next = "build with the preset cuda, or use --device cpu"});
}

std::string cuda_numerics() {
  return {};
}

}  // namespace hayfork::engine::cuda

#endif
