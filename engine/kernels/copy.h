// Many small copies within a device's memory at once, ordered like Context::copy.
#pragma once

#include <cstddef>
#include <span>

#include "engine/context.h"

namespace hayfork::engine {

struct DeviceCopy {
  void* to;
  const void* from;
  size_t bytes;  // a multiple of 16, as both addresses are
};
void copy_many(Context& context, std::span<const DeviceCopy> copies);

}  // namespace hayfork::engine
