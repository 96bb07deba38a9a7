// Recurrent ops against their formulas in float64, and against worked examples.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "base/parallel.h"
#include "engine/kernels/conv.h"
#include "engine/kernels/decay_attention.h"
#include "engine/kernels/gated_delta.h"
#include "engine/kernels/moe.h"
#include "engine/kernels/mxfp4.h"
#include "engine/mixers/lightning.h"

namespace hayfork::engine {
namespace {

// Rows [begin, end) of one sequence in the base stream.
std::vector<Row> base_rows(int32_t begin, int32_t end) {
  std::vector<Row> rows;
  for (int32_t t = begin; t < end; ++t) rows.push_back({0, t, 0, Stream::base, RowKind::prefill, -1});
  return rows;
}

struct Table {
  Table(int64_t rows_, int64_t cols_, uint32_t seed)
      : rows(rows_), cols(cols_), values(static_cast<size_t>(rows_ * cols_)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& v : values) v = normal(random);
  }
  Matrix matrix() { return {values.data(), DType::f32, rows, cols, cols}; }
  Matrix part(int64_t begin, int64_t end) { return matrix().row_range(begin, end); }
  double at(int64_t r, int64_t c) const { return static_cast<double>(values[static_cast<size_t>(r * cols + c)]); }
  int64_t rows, cols;
  std::vector<float> values;
};

Vector vector_of(const std::vector<float>& v) {
  return {v.data(), static_cast<int64_t>(v.size())};
}

class Recurrent : public testing::Test {
 protected:
  Recurrent() : context(make_cpu_context(DType::f32)) { set_threads(1); }
  // Runs `op` over the rows of one sequence split at `cuts`, with fresh state.
  void in_pieces(int32_t n, const std::vector<int32_t>& cuts, int64_t bytes,
                 const std::function<void(const Pass&, int32_t, int32_t, StateView)>& op) {
    std::vector<float> state(static_cast<size_t>(bytes / 4), 7.0F);  // position 0 must reset it
    SeqView seq{};
    int32_t begin = 0;
    for (size_t i = 0; i <= cuts.size(); ++i) {
      const int32_t end = i < cuts.size() ? cuts[i] : n;
      const auto rows = base_rows(begin, end);
      op({rows, std::span(&seq, 1), 0}, begin, end, {reinterpret_cast<char*>(state.data()), bytes, 0});
      begin = end;
    }
  }
  std::unique_ptr<Context> context;
};

// The gated delta rule, worked by hand in float64.
TEST_F(Recurrent, GatedDeltaRuleGivesTheWorkedExample) {
  const GatedDeltaParams p{.n_q = 1, .n_k = 1, .n_v = 1, .dk = 2, .dv = 2};
  Table q(3, 2, 1), k(3, 2, 1), v(3, 2, 1), a(3, 1, 1), b(3, 1, 1), o(3, 2, 1);
  q.values = {.6F, .8F, 1, 0, 0, 1};
  k.values = {1, 0, .6F, .8F, .8F, -.6F};
  v.values = {1, 2, -1, .5F, .25F, -2};
  // a_log = 0 and dt_bias = 0: g = −softplus(a); β = σ(b).
  for (const auto& [i, g, beta] : {std::tuple{0, -.1, .5}, std::tuple{1, -.5, .25}, std::tuple{2, -.2, 1 - 1e-9}}) {
    a.values[static_cast<size_t>(i)] = static_cast<float>(std::log(std::expm1(-g)));
    b.values[static_cast<size_t>(i)] = static_cast<float>(std::log(beta / (1 - beta)));
  }
  const std::vector<float> zero = {0};
  in_pieces(3, {}, gated_delta_state_bytes(*context, p), [&](const Pass& pass, int32_t, int32_t, StateView state) {
    gated_delta(*context, pass, o.matrix(), q.matrix(), k.matrix(), v.matrix(), a.matrix(), b.matrix(), vector_of(zero),
                vector_of(zero), p, state);
  });
  const double want[] = {0.3, 0.6, 0.125971450, 0.626942900, -0.224360796, 1.460643785};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(o.values[i], want[i], 2e-6) << i;
}

TEST_F(Recurrent, GatedDeltaRuleGivesTheSameBitsForAnySplitAndHeadLayout) {
  for (const GatedDeltaParams& p :
       {GatedDeltaParams{4, 2, 2, 14, 10}, GatedDeltaParams{2, 2, 4, 16, 24}, GatedDeltaParams{3, 3, 3, 5, 7, true}}) {
    const int32_t n = 21;
    Table q(n, p.n_q * p.dk, 1), k(n, p.n_k * p.dk, 2), v(n, p.n_v * p.dv, 3), a(n, p.n_v, 4), b(n, p.n_v, 5);
    l2norm(*context, k.matrix(), 1e-6F, 1, p.dk);
    const std::vector<float> a_log(static_cast<size_t>(p.n_v), 0.3F), dt(static_cast<size_t>(p.n_v), -0.5F);
    const auto run = [&](const std::vector<int32_t>& cuts) {
      Table o(n, p.n_out() * p.dv, 6);
      in_pieces(n, cuts, gated_delta_state_bytes(*context, p),
                [&](const Pass& pass, int32_t x, int32_t y, StateView s) {
                  gated_delta(*context, pass, o.part(x, y), q.part(x, y), k.part(x, y), v.part(x, y), a.part(x, y),
                              b.part(x, y), vector_of(a_log), vector_of(dt), p, s);
                });
      return o;
    };
    const Table whole = run({});
    EXPECT_EQ(run({1, 2, 3}).values, whole.values);
    EXPECT_EQ(run({16}).values, whole.values);
    // The gated delta rule in float64.
    for (int32_t h = 0; h < p.n_out(); ++h) {
      const int64_t qh = h * p.n_q / p.n_out(), j = h * p.n_v / p.n_out(), kh = j * p.n_k / p.n_v;
      std::vector<double> s(static_cast<size_t>(p.dk * p.dv), 0.0);
      const auto at = [&](int64_t i, int64_t c) -> double& { return s[static_cast<size_t>(i * p.dv + c)]; };
      for (int64_t t = 0; t < n; ++t) {
        const double beta = (p.negative_eigenvalues ? 2 : 1) / (1 + std::exp(-b.at(t, j)));
        const double g = -std::exp(static_cast<double>(0.3F)) * std::log1p(std::exp(a.at(t, j) - 0.5));
        for (double& x : s) x *= std::exp(g);
        for (int64_t c = 0; c < p.dv; ++c) {
          double u = 0;
          for (int64_t i = 0; i < p.dk; ++i) u += at(i, c) * k.at(t, kh * p.dk + i);
          const double delta = beta * (v.at(t, j * p.dv + c) - u);
          double want = 0;
          for (int64_t i = 0; i < p.dk; ++i) {
            at(i, c) += k.at(t, kh * p.dk + i) * delta;
            want += at(i, c) * q.at(t, qh * p.dk + i);
          }
          EXPECT_NEAR(whole.at(t, h * p.dv + c), want, 1e-5 * (1 + std::abs(want)));
        }
      }
    }
  }
}

TEST_F(Recurrent, OutputRowsReadTheStateAfterOrBeforeTheirToken) {
  for (const bool before : {false, true}) {
    const GatedDeltaParams p{.n_q = 1, .n_k = 1, .n_v = 1, .dk = 4, .dv = 4, .read_before_write = before};
    const int32_t n = 5;
    Table q(2 * n, 4, 1), k(2 * n, 4, 2), v(2 * n, 4, 3), a(2 * n, 1, 4), b(2 * n, 1, 5);
    const std::vector<float> zero = {0};
    // All rows in one pass, or each base row before its output row, in passes of their own.
    const auto run = [&](bool apart) {
      Table o(2 * n, 4, 6);
      std::vector<float> state(static_cast<size_t>(gated_delta_state_bytes(*context, p)) / 4, 3.0F);
      const StateView view{reinterpret_cast<char*>(state.data()), 0, 0};
      SeqView seq{};
      const auto pass_over = [&](std::vector<Row> rows, const std::vector<int32_t>& index) {
        Table qq(0, 4, 1), kk(0, 4, 1), vv(0, 4, 1), aa(0, 1, 1), bb(0, 1, 1),
            oo(static_cast<int64_t>(index.size()), 4, 1);
        for (const int32_t i : index) {
          const auto copy = [&](Table& to, Table& from) {
            to.values.insert(to.values.end(), from.part(i, i + 1).f32(0), from.part(i, i + 1).f32(0) + from.cols);
            ++to.rows;
          };
          copy(qq, q), copy(kk, k), copy(vv, v), copy(aa, a), copy(bb, b);
        }
        gated_delta(*context, {rows, std::span(&seq, 1), 0}, oo.matrix(), qq.matrix(), kk.matrix(), vv.matrix(),
                    aa.matrix(), bb.matrix(), vector_of(zero), vector_of(zero), p, view);
        for (size_t r = 0; r < index.size(); ++r) {
          std::copy_n(oo.values.data() + r * 4, 4, o.values.data() + static_cast<size_t>(index[r]) * 4);
        }
      };
      std::vector<Row> rows;
      std::vector<int32_t> index;
      for (const Stream stream : {Stream::base, Stream::output}) {
        for (int32_t t = 0; t < n; ++t) {
          rows.push_back({0, t, 0, stream, RowKind::prefill, -1});
          index.push_back(static_cast<int32_t>(index.size()));
        }
      }
      if (!apart) {
        pass_over(rows, index);
      } else {
        for (int32_t t = 0; t < n; ++t) {
          pass_over({rows[static_cast<size_t>(t)]}, {t});
          pass_over({rows[static_cast<size_t>(n + t)]}, {n + t});
        }
      }
      return o.values;
    };
    EXPECT_EQ(run(true), run(false)) << before;
    if (before) {
      const auto o = run(false);
      for (size_t c = 0; c < 4; ++c) EXPECT_EQ(o[static_cast<size_t>(n) * 4 + c], 0) << "position 0 reads zeros";
    }
  }
}

TEST_F(Recurrent, ConvolutionLooksBackAcrossPasses) {
  const int32_t n = 11;
  const int64_t c = 19, taps = 4;
  Table x(n, c, 1), w(taps, c, 2), bias(1, c, 3);
  const auto run = [&](const std::vector<int32_t>& cuts) {
    Table y = x;
    in_pieces(n, cuts, state_bytes(conv_state_floats(c, taps)),
              [&](const Pass& pass, int32_t a, int32_t b, StateView s) {
                causal_conv_silu(*context, pass, y.part(a, b), vector_of(w.values), vector_of(bias.values), taps, s);
              });
    return y;
  };
  const Table whole = run({});
  EXPECT_EQ(run({1, 2, 3, 9}).values, whole.values);
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t j = 0; j < c; ++j) {
      double sum = bias.at(0, j);
      for (int64_t m = 0; m < taps; ++m) {
        if (t - taps + 1 + m >= 0) sum += w.at(m, j) * x.at(t - taps + 1 + m, j);
      }
      EXPECT_NEAR(whole.at(t, j), sum / (1 + std::exp(-sum)), 2e-6);
    }
  }
}

