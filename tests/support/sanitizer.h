// Whether this is a build of the preset asan: everything takes longer, and memory is not what it is otherwise.
#pragma once

namespace hayfork::test {

#if defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define HAY_SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)  // g++
#define HAY_SANITIZED
#endif
#if defined(HAY_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace hayfork::test
