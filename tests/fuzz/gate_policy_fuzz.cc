// A gate's policy of any bytes: rules or a usage error.
#include <cstdint>
#include <string_view>

#include "cli/policy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const hayfork::runs::Policy policy =
        hayfork::cli::parse_policy({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const hayfork::runs::PolicyRule& rule : policy.rules)
      (void)hayfork::runs::matches(rule.task, "ruler_niah_single_1");
  } catch (const hayfork::Error& error) {
    if (error.code() != hayfork::ErrorCode::usage) __builtin_trap();
  }
  return 0;
}
