#include "engine/kernels/gated_delta.h"

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

// State: per state head j [length (one line)] [S] [S before the last write, when output rows read before it].
constexpr int64_t kHeaderFloats = 16;

int64_t head_floats(const GatedDeltaParams& p) {
  const int64_t matrix = int64_t{p.dk} * p.dv;
  return kHeaderFloats + (p.read_before_write ? 2 : 1) * ((matrix + 15) / 16 * 16);
}

float softplus(float x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

struct Inputs {
  const Pass& pass;
  Matrix o, q, k, v, a, b;
  Vector a_log, dt_bias;
  const GatedDeltaParams& p;
};

// One state of one sequence, token by token.
class Walk {
 public:
  Walk(const Inputs& in, const SequenceRows& rows, int32_t j, float* state)
      : in_(in),
        rows_(rows),
        j_(j),
        header_(state),
        s_(state + kHeaderFloats),
        before_(s_ + (int64_t{in.p.dk} * in.p.dv + 15) / 16 * 16),
        delta_(static_cast<size_t>(in.p.dv)) {}

  void run() {
    const int64_t n = int64_t{in_.p.dk} * in_.p.dv;
    int32_t length = 0;
    std::memcpy(&length, header_, sizeof length);
    if (!rows_.base.empty() && position(rows_.base[0]) == 0) {
      std::fill_n(header_, head_floats(in_.p), 0.0F);
      length = 0;
    }
    HAY_CHECK(rows_.base.empty() || position(rows_.base[0]) == length, "the state stands at another position");
    size_t next = 0;  // output row
    const auto read_at = [&](int32_t pos, const float* s) {
      for (; next < rows_.output.size() && position(rows_.output[next]) <= pos; ++next) {
        HAY_CHECK(position(rows_.output[next]) == pos, "an output row's state is gone");
        read(rows_.output[next], s);
      }
    };
    if (length > 0) read_at(length - 1, in_.p.read_before_write ? before_ : s_);
    for (size_t i = 0; i < rows_.base.size(); ++i) {
      const int32_t row = rows_.base[i], pos = position(row);
      if (in_.p.read_before_write) {
        read_at(pos, s_);
        if (i + 1 == rows_.base.size()) std::copy_n(s_, n, before_);
      }
      step(row);
      if (!in_.p.read_before_write) read_at(pos, s_);
    }
    HAY_CHECK(next == rows_.output.size(), "an output row is ahead of its base row");
    length += static_cast<int32_t>(rows_.base.size());
    std::memcpy(header_, &length, sizeof length);
  }

 private:
  int32_t position(int32_t row) const { return in_.pass.rows[static_cast<size_t>(row)].pos; }
  int32_t first_reader() const { return (j_ * in_.p.n_out() + in_.p.n_v - 1) / in_.p.n_v; }
  int32_t end_reader() const { return ((j_ + 1) * in_.p.n_out() + in_.p.n_v - 1) / in_.p.n_v; }
  const float* query(int32_t row, int32_t h) const {
    return in_.q.f32(row) + int64_t{h * in_.p.n_q / in_.p.n_out()} * in_.p.dk;
  }

  void read(int32_t row, const float* s) const {
    for (int32_t h = first_reader(); h < end_reader(); ++h) {
      cpu::simd().state_read(s, in_.p.dk, in_.p.dv, query(row, h), in_.o.f32(row) + int64_t{h} * in_.p.dv);
    }
  }

  void step(int32_t row) {
    const GatedDeltaParams& p = in_.p;
    const float beta = (p.negative_eigenvalues ? 2.0F : 1.0F) / (1.0F + std::exp(-in_.b.f32(row)[j_]));
    const float g = -std::exp(in_.a_log.data[j_]) * softplus(in_.a.f32(row)[j_] + in_.dt_bias.data[j_]);
    const float* k = in_.k.f32(row) + int64_t{j_ * p.n_k / p.n_v} * p.dk;
    const float* v = in_.v.f32(row) + int64_t{j_} * p.dv;
    cpu::simd().state_decay_read(s_, p.dk, p.dv, std::exp(g), k, delta_.data());
    for (int32_t c = 0; c < p.dv; ++c) delta_[static_cast<size_t>(c)] = beta * (v[c] - delta_[static_cast<size_t>(c)]);
    const int32_t first = first_reader();
    float* o = in_.o.f32(row);
    cpu::simd().state_update_read(s_, p.dk, p.dv, 1.0F, nullptr, k, delta_.data(), query(row, first),
                                  o + int64_t{first} * p.dv);
    for (int32_t h = first + 1; h < end_reader(); ++h) {
      cpu::simd().state_read(s_, p.dk, p.dv, query(row, h), o + int64_t{h} * p.dv);
    }
  }

  const Inputs& in_;
  const SequenceRows& rows_;
  int32_t j_;
  float *header_, *s_, *before_;
  std::vector<float> delta_;
};

}  // namespace

int64_t gated_delta_state_bytes(const Context&, const GatedDeltaParams& params) {
  return state_bytes(params.n_v * head_floats(params));
}

int64_t gated_delta_chunk_bytes(const Context&, const GatedDeltaParams&) {
  return 0;
}

void gated_delta(Context&, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, Matrix a, Matrix b, Vector a_log,
                 Vector dt_bias, const GatedDeltaParams& p, StateView state, Matrix) {
  const std::vector<SequenceRows> sequences = rows_by_sequence(pass);
  const Inputs inputs{pass, o, q, k, v, a, b, a_log, dt_bias, p};
  parallel_for(static_cast<int64_t>(sequences.size()) * p.n_v, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const SequenceRows& rows = sequences[static_cast<size_t>(i / p.n_v)];
      const auto j = static_cast<int32_t>(i % p.n_v);
      float* at = state.of(pass.seqs[static_cast<size_t>(rows.seq)].state_slot) + j * head_floats(p);
      Walk(inputs, rows, j, at).run();
    }
  });
}

}  // namespace cpu

int64_t gated_delta_state_bytes(const Context& context, const GatedDeltaParams& params) {
  return HAY_DISPATCH(context, gated_delta_state_bytes, (context, params));
}
int64_t gated_delta_chunk_bytes(const Context& context, const GatedDeltaParams& params) {
  return HAY_DISPATCH(context, gated_delta_chunk_bytes, (context, params));
}
void gated_delta(Context& context, const Pass& pass, Matrix o, Matrix q, Matrix k, Matrix v, Matrix a, Matrix b,
                 Vector a_log, Vector dt_bias, const GatedDeltaParams& p, StateView state, Matrix scratch) {
  HAY_CHECK(q.cols == int64_t{p.n_q} * p.dk && k.cols == int64_t{p.n_k} * p.dk && v.cols == int64_t{p.n_v} * p.dv);
  HAY_CHECK(o.cols == int64_t{p.n_out()} * p.dv && a.cols == p.n_v && b.cols == p.n_v && a_log.size == p.n_v);
  HAY_CHECK(dt_bias.size == p.n_v && p.n_out() % p.n_v == 0 && p.n_out() % p.n_q == 0 && p.n_v % p.n_k == 0);
  HAY_DISPATCH(context, gated_delta, (context, pass, o, q, k, v, a, b, a_log, dt_bias, p, state, scratch));
}

}  // namespace hayfork::engine
