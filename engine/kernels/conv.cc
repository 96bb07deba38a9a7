#include "engine/kernels/conv.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine {
namespace cpu {
namespace {

constexpr int64_t kBlock = 256;  // channels a task: a sequence alone keeps several threads busy
constexpr int64_t kMaxTaps = 64;

// Channels [first, first + n) of one sequence. Rows are taken from the last to the first, so that inputs are still
// there when they are needed.
void convolve(const Pass& pass, const SequenceRows& sequence, Matrix x, Vector w, Vector bias, int64_t taps,
              float* tail, int64_t first, int64_t n) {
  const auto row = [&](size_t i) { return x.f32(sequence.base[i]) + first; };
  const auto length = static_cast<int64_t>(sequence.base.size());
  const int64_t kept = taps - 1;
  std::vector<float> before(static_cast<size_t>(kept * n), 0.0F);  // inputs at positions −kept … −1 of this pass
  if (pass.rows[static_cast<size_t>(sequence.base[0])].pos > 0) {
    for (int64_t m = 0; m < kept; ++m) std::copy_n(tail + m * x.cols + first, n, before.data() + m * n);
  }
  const auto input = [&](int64_t t) -> const float* {
    return t >= 0 ? row(static_cast<size_t>(t)) : before.data() + (kept + t) * n;
  };
  for (int64_t m = 0; m < kept; ++m) std::copy_n(input(length - kept + m), n, tail + m * x.cols + first);
  const float* inputs[kMaxTaps];
  for (int64_t t = length - 1; t >= 0; --t) {
    for (int64_t m = 0; m < taps; ++m) inputs[m] = input(t - kept + m);
    cpu::simd().conv_row(inputs, w.data + first, x.cols, bias ? bias.data + first : nullptr, taps,
                         row(static_cast<size_t>(t)), n, true);
  }
}

template <typename Body>  // body(row)
void for_rows(Matrix x, const Body& body) {
  parallel_for(x.rows, 1 + (1 << 14) / (x.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) body(m);
  });
}

}  // namespace

void causal_conv_silu(Context&, const Pass& pass, Matrix x, Vector w, Vector bias, int64_t taps, StateView state) {
  HAY_CHECK(taps <= kMaxTaps);
  const std::vector<SequenceRows> sequences = rows_by_sequence(pass);
  const int64_t blocks = (x.cols + kBlock - 1) / kBlock;
  parallel_for(static_cast<int64_t>(sequences.size()) * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const SequenceRows& sequence = sequences[static_cast<size_t>(i / blocks)];
      if (sequence.base.empty()) continue;
      const int64_t first = i % blocks * kBlock;
      float* tail = state.of(pass.seqs[static_cast<size_t>(sequence.seq)].state_slot);
      convolve(pass, sequence, x, w, bias, taps, tail, first, std::min(kBlock, x.cols - first));
    }
  });
}

void silu(Context&, Matrix y, Matrix x) {
  const std::vector<float> ones(static_cast<size_t>(x.cols), 1.0F);
  for_rows(x, [&](int64_t m) { cpu::simd().silu_mul(x.f32(m), ones.data(), y.f32(m), x.cols); });
}

void l2norm(Context&, Matrix x, float eps, float scale, int64_t group) {
  // x / sqrt(Σx² + eps) = x / sqrt(mean + eps/n) / sqrt(n): the RMS norm's loop with other constants.
  const auto n = static_cast<float>(group);
  const float factor = scale / std::sqrt(n);
  for_rows(x, [&](int64_t m) {
    for (int64_t c = 0; c < x.cols; c += group) {
      cpu::simd().rmsnorm(x.f32(m) + c, x.f32(m) + c, nullptr, 0, eps / n, group);
      cpu::simd().scale(x.f32(m) + c, factor, group);
    }
  });
}

}  // namespace cpu

void causal_conv_silu(Context& context, const Pass& pass, Matrix x, Vector w, Vector bias, int64_t taps,
                      StateView state) {
  HAY_CHECK(taps >= 2 && w.size == taps * x.cols && (!bias || bias.size == x.cols));
  HAY_DISPATCH(context, causal_conv_silu, (context, pass, x, w, bias, taps, state));
}
void silu(Context& context, Matrix y, Matrix x) {
  HAY_CHECK(y.rows == x.rows && y.cols == x.cols);
  HAY_DISPATCH(context, silu, (context, y, x));
}
void l2norm(Context& context, Matrix x, float eps, float scale, int64_t group) {
  HAY_CHECK(group >= 1 && x.cols % group == 0);
  HAY_DISPATCH(context, l2norm, (context, x, eps, scale, group));
}

}  // namespace hayfork::engine
