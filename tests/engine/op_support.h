// What the op tests share: seeded matrices with sentinels around them, packed weights, and a small K/V cache.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/half.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "engine/kernels/ops.h"

namespace hayfork::engine::test {

constexpr float kSentinel = 12345.5F;

// [rows, cols] with `gap` sentinels after each row and before the first: writes outside show.
class Guarded {
 public:
  Guarded(int64_t rows, int64_t cols, int64_t gap = 5)
      : rows_(rows), cols_(cols), gap_(gap), memory_(static_cast<size_t>(gap + rows * (cols + gap)), kSentinel) {}
  Matrix matrix() { return {memory_.data() + gap_, DType::f32, rows_, cols_, cols_ + gap_}; }
  Matrix rows(int64_t begin, int64_t end) { return matrix().row_range(begin, end); }
  float& at(int64_t r, int64_t c) { return matrix().f32(r)[c]; }
  bool intact() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) - gap_;
      if ((at < 0 || at % (cols_ + gap_) >= cols_) && memory_[i] != kSentinel) return false;
    }
    return true;
  }
  void fill(Rng& rng, float scale = 1) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) at(r, c) = scale * static_cast<float>(2 * rng.uniform() - 1);
    }
  }
  std::vector<float> row(int64_t r) { return {matrix().f32(r), matrix().f32(r) + cols_}; }

 private:
  int64_t rows_, cols_, gap_;
  std::vector<float> memory_;
};

inline std::vector<float> random_floats(Rng& rng, int64_t n, float scale = 1) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = scale * static_cast<float>(2 * rng.uniform() - 1);
  return values;
}

// Values that bfloat16 holds exactly, so that a double reference needs no rounding of its own.
inline std::vector<float> random_bf16s(Rng& rng, int64_t n, float scale = 1) {
  std::vector<float> values = random_floats(rng, n, scale);
  for (float& v : values) v = round_to_bf16(v);
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs a body with a number of threads and puts the old one back.
template <typename Body>
void with_threads(int n, const Body& body) {
  const int before = current_threads();
  set_threads(n);
  body();
  set_threads(before);
}

}  // namespace hayfork::engine::test
