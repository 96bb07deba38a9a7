#include "engine/context.h"

#include <cstring>

#include "base/error.h"

namespace hayfork::engine {

void Context::copy(void* to, const void* from, size_t bytes) {
  if (device_ == Device::cpu) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::vector<std::byte> bounce(bytes);
  download(bounce.data(), from, bytes);
  upload(to, bounce.data(), bytes);
}

void Context::zero(void* to, size_t bytes) {
  if (device_ == Device::cpu) {
    std::memset(to, 0, bytes);
    return;
  }
  const std::vector<std::byte> zeros(bytes);
  upload(to, zeros.data(), bytes);
}

std::unique_ptr<Buffer> Context::make_host_buffer(size_t) {
  HAY_CHECK(false, "this device has no queue");
}
void Context::fetch(void*, const void*, size_t) {
  HAY_CHECK(false, "this device has no queue");
}
std::unique_ptr<Fence> Context::make_fence() {
  HAY_CHECK(false, "this device has no queue");
}
std::unique_ptr<Recording> Context::record(const std::function<void()>&) {
  HAY_CHECK(false, "this device has no queue");
}

}  // namespace hayfork::engine
