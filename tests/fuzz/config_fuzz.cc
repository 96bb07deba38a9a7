// config.json of every family: any text gives an Error or a ModelSpec of bounded size; nothing is allocated by it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "engine/config.h"
#include "engine/models/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayfork;
  try {
    auto config = engine::Config::parse({reinterpret_cast<const char*>(data), size}, "config.json");
    const auto resolved = engine::resolve_model(config, [](const std::string&) { return false; }, {});
    if (resolved.spec.layers.empty() || resolved.spec.layers.size() > 4096 || resolved.spec.hidden < 1) std::abort();
    for (const auto& rope : resolved.spec.ropes) engine::make_rope_table(rope, 1000);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) std::abort();
  }
  return 0;
}
