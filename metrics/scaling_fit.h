// The law L(N, D) = a·N^−α + b·D^−β fitted to losses of models of N parameters trained on D tokens: Huber loss of the
// residuals of log L (Hoffmann et al. 2022, approach 3, without the constant: the form of arXiv 2606.15378's released
// fit). Deterministic; α and β are at least 0 and nothing else bounds them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hayfork::metrics {

struct ScalingPoint {
  double n = 0, d = 0;  // parameters without embeddings, training tokens
  double loss = 0;      // > 0; of LongPPL its natural logarithm
};

struct ScalingFit {
  double log_a = 0, log_b = 0, alpha = 0, beta = 0;
  double objective = 0;                                // Σ Huber(r), δ = 1e-3
  bool alpha_at_bound = false, beta_at_bound = false;  // within 1e-6 of 0: an end of the range, not a finding

  double predict(double n, double d) const;
};

constexpr size_t kFewestScalingPoints = 6;

// From a grid of starts, the best kept and polished. Requires: kFewestScalingPoints points or more, all of them > 0.
ScalingFit fit_scaling(std::span<const ScalingPoint> points);

// Fits of points drawn with replacement, each from the fit of all; SplitMix64, a stream a resample.
std::vector<ScalingFit> bootstrap_scaling(std::span<const ScalingPoint> points, const ScalingFit& fit, int resamples,
                                          uint64_t seed = 0);

struct Goodness {
  double r2 = 0;  // 1 − Σ(y − ŷ)² ÷ Σ(y − ȳ)²; of points of one size it judges the trend in D alone and may be negative
  double rmse = 0, mae = 0;
};
Goodness goodness(const ScalingFit& fit, std::span<const ScalingPoint> points);  // Requires: points not empty

}  // namespace hayfork::metrics
