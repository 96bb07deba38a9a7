// The generated tables behind engine/text/unicode.h, which is what everything else includes. Made by
// scripts/make_unicode_tables.py; each array's comment in unicode_tables.cc says how its entries read.
#pragma once

#include <array>
#include <cstdint>

namespace hayfork::engine::unicode {

struct LowerRun {
  uint32_t first, last, step;
  int32_t difference;
};

extern const std::array<uint32_t, 4098> kCategoryRuns;
extern const std::array<uint32_t, 20> kWhiteSpace;
extern const std::array<uint32_t, 1594> kWordRegex;
extern const std::array<uint32_t, 1514> kAlphabetic;
extern const std::array<uint32_t, 1592> kWordRust;
extern const std::array<uint32_t, 4> kNumericExtra;
extern const std::array<uint32_t, 304> kPunctuation;
extern const std::array<uint32_t, 500> kAccents;
extern const std::array<uint32_t, 1489> kScriptRuns;
extern const std::array<LowerRun, 185> kLowerCase;

}  // namespace hayfork::engine::unicode
