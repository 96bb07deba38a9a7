#include "metrics/scaling_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/rng.h"

namespace hayfork::metrics {
namespace {

constexpr double kDelta = 1e-3;
constexpr double kBound = 1e-6;

// Unknowns: logarithms of the two terms at the points' centre, and square roots of α and β, which keeps these at 0 or
// above. About the centre the unknowns barely depend on each other.
using Vector = std::array<double, 4>;

struct Problem {
  std::vector<double> x, y, z;  // ln N and ln D about their means, ln L
  double x0 = 0, y0 = 0;

  explicit Problem(std::span<const ScalingPoint> points) {
    for (const ScalingPoint& p : points) {
      x.push_back(std::log(p.n));
      y.push_back(std::log(p.d));
      z.push_back(std::log(p.loss));
    }
    for (size_t i = 0; i < x.size(); ++i)
      x0 += x[i] / static_cast<double>(x.size()), y0 += y[i] / static_cast<double>(x.size());
    for (size_t i = 0; i < x.size(); ++i) x[i] -= x0, y[i] -= y0;
  }

  // Σ Huber ÷ δ² and its gradient: of the order of the number of points, so that no stopping rule ends it early.
  double operator()(const Vector& v, double delta, Vector& gradient) const {
    gradient = {};
    double sum = 0;
    const double alpha = v[2] * v[2], beta = v[3] * v[3];
    for (size_t i = 0; i < x.size(); ++i) {
      const double u = v[0] - alpha * x[i], w = v[1] - beta * y[i], top = std::max(u, w);
      const double eu = std::exp(u - top), ew = std::exp(w - top), share = eu / (eu + ew);
      const double r = top + std::log(eu + ew) - z[i], m = std::min(std::abs(r), delta);
      sum += 0.5 * m * m + delta * (std::abs(r) - m);
      const double slope = std::clamp(r, -delta, delta);
      gradient[0] += slope * share;
      gradient[1] += slope * (1 - share);
      gradient[2] -= slope * share * 2 * v[2] * x[i];
      gradient[3] -= slope * (1 - share) * 2 * v[3] * y[i];
    }
    for (double& g : gradient) g /= delta * delta;
    return sum / (delta * delta);
  }
};

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) sum += a[i] * b[i];
  return sum;
}

using Matrix = std::array<Vector, 4>;
constexpr Matrix kIdentity = {{{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}};

// H ← (I − ρ s yᵀ) H (I − ρ y sᵀ) + ρ s sᵀ      Nocedal and Wright, Numerical Optimization, eq. 6.17
void update_inverse(Matrix& h, const Vector& s, const Vector& y) {
  const double sy = dot(s, y);
  if (!(sy > 1e-14 * std::sqrt(dot(s, s) * dot(y, y)))) return;
  Vector hy;
  for (size_t i = 0; i < 4; ++i) hy[i] = dot(h[i], y);
  const double yhy = dot(y, hy);
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) h[i][j] += ((sy + yhy) * s[i] * s[j] / sy - hy[i] * s[j] - s[i] * hy[j]) / sy;
  }
}

// Quasi-Newton descent with halving steps, begun again along the gradient where it stalls. Returns the value.
double minimise(const Problem& problem, double delta, int iterations, Vector& v) {
  Vector g;
  double f = problem(v, delta, g);
  Matrix h = kIdentity;
  bool fresh = true;
  for (int k = 0; k < iterations; ++k) {
    Vector step;
    for (size_t i = 0; i < 4; ++i) step[i] = -dot(h[i], g);
    double slope = dot(step, g);
    if (!(slope < 0)) {
      h = kIdentity;
      for (size_t i = 0; i < 4; ++i) step[i] = -g[i];
      slope = dot(step, g);
    }
    const double length = std::sqrt(dot(step, step));
    double t = length > 1 ? 1 / length : 1;
    Vector next = v, next_g{};
    double next_f = f;
    for (int half = 0; half < 50; ++half, t /= 2) {
      for (size_t i = 0; i < 4; ++i) next[i] = v[i] + t * step[i];
      next_f = problem(next, delta, next_g);
      if (next_f <= f + 1e-4 * t * slope) break;
    }
    if (!(next_f < f)) {
      if (fresh) break;
      h = kIdentity;
      fresh = true;
      continue;
    }
    Vector s, y;
    for (size_t i = 0; i < 4; ++i) s[i] = next[i] - v[i], y[i] = next_g[i] - g[i];
    update_inverse(h, s, y);
    fresh = false;
    v = next;
    g = next_g;
    f = next_f;
  }
  return f;
}

