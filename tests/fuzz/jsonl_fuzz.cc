// JSON Lines: any bytes give values or an Error.
#include <cstdint>
#include <string_view>

#include <nlohmann/json.hpp>

#include "datasets/jsonl.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayfork::datasets;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  JsonlOptions lenient;
  lenient.objects_only = false;
  lenient.python_literals = true;
  lenient.duplicate_keys = DuplicateKeys::last;
  lenient.invalid_utf8 = InvalidUtf8::replace;
  for (const JsonlOptions& options : {JsonlOptions{.max_line_bytes = 4096}, lenient}) {
    try {
      JsonlReader reader(text, "fuzz", options);
      for (nlohmann::ordered_json value; reader.next(value);) {
        if (reader.offset() >= size || reader.line() < 1) __builtin_trap();
        (void)value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
      }
    } catch (const hayfork::Error& error) {
      if (error.code() == hayfork::ErrorCode::internal) __builtin_trap();
    }
  }
  return 0;
}
