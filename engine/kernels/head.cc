#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/packed.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

constexpr int64_t kSlabPanels = 8;    // 512 ids a slab: fixed, so that sums do not depend on the threads
constexpr int64_t kRowsAtOnce = 192;  // rows whose logits of one slab are held: 384 kB
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a slab of ids says of one row; merged in id order.
struct Partial {
  double sum = 0;  // Σ exp(logit − top1)
  float top1 = -kInfinity, top2 = -kInfinity;
  int32_t argmax = 0;
  bool finite = true;
};

Partial reduce(const float* logits, int64_t n, int64_t first_id) {
  const LogitSummary s = simd().summarize(logits, n);
  return {s.sum, s.top1, s.top2, static_cast<int32_t>(first_id) + s.argmax, s.finite};
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
  const int64_t lanes = std::min<int64_t>(current_threads(), slabs);
  const int64_t block = std::min(kRowsAtOnce, n_rows);
  const size_t in_bytes = (input_bytes(w, block) + 63) / 64 * 64;
  const size_t lane_bytes = in_bytes + static_cast<size_t>(block * width) * sizeof(float);
  auto* memory = static_cast<char*>(scratch(context, lane_bytes * static_cast<size_t>(lanes)));
  parallel_for(lanes, 1, [&](int64_t lane_begin, int64_t lane_end) {
    for (int64_t lane = lane_begin; lane < lane_end; ++lane) {
      char* mine = memory + lane_bytes * static_cast<size_t>(lane);
      auto* logits = reinterpret_cast<float*>(mine + in_bytes);
      for (int64_t from = 0; from < n_rows; from += block) {
        const int64_t to = std::min(from + block, n_rows);
        const InputRows in = input_rows(w, hidden.row_range(from, to), mine);
        for (int64_t s = slabs * lane / lanes; s < slabs * (lane + 1) / lanes; ++s) {
          const int64_t first = s * width, n = std::min(width, w.n - first);
          multiply(w, in, first, n, logits, width);
          for (int64_t m = from; m < to; ++m) {
            float* row = logits + (m - from) * width;
            if (softcap > 0) simd().softcap(row, softcap, n);
            const auto at = static_cast<size_t>(m);
            if (rows[at].logits != nullptr) std::copy_n(row, n, rows[at].logits + first);
            for (size_t t = 0; t < targets[at].size(); ++t) {
              const int64_t id = rows[at].targets[t] - first;
              if (id >= 0 && id < n) targets[at][t] = row[id];
            }
            partials[static_cast<size_t>(m * slabs + s)] = reduce(row, n, first);
          }
        }
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