ScalingFit as_fit(const Problem& problem, const Vector& v, double value) {
  ScalingFit fit;
  fit.alpha = v[2] * v[2];
  fit.beta = v[3] * v[3];
  fit.log_a = v[0] + fit.alpha * problem.x0;
  fit.log_b = v[1] + fit.beta * problem.y0;
  fit.objective = value * kDelta * kDelta;
  fit.alpha_at_bound = fit.alpha < kBound;
  fit.beta_at_bound = fit.beta < kBound;
  return fit;
}

// A wide, smooth loss first: with δ = 1e-3 alone a start far off sees only the signs of the residuals.
double descend(const Problem& problem, Vector& v, int iterations) {
  minimise(problem, 1e-1, iterations, v);
  minimise(problem, 1e-2, iterations, v);
  return minimise(problem, kDelta, iterations, v);
}

}  // namespace

double ScalingFit::predict(double n, double d) const {
  return std::exp(log_a - alpha * std::log(n)) + std::exp(log_b - beta * std::log(d));
}

ScalingFit fit_scaling(std::span<const ScalingPoint> points) {
  HAY_CHECK(points.size() >= kFewestScalingPoints);
  const Problem problem(points);
  double centre = 0;
  for (const double z : problem.z) centre += z / static_cast<double>(problem.z.size());
  Vector best{};
  double least = INFINITY;
  for (const double alpha : {0.05, 0.2, 0.5, 1.0}) {
    for (const double beta : {0.05, 0.2, 0.5, 1.0}) {
      for (const double share : {0.2, 0.5, 0.8}) {
        Vector v = {centre + std::log(share), centre + std::log(1 - share), std::sqrt(alpha), std::sqrt(beta)};
        const double value = descend(problem, v, 200);
        if (value >= least) continue;
        least = value;
        best = v;
      }
    }
  }
  for (int i = 0; i < 5; ++i) least = minimise(problem, kDelta, 2000, best);
  return as_fit(problem, best, least);
}

std::vector<ScalingFit> bootstrap_scaling(std::span<const ScalingPoint> points, const ScalingFit& fit, int resamples,
                                          uint64_t seed) {
  std::vector<ScalingFit> out;
  for (int b = 0; b < resamples; ++b) {
    Rng rng(seed, "scaling " + std::to_string(b));
    std::vector<ScalingPoint> drawn;
    for (size_t i = 0; i < points.size(); ++i) drawn.push_back(points[rng.below(points.size())]);
    const Problem problem(drawn);
    Vector v = {fit.log_a - fit.alpha * problem.x0, fit.log_b - fit.beta * problem.y0, std::sqrt(fit.alpha),
                std::sqrt(fit.beta)};
    const double value = descend(problem, v, 60);
    out.push_back(as_fit(problem, v, value));
  }
  return out;
}

Goodness goodness(const ScalingFit& fit, std::span<const ScalingPoint> points) {
  const auto n = static_cast<double>(points.size());
  double mean = 0, left = 0, all = 0, off = 0;
  for (const ScalingPoint& p : points) mean += p.loss / n;
  for (const ScalingPoint& p : points) {
    const double r = p.loss - fit.predict(p.n, p.d);
    left += r * r;
    off += std::abs(r);
    all += (p.loss - mean) * (p.loss - mean);
  }
  return {all > 0 ? 1 - left / all : 0, std::sqrt(left / n), off / n};
}

}  // namespace hayfork::metrics
