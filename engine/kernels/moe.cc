#include "engine/kernels/moe.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/cpu_only.h"
#include "engine/kernels/simd/simd.h"

namespace hayfork::engine {
namespace {

void route_row(const float* logits, int64_t n, const RouterParams& p, Vector scale, int32_t* expert, float* weight) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
  std::partial_sort(order.begin(), order.begin() + p.top_k, order.end(),
                    [&](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
  const float top = logits[order[0]];
  float sum = 0;
  if (p.softmax_over_chosen) {
    for (int32_t i = 0; i < p.top_k; ++i) sum += std::exp(logits[order[static_cast<size_t>(i)]] - top);
  } else {
    for (int64_t e = 0; e < n; ++e) sum += std::exp(logits[e] - top);
  }
  float chosen = 0;
  for (int32_t i = 0; i < p.top_k; ++i) {
    expert[i] = order[static_cast<size_t>(i)];
    weight[i] = std::exp(logits[expert[i]] - top) / sum;
    chosen += weight[i];
  }
  for (int32_t i = 0; i < p.top_k; ++i) {
    if (p.renormalise) weight[i] /= chosen;
    if (scale) weight[i] *= scale.data[expert[i]];
  }
}

void clamped_swiglu(Matrix y, Matrix gate, Matrix up, const ExpertActivation& act) {
  for (int64_t m = 0; m < y.rows; ++m) {
    for (int64_t c = 0; c < y.cols; ++c) {
      const float g = std::min(gate.f32(m)[c], act.limit);
      const float u = std::clamp(up.f32(m)[c], -act.limit, act.limit);
      y.f32(m)[c] = (u + 1.0F) * (g / (1.0F + std::exp(-act.alpha * g)));
    }
  }
}

// One expert on the rows listed (all of one kind).
void run_expert(Context& context, Matrix y, Matrix x, const std::vector<std::pair<int32_t, float>>& rows, size_t e,
                const ExpertWeights& weights, const ExpertActivation& act, RowKind kind, const ExpertScratch& scratch) {
  const auto n = static_cast<int64_t>(rows.size());
  if (n == 0) return;
  Matrix in = scratch.x.row_range(0, n), u = scratch.gate_up.row_range(0, n), out = scratch.y.row_range(0, n);
  for (int64_t i = 0; i < n; ++i) std::copy_n(x.f32(rows[static_cast<size_t>(i)].first), x.cols, in.f32(i));
  linear(context, u, in, *weights.gate_up[e], kind);
  Matrix gate = u.columns(0, weights.width), up = u.columns(weights.width, weights.width);
  if (act.limit > 0) {
    clamped_swiglu(gate, gate, up, act);
  } else {
    act_mul(context, gate, gate, up, act.act);
  }
  linear(context, out, gate, *weights.down[e], kind);
  for (int64_t i = 0; i < n; ++i) {
    const auto& [row, weight] = rows[static_cast<size_t>(i)];
    cpu::simd().add(y.f32(row), out.f32(i), weight, y.cols);
  }
}

}  // namespace

void route(Context& context, Routing out, Matrix logits, const RouterParams& p, Vector scale) {
  require_cpu(context, "a mixture of experts");
  HAY_CHECK(p.top_k >= 1 && p.top_k <= logits.cols && out.top_k == p.top_k && (!scale || scale.size == logits.cols));
  parallel_for(logits.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      route_row(logits.f32(m), logits.cols, p, scale, out.expert + m * p.top_k, out.weight + m * p.top_k);
    }
  });
}

void run_experts(Context& context, Matrix y, Matrix x, const Routing& routing, const ExpertWeights& weights,
                 const ExpertActivation& act, const RowGroups& groups, const ExpertScratch& scratch) {
  require_cpu(context, "a mixture of experts");
  for (int64_t m = 0; m < y.rows; ++m) std::fill_n(y.f32(m), y.cols, 0.0F);
  for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
    std::vector<std::vector<std::pair<int32_t, float>>> rows_of(weights.gate_up.size());
    for (const RowGroup& group : groups) {
      if (group.kind != kind) continue;
      for (int32_t m = group.begin; m < group.end; ++m) {
        for (int32_t i = 0; i < routing.top_k; ++i) {
          const auto at = static_cast<size_t>(m) * static_cast<size_t>(routing.top_k) + static_cast<size_t>(i);
          rows_of[static_cast<size_t>(routing.expert[at])].emplace_back(m, routing.weight[at]);
        }
      }
    }
    for (size_t e = 0; e < rows_of.size(); ++e) {
      run_expert(context, y, x, rows_of[e], e, weights, act, kind, scratch);
    }
  }
}

}  // namespace hayfork::engine
