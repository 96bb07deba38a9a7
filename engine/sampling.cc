#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace hayfork::engine {

std::string sampling_fault(const Sampling& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0) return "temperature must be 0 or more";
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return "top_p must be above 0 and at most 1";
  if (sampling.top_k < 0) return "top_k must be 0 or more";
  return {};
}

Choice sample(std::span<const float> logits, const Sampling& sampling, int64_t position) {
  const float top = *std::max_element(logits.begin(), logits.end());
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  if (sampling.top_k > 0 || sampling.top_p < 1) {
    const size_t keep =
        sampling.top_k > 0 ? std::min<size_t>(ids.size(), static_cast<size_t>(sampling.top_k)) : ids.size();
    const auto larger = [&](int32_t a, int32_t b) {
      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(keep), ids.end(), larger);
    ids.resize(keep);
  }
  std::vector<double> weights(ids.size());
  double total = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double difference = static_cast<double>(logits[static_cast<size_t>(ids[i])]) - top;
    total += weights[i] = std::exp(difference / sampling.temperature);
  }
  if (sampling.top_p < 1) {
    double reached = 0;
    size_t n = 0;
    while (n < ids.size() && reached < sampling.top_p * total) reached += weights[n++];
    ids.resize(n);
    total = reached;
  }
  // A stream a position: two positions of one seed, or two seeds at one position, share nothing.
  const double draw = Rng(Rng(sampling.seed).next() ^ static_cast<uint64_t>(position)).uniform() * total;
  size_t chosen = 0;
  for (double below = weights[0]; chosen + 1 < ids.size() && below <= draw; below += weights[chosen]) ++chosen;

  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  const int32_t id = ids[chosen];
  return {id, static_cast<float>(logits[static_cast<size_t>(id)] - (top + std::log(sum)))};
}

}  // namespace hayfork::engine
