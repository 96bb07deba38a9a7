// Chat templates: hostile text gives an Error or a rendering within the limits, never a crash, a hang or a leak.
#include <cstdint>
#include <string>

#include "engine/text/jinja_interpreter.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayfork::engine::jinja;
  const std::string source(reinterpret_cast<const char*>(data), size);
  const std::string name = "fuzz";
  try {
    const Template parsed = parse_template(source, name);
    std::tm clock{};
    clock.tm_mday = 1;
    Runtime rt(name, {.steps = 200'000, .bytes = 8 << 20, .depth = 300}, &clock);
    Interpreter interpreter(rt, 1 << 20);
    Dict message;
    message.set(rt, Value::string(rt, "role"), Value::string(rt, "user"));
    message.set(rt, Value::string(rt, "content"), Value::string(rt, " Gr\u00fc\u00dfe, <b>\n\u4e16\u754c "));
    message.set(rt, Value::string(rt, "n"), Value(int64_t{-7}));
    const Value one = Value::dict(rt, message);
    interpreter.define("messages", Value::list(rt, {one, one, Value(2.5), Value::none()}));
    interpreter.define("tools", Value::none());
    interpreter.define("add_generation_prompt", Value(true));
    interpreter.define("bos_token", Value::string(rt, "<s>"));
    interpreter.run(parsed);
  } catch (const hayfork::Error& error) {
    if (error.code() == hayfork::ErrorCode::internal) __builtin_trap();
  }
  return 0;
}
