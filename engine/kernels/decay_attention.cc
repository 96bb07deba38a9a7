#include "engine/kernels/decay_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/simd/simd.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine {
namespace cpu {
namespace {

constexpr int64_t kHeaderFloats = 16;  // length; one line

int64_t head_floats(const DecayHeads& heads) {
  return kHeaderFloats + (int64_t{heads.dk} * heads.dv + 15) / 16 * 16;
}

float softplus(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

struct Inputs {
  const Pass& pass;
  Matrix o, q, k, v;
  const Decay& decay;
  Matrix v_scale;
  Vector skip;
  const DecayHeads& heads;
};

// One head of one sequence, token by token.
void walk(const Inputs& in, const SequenceRows& rows, int32_t h, float* state) {
  const DecayHeads& p = in.heads;
  float* s = state + kHeaderFloats;
  const int32_t first = in.pass.rows[static_cast<size_t>(rows.base[0])].pos;
  int32_t length = 0;
  std::memcpy(&length, state, sizeof length);
  if (first == 0) {
    std::fill_n(state, head_floats(p), 0.0F);
    length = 0;
  }
  HAY_CHECK(first == length, "the state stands at another position");
  const int64_t q_head = int64_t{h} * p.n_q / p.n, k_head = int64_t{h} * p.n_k / p.n, v_head = int64_t{h} * p.n_v / p.n;
  const float constant = in.decay.per_head ? std::exp(in.decay.per_head.data[h]) : 1.0F;
  std::vector<float> value(static_cast<size_t>(p.dv)), channels(static_cast<size_t>(p.dk));
  for (const int32_t row : rows.base) {
    const float* v = in.v.f32(row) + v_head * p.dv;
    const float scale = in.v_scale.data == nullptr ? 1.0F : in.v_scale.f32(row)[h];
    for (int32_t c = 0; c < p.dv; ++c) value[static_cast<size_t>(c)] = scale * v[c];
    const float decay = in.decay.per_token.data == nullptr ? constant : std::exp(in.decay.per_token.f32(row)[h]);
    const float* decays = nullptr;
    if (in.decay.per_channel.data != nullptr) {
      const float* logs = in.decay.per_channel.f32(row) + k_head * p.dk;
      for (int32_t i = 0; i < p.dk; ++i) channels[static_cast<size_t>(i)] = std::exp(logs[i]);
      decays = channels.data();
    }
    float* o = in.o.f32(row) + int64_t{h} * p.dv;
    cpu::simd().state_update_read(s, p.dk, p.dv, decay, decays, in.k.f32(row) + k_head * p.dk, value.data(),
                                  in.q.f32(row) + q_head * p.dk, o);
    if (!in.skip) continue;
    const bool per_channel = in.skip.size != p.n;
    for (int32_t c = 0; c < p.dv; ++c) o[c] += in.skip.data[per_channel ? int64_t{h} * p.dv + c : h] * v[c];
  }
  length += static_cast<int32_t>(rows.base.size());
  std::memcpy(state, &length, sizeof length);
}

template <typename Body>  // body(row)
void for_rows(Matrix x, const Body& body) {
  parallel_for(x.rows, 1 + (1 << 12) / (x.cols + 1), [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) body(m);
  });
}

}  // namespace

int64_t decay_attention_state_bytes(const Context&, const DecayHeads& heads, bool) {
  return state_bytes(heads.n * head_floats(heads));
}

int64_t decay_attention_chunk_bytes(const Context&, const DecayHeads&, bool) {
  return 0;
}

void decay_attention(Context&, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, const Decay& decay,
                     Matrix v_scale, Vector skip, const DecayHeads& p, StateView state, Matrix) {
  const std::vector<SequenceRows> sequences = rows_by_sequence(pass);
  const Inputs inputs{pass, o, q, k, v, decay, v_scale, skip, p};
  parallel_for(static_cast<int64_t>(sequences.size()) * p.n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const SequenceRows& rows = sequences[static_cast<size_t>(i / p.n)];
      HAY_CHECK(rows.output.empty() && !rows.base.empty(), "linear attention has one stream");
      const auto h = static_cast<int32_t>(i % p.n);
      float* at = state.of(pass.seqs[static_cast<size_t>(rows.seq)].state_slot) + h * head_floats(p);
      walk(inputs, rows, h, at);
    }
  });
}

void mamba2_steps(Context&, Matrix steps, Matrix a, Matrix dt, Vector dt_bias, Vector a_log, float low, float high) {
  for_rows(dt, [&](int64_t m) {
    for (int64_t h = 0; h < dt.cols; ++h) {
      const float step = std::clamp(softplus(dt.f32(m)[h] + dt_bias.data[h]), low, high);
      steps.f32(m)[h] = step;
      a.f32(m)[h] = -std::exp(a_log.data[h]) * step;
    }
  });
}

void log_sigmoid(Context&, Matrix y, Matrix x, float scale, float floor) {
  for_rows(x, [&](int64_t m) {
    const float* row = x.f32(m);
    float* to = y.f32(m);
    for (int64_t c = 0; c < x.cols; ++c) {
      const float log = std::min(row[c], 0.0F) - std::log1p(std::exp(-std::abs(row[c])));
      to[c] = std::max(log * scale, floor);
    }
  });
}

}  // namespace cpu

int64_t decay_attention_state_bytes(const Context& context, const DecayHeads& heads, bool per_channel) {
  return HAY_DISPATCH(context, decay_attention_state_bytes, (context, heads, per_channel));
}
int64_t decay_attention_chunk_bytes(const Context& context, const DecayHeads& heads, bool per_channel) {
  return HAY_DISPATCH(context, decay_attention_chunk_bytes, (context, heads, per_channel));
}
void decay_attention(Context& context, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, const Decay& decay,
                     Matrix v_scale, Vector skip, const DecayHeads& p, StateView state, Matrix scratch) {
  HAY_CHECK(q.cols == int64_t{p.n_q} * p.dk && k.cols == int64_t{p.n_k} * p.dk && v.cols == int64_t{p.n_v} * p.dv);
  HAY_CHECK(o.cols == int64_t{p.n} * p.dv && p.n % p.n_q == 0 && p.n % p.n_k == 0 && p.n % p.n_v == 0);
  HAY_CHECK(!skip || skip.size == p.n || skip.size == o.cols);
  HAY_DISPATCH(context, decay_attention, (context, pass, o, q, k, v, decay, v_scale, skip, p, state, scratch));
}
void mamba2_steps(Context& context, Matrix steps, Matrix a, Matrix dt, Vector dt_bias, Vector a_log, float low,
                  float high) {
  HAY_CHECK(dt.cols == a.cols && dt.rows == a.rows && dt_bias.size == dt.cols && a_log.size == dt.cols);
  HAY_CHECK(steps.cols == dt.cols && steps.rows == dt.rows && steps.dtype == DType::f32 && a.dtype == DType::f32);
  HAY_DISPATCH(context, mamba2_steps, (context, steps, a, dt, dt_bias, a_log, low, high));
}
void log_sigmoid(Context& context, Matrix y, Matrix x, float scale, float floor) {
  HAY_CHECK(y.rows == x.rows && y.cols == x.cols && y.dtype == DType::f32);
  HAY_DISPATCH(context, log_sigmoid, (context, y, x, scale, floor));
}

}  // namespace hayfork::engine
