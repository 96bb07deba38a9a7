// Whether this is a build of the preset asan: everything takes longer, and memory is not what it is otherwise.
#pragma once

namespace hayfork::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace hayfork::test
