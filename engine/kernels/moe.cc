#include "engine/kernels/moe.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/mxfp4.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

float ordered(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

void route_row(const float* logits, int64_t n, const RouterParams& p, Vector scale, int32_t* expert, float* weight) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int32_t>(e);
  std::partial_sort(order.begin(), order.begin() + p.top_k, order.end(), [&](int32_t a, int32_t b) {
    const float x = ordered(logits[a]), y = ordered(logits[b]);
    return x > y || (x == y && a < b);
  });
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

// Memory for the rows of one expert: [rows, hidden], [rows, 2·width], [rows, hidden].
struct ExpertScratch {
  Matrix x, gate_up, y;
};

class ExpertsOnCpu : public Experts {
 public:
  explicit ExpertsOnCpu(const ExpertShape& s) : load_(static_cast<size_t>(s.n_experts), 0) { shape = s; }

  void set(Context& context, Part part, int64_t e, std::span<const LinearPart> rows,
           std::span<const float> bias) override {
    std::vector<LinearPart> parts(rows.begin(), rows.end());
    int64_t first = 0;
    for (LinearPart& p : parts) {
      if (!bias.empty()) p.bias = {bias.data() + first, p.n};
      first += p.n;
    }
    auto& all = part == Part::gate_up ? gate_up_ : down_;
    HAY_CHECK(static_cast<size_t>(e) == all.size() && first == n_rows(part));
    all.push_back(cpu::make_linear(context, parts, n_columns(part)));
    bytes += all.back()->bytes;
  }

  void set_mxfp4(Context& context, Part part, int64_t e, Mxfp4Rows rows, std::span<const float> bias) override {
    const int64_t n = n_rows(part), blocks = n_columns(part) / 32;
    std::vector<float> values(static_cast<size_t>(n * blocks * 32));
    parallel_for(n, 16, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        decode_mxfp4(rows.blocks + row * blocks * 16, rows.exponents + row * blocks, blocks,
                     values.data() + row * blocks * 32);
    });
    const LinearPart whole{values.data(), DType::f32, n, {}};
    set(context, part, e, std::span(&whole, 1), bias);
  }

  int64_t scratch_bytes(int64_t n_rows, int32_t /*top_k*/) const override {
    return n_rows * (2 * shape.hidden + 2 * shape.width) * static_cast<int64_t>(sizeof(float));
  }

  std::vector<int64_t> load(Context& /*context*/) const override { return load_; }

  void run(Context& context, Matrix y, Matrix x, const Routing& routing, const ExpertActivation& act,
           const RowGroups& groups, void* scratch) const {
    for (int64_t m = 0; m < y.rows; ++m) std::fill_n(y.f32(m), y.cols, 0.0F);
    for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
      std::vector<std::vector<std::pair<int32_t, float>>> rows_of(gate_up_.size());
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
        load_[e] += static_cast<int64_t>(rows_of[e].size());
        run_expert(context, y, x, rows_of[e], e, act, kind, scratch);
      }
    }
  }

 private:
  int64_t n_rows(Part part) const { return part == Part::gate_up ? 2 * shape.width : shape.hidden; }
  int64_t n_columns(Part part) const { return part == Part::gate_up ? shape.hidden : shape.width; }

  // One expert on the rows listed (all of one kind).
  void run_expert(Context& context, Matrix y, Matrix x, const std::vector<std::pair<int32_t, float>>& rows, size_t e,
                  const ExpertActivation& act, RowKind kind, void* scratch) const {
    const auto n = static_cast<int64_t>(rows.size());
    if (n == 0) return;
    const int64_t width = shape.width;
    auto* memory = static_cast<float*>(scratch);
    const Matrix in{memory, DType::f32, n, shape.hidden, shape.hidden};
    const Matrix out{memory + n * shape.hidden, DType::f32, n, shape.hidden, shape.hidden};
    const Matrix u{memory + 2 * n * shape.hidden, DType::f32, n, 2 * width, 2 * width};
    for (int64_t i = 0; i < n; ++i) std::copy_n(x.f32(rows[static_cast<size_t>(i)].first), x.cols, in.f32(i));
    cpu::linear(context, u, in, *gate_up_[e], kind);
    Matrix gate = u.columns(0, width), up = u.columns(width, width);
    if (act.limit > 0) {
      clamped_swiglu(gate, gate, up, act);
    } else {
      cpu::act_mul(context, gate, gate, up, act.act);
    }
    cpu::linear(context, out, gate, *down_[e], kind);
    for (int64_t i = 0; i < n; ++i) {
      const auto& [row, weight] = rows[static_cast<size_t>(i)];
      simd().add(y.f32(row), out.f32(i), weight, y.cols);
    }
  }

  std::vector<std::unique_ptr<LinearWeight>> gate_up_, down_;
  mutable std::vector<int64_t> load_;
};

}  // namespace

std::unique_ptr<Experts> make_experts(Context& /*context*/, const ExpertShape& shape) {
  return std::make_unique<ExpertsOnCpu>(shape);
}

void route(Context& /*context*/, Routing out, Matrix logits, const RouterParams& p, Vector scale) {
  HAY_CHECK(p.top_k >= 1 && p.top_k <= logits.cols && out.top_k == p.top_k && (!scale || scale.size == logits.cols));
  parallel_for(logits.rows, 64, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      route_row(logits.f32(m), logits.cols, p, scale, out.expert + m * p.top_k, out.weight + m * p.top_k);
    }
  });
}

void run_experts(Context& context, Matrix y, Matrix x, const Routing& routing, const Experts& experts,
                 const ExpertActivation& act, const RowGroups& groups, void* scratch) {
  static_cast<const ExpertsOnCpu&>(experts).run(context, y, x, routing, act, groups, scratch);
}

}  // namespace hayfork::engine::cpu
