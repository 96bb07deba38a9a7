#include "engine/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace hayfork::engine {
namespace {

// 1 / base^(2i/r) with torch's order of roundings: the exponent and the power are float32.
float frequency(double base, int32_t i, int32_t r) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(r);
  return 1.0F / std::pow(static_cast<float>(base), exponent);
}

float llama3(const RopeSpec& spec, float f) {
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / f;
  const auto n0 = static_cast<double>(spec.original_positions);
  if (wavelength < n0 / spec.high_freq_factor) return f;
  const float divided = f / static_cast<float>(spec.factor);
  if (wavelength > n0 / spec.low_freq_factor) return divided;
  const float smooth = (static_cast<float>(n0) / wavelength - static_cast<float>(spec.low_freq_factor)) /
                       static_cast<float>(spec.high_freq_factor - spec.low_freq_factor);
  return (1.0F - smooth) * divided + smooth * f;
}

// Peng et al. 2023 (arXiv 2309.00071), NTK-by-parts: pairs below `low` keep their frequency, above `high` are divided.
void yarn(const RopeSpec& spec, std::vector<float>& inv_freq) {
  const int32_t r = spec.rotary_dim;
  const auto correction = [&](double rotations) {
    return r * std::log(static_cast<double>(spec.original_positions) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(spec.base));
  };
  double low = correction(spec.beta_fast), high = correction(spec.beta_slow);
  if (spec.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(r - 1));
  if (low == high) high += 0.001;  // a ramp needs a width
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0F, 1.0F);
    const float keep = 1.0F - ramp;
    const float interpolated = 1.0F / (static_cast<float>(spec.factor) * (1.0F / inv_freq[i]));
    inv_freq[i] = interpolated * (1.0F - keep) + inv_freq[i] * keep;
  }
}

}  // namespace

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeTable make_rope_table(const RopeSpec& spec, int64_t n_tokens) {
  using Kind = RopeSpec::Kind;
  const int32_t r = spec.rotary_dim;
  HAY_CHECK(r >= 2 && r % 2 == 0 && r <= spec.head_dim);
  double base = spec.base;
  if (spec.kind == Kind::dynamic && r > 2) {
    const auto n = static_cast<double>(std::max(n_tokens, spec.max_positions));
    const double growth = spec.factor * n / static_cast<double>(spec.max_positions) - (spec.factor - 1);
    base *= std::pow(growth, static_cast<double>(r) / (r - 2));
  }
  RopeTable table;
  table.attention_factor = spec.attention_factor;
  table.inv_freq.resize(static_cast<size_t>(r / 2));
  const auto rotated = static_cast<int32_t>(spec.partial_factor * spec.head_dim / 2);  // proportional only
  for (int32_t i = 0; i < r / 2; ++i) {
    float& f = table.inv_freq[static_cast<size_t>(i)];
    f = frequency(base, i, r);
    if (spec.kind == Kind::linear) f /= static_cast<float>(spec.factor);
    if (spec.kind == Kind::llama3) f = llama3(spec, f);
    if (spec.kind == Kind::proportional) f = i < rotated ? f / static_cast<float>(spec.factor) : 0.0F;
    if (spec.kind == Kind::longrope) {
      const auto& factors = n_tokens > spec.original_positions ? spec.long_factors : spec.short_factors;
      f = 1.0F / (static_cast<float>(factors.at(static_cast<size_t>(i))) *
                  std::pow(static_cast<float>(base), static_cast<float>(2 * i) / static_cast<float>(r)));
    }
  }
  if (spec.kind == Kind::yarn) yarn(spec, table.inv_freq);
  return table;
}

}  // namespace hayfork::engine