TEST_F(Recurrent, DecayAttentionFollowsItsRecurrence) {
  const DecayHeads p{.n = 4, .n_q = 4, .n_k = 2, .n_v = 2, .dk = 6, .dv = 9};
  const int32_t n = 13;
  Table q(n, 24, 1), k(n, 12, 2), v(n, 18, 3), scale(n, 4, 4), channel(n, 12, 5), token(n, 4, 6);
  for (float& x : channel.values) x = -std::abs(x);
  for (float& x : token.values) x = -std::abs(x);
  const std::vector<float> constant = {0, -.1F, -.7F, -3}, skip = {.5F, -1, 0, 2};
  for (int form = 0; form < 3; ++form) {
    Decay decay;
    const auto run = [&](const std::vector<int32_t>& cuts) {
      Table o(n, 36, 7);
      in_pieces(n, cuts, decay_attention_state_bytes(*context, p, form == 2),
                [&](const Pass& pass, int32_t a, int32_t b, StateView s) {
                  if (form == 0) decay.per_head = vector_of(constant);
                  if (form == 1) decay.per_token = token.part(a, b);
                  if (form == 2) decay.per_channel = channel.part(a, b);
                  decay_attention(*context, pass, o.part(a, b), q.part(a, b), k.part(a, b), v.part(a, b), decay,
                                  scale.part(a, b), vector_of(skip), p, s);
                });
      return o;
    };
    const Table whole = run({});
    EXPECT_EQ(run({1, 5, 6}).values, whole.values);
    for (int64_t h = 0; h < 4; ++h) {
      std::vector<double> s(54, 0.0);
      for (int64_t t = 0; t < n; ++t) {
        for (int64_t c = 0; c < 9; ++c) {
          double want = static_cast<double>(skip[static_cast<size_t>(h)]) * v.at(t, h / 2 * 9 + c);
          for (int64_t i = 0; i < 6; ++i) {
            const double log = form == 0   ? static_cast<double>(constant[static_cast<size_t>(h)])
                               : form == 1 ? token.at(t, h)
                                           : channel.at(t, h / 2 * 6 + i);
            double& x = s[static_cast<size_t>(i * 9 + c)];
            x = x * std::exp(log) + k.at(t, h / 2 * 6 + i) * scale.at(t, h) * v.at(t, h / 2 * 9 + c);
            want += x * q.at(t, h * 6 + i);
          }
          EXPECT_NEAR(whole.at(t, h * 9 + c), want, 2e-5 * (1 + std::abs(want))) << form;
        }
      }
    }
  }
}

