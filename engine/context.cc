#include "engine/context.h"

#include <cstring>

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

}  // namespace hayfork::engine
