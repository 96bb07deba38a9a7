// Weights::random: every value is a function of seed, name and index alone, so that threads and order do not matter.
#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "engine/weights.h"

namespace hayfork::engine {
namespace {

// Values are uniform in centre ± spread.
struct Range {
  float centre, spread;
};

Range range_of(const std::string& name, std::span<const int64_t> shape) {
  if (name.ends_with("A_log")) return {1.4F, 1.4F};     // decay rates 1 … 16
  if (name.ends_with("dt_bias")) return {-4.0F, 2.0F};  // step sizes 0.002 … 0.1
  if (name.ends_with(".offset") || name.ends_with("sinks")) return {0, 0};
  if (name.ends_with("bias")) return {0, 0.1F};
  if (shape.size() < 2) return {1, 0};  // norms and scales
  const auto fan_in = static_cast<float>(shape.back());
  return {0, std::sqrt(3.0F / fan_in)};  // variance 1 / fan-in
}

// Eight bytes from one draw. MXFP4 exponents around 2^−7, so that expanded weights are of ordinary size; the rest are
// any four-bit values.
uint8_t random_byte(bool exponents, uint64_t bits, size_t i) {
  const auto byte = static_cast<uint8_t>(bits >> (8 * (i % 8)));
  return static_cast<uint8_t>(exponents ? 119 + byte % 3 : byte);
}

}  // namespace

Weights Weights::random(uint64_t seed) {
  Weights weights;
  weights.seed_ = seed;
  return weights;
}

TensorView Weights::values(const std::string& name, std::span<const int64_t> shape) {
  if (!seed_) return floats(name, shape);
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  const Range range = range_of(name, shape);
  TensorView view{name, DType::bf16, {shape.begin(), shape.end()}, nullptr, static_cast<size_t>(n) * sizeof(bf16), {}};
  view.random = RandomValues{Rng(*seed_, name).next(), range.centre, range.spread};
  return view;
}

TensorView Weights::make_up(const std::string& name, std::span<const int64_t> shape, bool floating) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  std::vector<std::byte>& bytes = made_up_[name];
  const uint64_t key = Rng(*seed_, name).next();
  if (bytes.empty() && floating) {
    bytes.resize(static_cast<size_t>(n) * sizeof(bf16));
    auto* values = reinterpret_cast<bf16*>(bytes.data());
    const Range range = range_of(name, shape);
    parallel_for(n, 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        // 24 bits; engine/kernels/random_fill.cu does the same in the same steps.
        const auto bits = static_cast<float>(Rng(key + static_cast<uint64_t>(i)).next() >> 40);
        values[i] = to_bf16(range.centre + range.spread * (bits * 0x1p-23F - 1.0F));
      }
    });
  } else if (bytes.empty()) {
    bytes.resize(static_cast<size_t>(n));
    const bool exponents = name.ends_with("_scales");
    parallel_for((n + 7) / 8, 1 << 13, [&](int64_t begin, int64_t end) {
      for (int64_t draw = begin; draw < end; ++draw) {
        const uint64_t bits = Rng(key + static_cast<uint64_t>(draw)).next();
        const size_t first = static_cast<size_t>(draw) * 8, last = std::min(first + 8, bytes.size());
        for (size_t i = first; i < last; ++i) bytes[i] = std::byte{random_byte(exponents, bits, i)};
      }
    });
  }
  return {name, floating ? DType::bf16 : DType::u8, {shape.begin(), shape.end()}, bytes.data(), bytes.size(), {}};
}

}  // namespace hayfork::engine