// The four definitions of decays that disagree.
TEST(LogDecays, AreThoseOfEachSource) {
  const auto retnet = log_decays("retnet", 4, 3, 4);
  EXPECT_NEAR(retnet[0], -3.174869831e-2, 3e-9);
  EXPECT_NEAR(retnet[3], -3.913899321e-3, 1e-10);
  const auto fla = log_decays("fla", 8, 1, 4);
  EXPECT_EQ(fla[0], 0);
  EXPECT_NEAR(fla[7], -5.25, 1e-6);
  const auto minimax = log_decays("minimax", 8, 1, 4);
  EXPECT_NEAR(minimax[0], -.3333389, 1e-6);
  EXPECT_NEAR(minimax[2], -.0833347, 1e-6);
  EXPECT_TRUE(log_decays("other", 8, 1, 4).empty());
}

// Logits (2, −1, 0.5, 3), two experts.
TEST_F(Recurrent, RouterChoosesAndRenormalises) {
  Table logits(2, 4, 1);
  logits.values = {2, -1, .5F, 3, 1, 1, 1, 0};
  std::vector<int32_t> expert(4);
  std::vector<float> weight(4);
  const Routing out{expert.data(), weight.data(), 2};
  route(*context, out, logits.matrix(), {.top_k = 2}, {});
  EXPECT_EQ(expert, (std::vector<int32_t>{3, 0, 0, 1}));  // equal logits: the lower index
  EXPECT_NEAR(weight[0], 0.681068969, 1e-7);
  EXPECT_NEAR(weight[1], 0.250551272, 1e-7);
  route(*context, out, logits.matrix(), {.top_k = 2, .renormalise = true}, {});
  EXPECT_NEAR(weight[0], 0.731058579, 1e-7);
  route(*context, out, logits.matrix(), {.top_k = 2, .softmax_over_chosen = true}, {});
  EXPECT_NEAR(weight[1], 0.268941421, 1e-7);
}

TEST(Mxfp4, DecodesNibblesLowFirst) {
  uint8_t blocks[16] = {0x2A, 0x7F};
  const uint8_t exponent = 120;
  float out[32];
  ASSERT_TRUE(decode_mxfp4(blocks, &exponent, 1, out));
  EXPECT_EQ(out[0], -0x1p-7F);
  EXPECT_EQ(out[1], 0x1p-7F);
  EXPECT_EQ(out[2], -6 * 0x1p-7F);
  EXPECT_EQ(out[3], 6 * 0x1p-7F);
  const uint8_t nan = 255;
  EXPECT_FALSE(decode_mxfp4(blocks, &nan, 1, out));
}

}  // namespace
}  // namespace hayfork::engine
