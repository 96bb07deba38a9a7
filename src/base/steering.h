// Characters that steer the text around them without being seen. Whoever shows foreign text shows their numbers
// instead.
#pragma once

namespace hayfork {

// Marks and overrides of direction (Unicode's UAX 9), and U+2028, U+2029, which end a line.
constexpr bool is_steering(char32_t c) {
  return c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

}  // namespace hayfork
