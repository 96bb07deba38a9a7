// Seeded random numbers for Hayfork's own draws, the same on every machine. (Benchmarks that follow Python's random or
// NumPy have their own generators beside their protocol.)
#pragma once

#include <cstdint>
#include <string_view>

namespace hayfork {

// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit word of state, a full period, fit for hashing seeds into streams.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  // A stream named by its purpose: draws for "needle" never shift those for "haystack".
  Rng(uint64_t seed, std::string_view purpose) : state_(seed) {
    for (const char c : purpose) state_ = mix(state_ ^ static_cast<unsigned char>(c));
  }

  uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15u); }
  // Uniform in [0, n), without bias. Requires: n > 0.
  uint64_t below(uint64_t n) {
    const uint64_t reject = (0 - n) % n;  // 2^64 mod n
    for (;;) {
      const uint64_t x = next();
      if (x >= reject) return x % n;
    }
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  uint64_t state_;
};

}  // namespace hayfork
