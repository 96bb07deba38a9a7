// parse_safetensors: any bytes give an Error or tensors that lie inside the file.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "engine/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto tensors = hayfork::engine::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
    for (const auto& tensor : tensors) {
      if (tensor.begin < 8 || tensor.begin > tensor.end || tensor.end > static_cast<int64_t>(size)) std::abort();
    }
  } catch (const hayfork::Error&) {
  }
  return 0;
}
