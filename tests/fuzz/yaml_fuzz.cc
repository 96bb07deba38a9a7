// YAML configuration: any bytes give a value or an Error.
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "datasets/yaml_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool typed : {true, false}) {
    try {
      (void)hayfork::datasets::parse_yaml(text, "fuzz", {.max_bytes = 1 << 16, .typed = typed}).dump();
    } catch (const hayfork::Error& error) {
      if (error.code() == hayfork::ErrorCode::internal) __builtin_trap();
    }
  }
  return 0;
}
