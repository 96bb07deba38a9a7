// parse_json: hostile JSON gives an Error or a value, never a crash.
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    hayfork::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz", hayfork::ErrorSubject::data,
                        {.python_literals = true});
  } catch (const hayfork::Error&) {
  }
  return 0;
}
