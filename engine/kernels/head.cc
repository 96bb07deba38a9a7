#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/packed.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

constexpr int64_t kSlabPanels = 16;  // 1,024 ids a slab: fixed, so that sums do not depend on the threads
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a slab of ids says of one row; merged in id order.
struct Partial {
  double sum = 0;  // Σ exp(logit − top1)
  float top1 = -kInfinity, top2 = -kInfinity;
  int32_t argmax = 0;
  bool finite = true;
};

Partial reduce(const float* logits, int64_t n, int64_t first_id) {
  Partial p;
  for (int64_t i = 0; i < n; ++i) {
    p.finite = p.finite && std::isfinite(logits[i]);
    if (logits[i] > p.top1) {
      p.top2 = p.top1;
      p.top1 = logits[i];
      p.argmax = static_cast<int32_t>(first_id + i);
    } else if (logits[i] > p.top2) {
      p.top2 = logits[i];
    }
  }
  if (!p.finite) return p;
  for (int64_t i = 0; i < n; ++i) p.sum += std::exp(static_cast<double>(logits[i]) - p.top1);
  return p;
}

HeadRowResult merge(std::span<const Partial> partials) {
  HeadRowResult r;
  r.top1 = r.top2 = -kInfinity;
  for (const Partial& p : partials) {
    r.finite = r.finite && p.finite;
    if (p.top1 > r.top1) {
      r.top2 = std::max(r.top1, p.top2);
      r.top1 = p.top1;
      r.argmax = p.argmax;
    } else {
      r.top2 = std::max(r.top2, p.top1);
    }
  }
  if (!r.finite) {
    r.log_sum_exp = std::numeric_limits<float>::quiet_NaN();
    return r;
  }
  double sum = 0;
  for (const Partial& p : partials) sum += p.sum * std::exp(static_cast<double>(p.top1) - r.top1);
  r.log_sum_exp = static_cast<float>(r.top1 + std::log(sum));
  return r;
}

}  // namespace

std::vector<HeadRowResult> head(Context& context, Matrix hidden, const LinearWeight& weight, float softcap,
                                std::span<const HeadRow> rows) {
  const PackedWeight& w = packed(weight);
  const auto n_rows = static_cast<int64_t>(rows.size());
  HAY_CHECK(hidden.rows == n_rows && hidden.cols == w.k);
  const int64_t slabs = (w.panels + kSlabPanels - 1) / kSlabPanels;
  const int64_t width = kSlabPanels * kPanel;
  std::vector<Partial> partials(static_cast<size_t>(n_rows * slabs));
  std::vector<HeadRowResult> results(static_cast<size_t>(n_rows));
  for (size_t m = 0; m < rows.size(); ++m) {
    for (const int32_t id : rows[m].targets) HAY_CHECK(id >= 0 && id < w.n, "target outside the vocabulary");
  }
  std::vector<std::vector<float>> targets(rows.size());
  for (size_t m = 0; m < rows.size(); ++m) targets[m].resize(rows[m].targets.size());
  const int64_t lanes = current_threads();
  Matrix scratch = context.matrix(lanes * n_rows, width, DType::f32);
  parallel_for(lanes, 1, [&](int64_t lane_begin, int64_t lane_end) {
    float* logits = scratch.f32(lane_begin * n_rows);
    for (int64_t s = slabs * lane_begin / lanes; s < slabs * lane_end / lanes; ++s) {
      const int64_t first = s * width, n = std::min(width, w.n - first);
      multiply_panels(w, s * kSlabPanels, (n + kPanel - 1) / kPanel, hidden, logits, width);
      for (int64_t m = 0; m < n_rows; ++m) {
        float* row = logits + m * width;
        if (softcap > 0) {
          for (int64_t i = 0; i < n; ++i) row[i] = softcap * std::tanh(row[i] / softcap);
        }
        const HeadRow& ask = rows[static_cast<size_t>(m)];
        if (ask.logits != nullptr) std::copy_n(row, n, ask.logits + first);
        for (size_t t = 0; t < ask.targets.size(); ++t) {
          const int64_t id = ask.targets[t] - first;
          if (id >= 0 && id < n) targets[static_cast<size_t>(m)][t] = row[id];
        }
        partials[static_cast<size_t>(m * slabs + s)] = reduce(row, n, first);
      }
    }
  });
  for (size_t m = 0; m < rows.size(); ++m) {
    const auto first = static_cast<size_t>(slabs) * m;
    results[m] = merge(std::span(partials).subspan(first, static_cast<size_t>(slabs)));
    results[m].target_logits = std::move(targets[m]);
  }
  return results;
}

}  // namespace hayfork::engine::cpu
