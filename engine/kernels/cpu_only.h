// For ops whose CUDA twin is not written: a clear refusal instead of a wrong memory access.
#pragma once

#include <string>

#include "base/error.h"
#include "engine/context.h"

namespace hayfork::engine {

// Throws: unsupported when the context is not the CPU's.
inline void require_cpu(const Context& context, const char* what) {
  if (context.device() == Device::cpu) return;
  throw Error(ErrorCode::unsupported, ErrorSubject::model, std::string(what) + " runs on the CPU only",
              {.where = {}, .why = "this layer kind has no CUDA kernel", .next = "use --device cpu"});
}

}  // namespace hayfork::engine
