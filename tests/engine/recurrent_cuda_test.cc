// Recurrent ops on a GPU beside their CPU twins: every head layout, ragged sequences, prefill, output and decode rows,
// and the same bits for every split of the rows into passes. Tolerances: float32 differs by the order of sums (2e-5 of
// the largest value); bf16 by the roundings of the chunked form, whose operands have 8 bits (2⁻⁶ of the largest value).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "base/error.h"
#include "engine/cuda/devices.h"
#include "engine/kernels/conv.h"
#include "engine/kernels/decay_attention.h"
#include "engine/kernels/gated_delta.h"
#include "engine/kernels/mixing.h"

namespace hayfork::engine {
namespace {

using Values = std::vector<float>;

// A table of numbers that both devices get, as their activation type holds them.
struct Table {
  int64_t cols = 0;
  Values values;
  bool f32 = false;  // float32 on the GPU whatever the activation type
  int64_t rows() const { return static_cast<int64_t>(values.size()) / cols; }
};

class RecurrentCuda : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    const auto found = cuda::list_devices();
    const bool usable = std::any_of(found.devices.begin(), found.devices.end(), [](const auto& d) { return d.usable; });
    if (!usable) GTEST_SKIP() << "needs a GPU: " << found.problem;
    gpu_ = cuda::make_cuda_context(0, GetParam());
    cpu_ = make_cpu_context(GetParam());
  }

  Table noise(int64_t rows, int64_t cols, float scale = 1, bool f32 = false) {
    std::normal_distribution<float> normal(0, scale);
    Table table{cols, Values(static_cast<size_t>(rows * cols)), f32};
    for (float& x : table.values) {
      x = GetParam() == DType::bf16 && !f32 ? round_to_bf16(normal(random_)) : normal(random_);
    }
    return table;
  }
  // Rows `rows` of a table on a device.
  Matrix place(Context& context, const Table& table, std::span<const int32_t> rows) {
    const DType type = table.f32 ? DType::f32 : context.activation();
    // A stride wider than the rows, as slices of a fused projection have.
    Matrix m = context.matrix(static_cast<int64_t>(rows.size()), table.cols + 8, type);
    m.cols = table.cols;
    std::vector<char> bytes(static_cast<size_t>(m.rows * m.stride * size_of(type)), 0x7F);
    for (int64_t r = 0; r < m.rows; ++r) {
      const float* from = table.values.data() + rows[static_cast<size_t>(r)] * table.cols;
      for (int64_t c = 0; c < table.cols; ++c) {
        const auto at = static_cast<size_t>(r * m.stride + c);
        if (type == DType::bf16) {
          reinterpret_cast<bf16*>(bytes.data())[at] = to_bf16(from[c]);
        } else {
          reinterpret_cast<float*>(bytes.data())[at] = from[c];
        }
      }
    }
    context.upload(m.data, bytes.data(), bytes.size());
    return m;
  }
  void fetch(Context& context, Matrix m, std::span<const int32_t> rows, Table& to) {
    std::vector<char> bytes(static_cast<size_t>(m.rows * m.stride * size_of(m.dtype)));
    context.download(bytes.data(), m.data, bytes.size());
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t c = 0; c < m.cols; ++c) {
        const auto at = static_cast<size_t>(r * m.stride + c);
        to.values[static_cast<size_t>(rows[static_cast<size_t>(r)] * to.cols + c)] =
            m.dtype == DType::bf16 ? to_float(reinterpret_cast<const bf16*>(bytes.data())[at])
                                   : reinterpret_cast<const float*>(bytes.data())[at];
      }
    }
  }
  Vector vector_on(Context& context, const Values& v) {
    buffers_.push_back(context.make_buffer(v.size() * sizeof(float)));
    context.upload(buffers_.back()->data(), v.data(), v.size() * sizeof(float));
    return {static_cast<const float*>(buffers_.back()->data()), static_cast<int64_t>(v.size())};
  }
  Values values(int64_t n, float scale = 1) { return noise(1, n, scale, true).values; }

  void expect_close(const Values& got, const Values& want, const std::string& what, double f32, double narrow) {
    ASSERT_EQ(got.size(), want.size()) << what;
    float largest = 1e-6f;
    for (const float w : want) largest = std::max(largest, std::fabs(w));
    const double bound = static_cast<double>(largest) * (GetParam() == DType::bf16 ? narrow : f32);
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
      if (!(difference <= worst)) worst = difference, at = i;
    }
    EXPECT_LE(worst, bound) << what << " at " << at << ": " << got[at] << " and " << want[at];
  }

  // The rows of some sequences: prompts of these lengths, an output row at `outputs` of the positions, then decode rows
  // (with output rows beside them when there are any).
  struct Plan {
    std::vector<Row> rows;
    int32_t n_sequences = 0;
  };
  using Lengths = std::vector<int32_t>;
  static inline const Lengths kShort{200, 64, 131}, kLong{4650, 70, 2310};  // segments are of 2,048
  static Plan plan(bool outputs, int32_t n_decode, const Lengths& prompts = kShort) {
    Plan plan;
    const int32_t* const lengths = prompts.data();
    const auto n_sequences = plan.n_sequences = static_cast<int32_t>(prompts.size());
    for (int32_t s = 0; s < n_sequences; ++s) {
      for (int32_t t = 0; t < lengths[s]; ++t) plan.rows.push_back({0, t, s, Stream::base, RowKind::prefill, -1});
    }
    for (int32_t s = 0; s < n_sequences && outputs; ++s) {
      for (int32_t t = 0; t < lengths[s]; ++t) {
        if (t % 5 == 0 || t + 1 == lengths[s] || t % 64 == 63)
          plan.rows.push_back({0, t, s, Stream::output, RowKind::prefill, -1});
      }
    }
    for (const Stream stream : {Stream::base, Stream::output}) {
      for (int32_t s = 0; s < n_sequences && (outputs || stream == Stream::base); ++s) {
        for (int32_t t = 0; t < n_decode; ++t) plan.rows.push_back({0, lengths[s] + t, s, stream, RowKind::decode, -1});
      }
    }
    return plan;
  }
  // Passes of up to `chunk` positions a sequence (0: all rows in one pass of each kind); `alone`: each sequence in
  // passes of its own; `apart`: output rows in passes after their base rows'. Row indices, in the order of a pass.
  static std::vector<std::vector<int32_t>> passes(const Plan& plan, int32_t chunk, bool alone, bool apart = false) {
    std::vector<std::vector<int32_t>> all;
    const int32_t step = chunk == 0 ? 1 << 20 : chunk;
    int32_t longest = 0;
    for (const Row& row : plan.rows) longest = std::max(longest, row.pos + 1);
    for (int32_t only = 0; only < (alone ? plan.n_sequences : 1); ++only) {
      for (const RowKind kind : {RowKind::prefill, RowKind::decode}) {
        for (int32_t begin = 0; begin < longest; begin += step) {
          std::vector<int32_t> pass;
          for (size_t i = 0; i < plan.rows.size(); ++i) {
            const Row& row = plan.rows[i];
            const bool in = row.pos >= begin && row.pos < begin + step;
            if (row.kind == kind && in && (!alone || row.seq == only)) pass.push_back(static_cast<int32_t>(i));
          }
          const auto outputs = std::stable_partition(pass.begin(), pass.end(), [&](int32_t i) {
            return !apart || plan.rows[static_cast<size_t>(i)].stream == Stream::base;
          });
          if (outputs != pass.begin()) all.emplace_back(pass.begin(), outputs);
          if (outputs != pass.end()) all.emplace_back(outputs, pass.end());
        }
      }
    }
    return all;
  }

  // One position of every sequence a pass, so that some decode while others are in their prompts.
  static std::vector<std::vector<int32_t>> mixed_passes(const Plan& plan) {
    std::vector<std::vector<int32_t>> all;
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      const auto pos = static_cast<size_t>(plan.rows[i].pos);
      all.resize(std::max(all.size(), pos + 1));
      all[pos].push_back(static_cast<int32_t>(i));
    }
    return all;
  }

  using Op = std::function<void(Context&, const Pass&, Matrix o, std::span<const Matrix> inputs, StateView)>;
  // Runs an op over a plan and returns its output, [rows, out_cols].
  Values run(Context& context, const Plan& plan, const std::vector<std::vector<int32_t>>& passes, int64_t state_bytes,
             const std::vector<const Table*>& inputs, int64_t out_cols, const Op& op) {
    const auto bytes = static_cast<size_t>(state_bytes * (plan.n_sequences + 1));
    const auto state = context.make_buffer(bytes);
    const std::vector<char> poison(bytes, 0x7F);  // position 0 must reset it
    context.upload(state->data(), poison.data(), poison.size());
    Table out{out_cols, Values(plan.rows.size() * static_cast<size_t>(out_cols), NAN), false};
    std::vector<SeqView> seqs(static_cast<size_t>(plan.n_sequences));
    for (int32_t s = 0; s < plan.n_sequences; ++s) seqs[static_cast<size_t>(s)].state_slot = plan.n_sequences - s;
    seqs.push_back(seqs.front());  // fills up a pass of a fixed shape: no rows of its own
    for (const auto& index : passes) {
      std::vector<Row> rows;
      for (const int32_t i : index) rows.push_back(plan.rows[static_cast<size_t>(i)]);
      context.arena().reset();
      const Pass pass{rows, seqs, 0};
      context.begin_pass(pass);
      std::vector<Matrix> placed;
      for (const Table* table : inputs) placed.push_back(place(context, *table, index));
      const Table poisoned{out_cols, Values(plan.rows.size() * static_cast<size_t>(out_cols), -7.F), false};
      const Matrix o = place(context, poisoned, index);
      op(context, pass, o, placed, {static_cast<char*>(state->data()), state_bytes, 0});
      fetch(context, o, index, out);
    }
    return out.values;
  }

  struct DecayCase {
    DecayHeads heads;
    int form;  // 0 per head, 1 per token, 2 per channel
    int skip;  // 0 none, 1 per head, 2 per channel
  };
  // Close to the CPU's; the same bits in passes of every one of `chunks` positions.
  void check_decay(const DecayCase& shape, const Lengths& lengths, std::initializer_list<int32_t> chunks) {
    const auto& [p, form, skip] = shape;
    const std::string what = "form " + std::to_string(form) + " dk " + std::to_string(p.dk) + " dv " +
                             std::to_string(p.dv) + " heads " + std::to_string(p.n);
    const Plan rows = plan(false, 3, lengths);
    const auto n = static_cast<int64_t>(rows.rows.size());
    const float scale = 1 / std::sqrt(static_cast<float>(p.dk));
    const Table q = noise(n, p.n_q * p.dk, scale), k = noise(n, p.n_k * p.dk), v = noise(n, p.n_v * p.dv);
    Table decay = noise(n, form == 2 ? p.n_k * p.dk : p.n, lengths == kLong ? 0.01F : 0.3F, true);
    const Table v_scale = noise(n, p.n, 1, true);
    for (float& x : decay.values) x = -std::abs(x) - (form == 2 && x > 0.8F ? 30.F : 0.F);  // some channels forget all
    Values constant =
        values(p.n, lengths == kLong ? 0.01F : 0.1F);  // what a segment adds reaches far into the next ones
    for (float& x : constant) x = -std::abs(x);
    const Values skips = values(skip == 2 ? int64_t{p.n} * p.dv : p.n);
    const auto on = [&](Context& context, const std::vector<std::vector<int32_t>>& split) {
      const Vector per_head = vector_on(context, constant), added = vector_on(context, skips);
      return run(context, rows, split, decay_attention_state_bytes(context, p, form == 2),
                 {&q, &k, &v, &decay, &v_scale}, p.n * p.dv,
                 [&](Context& ctx, const Pass& pass, Matrix o, std::span<const Matrix> in, StateView state) {
                   Decay by;
                   if (form == 0) by.per_head = per_head;
                   if (form == 1) by.per_token = in[3];
                   if (form == 2) by.per_channel = in[3];
                   decay_attention(ctx, pass, o, in[0], in[1], in[2], by, form == 1 ? in[4] : Matrix{},
                                   skip > 0 ? added : Vector{}, p, state);
                 });
    };
    const Values whole = on(*gpu_, passes(rows, 0, false));
    expect_close(whole, on(*cpu_, passes(rows, 0, false)), what, 2e-5, 0x1p-6);
    EXPECT_TRUE(on(*gpu_, passes(rows, 0, true)) == whole) << what << ": each sequence alone";
    for (const int32_t chunk : chunks) {
      EXPECT_TRUE(on(*gpu_, passes(rows, chunk, chunk == 7)) == whole) << what << ": passes of " << chunk;
    }
    EXPECT_TRUE(lengths == kLong || on(*gpu_, mixed_passes(rows)) == whole) << what << ": decode beside prompts";
  }

  // The same of the gated delta rule, with output rows or without.
  void check_delta(const GatedDeltaParams& p, bool outputs, const Lengths& lengths,
                   std::initializer_list<int32_t> chunks) {
    const std::string what = "dk " + std::to_string(p.dk) + " dv " + std::to_string(p.dv) + " heads " +
                             std::to_string(p.n_q) + " " + std::to_string(p.n_v) + (outputs ? " outputs" : "");
    const Plan rows = plan(outputs, 3, lengths);
    const auto n = static_cast<int64_t>(rows.rows.size());
    Table q = noise(n, p.n_q * p.dk), k = noise(n, p.n_k * p.dk);
    const Table v = noise(n, p.n_v * p.dv), a = noise(n, p.n_v, 2), b = noise(n, p.n_v);
    for (Table* table : {&q, &k}) {  // as the mixer normalises them
      l2norm(*cpu_, {table->values.data(), DType::f32, n, table->cols, table->cols}, 1e-6F, 1, p.dk);
      if (GetParam() == DType::bf16)
        for (float& x : table->values) x = round_to_bf16(x);
    }
    const Values a_log = values(p.n_v, 0.5F), dt_bias = values(p.n_v);
    const auto on = [&](Context& context, const std::vector<std::vector<int32_t>>& split) {
      const Vector log = vector_on(context, a_log), bias = vector_on(context, dt_bias);
      return run(context, rows, split, gated_delta_state_bytes(context, p), {&q, &k, &v, &a, &b}, p.n_out() * p.dv,
                 [&](Context& ctx, const Pass& pass, Matrix o, std::span<const Matrix> in, StateView state) {
                   gated_delta(ctx, pass, o, in[0], in[1], in[2], in[3], in[4], log, bias, p, state);
                 });
    };
    const Values whole = on(*gpu_, passes(rows, 0, false));
    expect_close(whole, on(*cpu_, passes(rows, 0, false)), what, 2e-5, 0x1p-6);
    EXPECT_TRUE(on(*gpu_, passes(rows, 0, false)) == whole) << what << ": twice";
    EXPECT_TRUE(on(*gpu_, passes(rows, 0, true)) == whole) << what << ": each sequence alone";
    for (const int32_t chunk : chunks) {
      EXPECT_TRUE(on(*gpu_, passes(rows, chunk, chunk == 7)) == whole) << what << ": passes of " << chunk;
    }
    EXPECT_TRUE(on(*gpu_, passes(rows, 1, false, true)) == whole) << what << ": output rows after their base rows";
    EXPECT_TRUE(on(*gpu_, mixed_passes(rows)) == whole) << what << ": decode beside prompts";
  }

  std::unique_ptr<Context> gpu_, cpu_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::mt19937 random_{7};
};

TEST_P(RecurrentCuda, GatedDeltaRuleMatchesInEveryLayoutAndSplit) {
  const GatedDeltaParams shapes[] = {
      {.n_q = 4, .n_k = 2, .n_v = 2, .dk = 14, .dv = 10},
      {.n_q = 1, .n_k = 1, .n_v = 3, .dk = 15, .dv = 16},
      {.n_q = 2, .n_k = 2, .n_v = 4, .dk = 128, .dv = 128},
      {.n_q = 2, .n_k = 2, .n_v = 2, .dk = 64, .dv = 96, .negative_eigenvalues = true},
      {.n_q = 2, .n_k = 2, .n_v = 24, .dk = 64, .dv = 128},  // three sequences fill a GPU, each alone does not
      {.n_q = 3, .n_k = 3, .n_v = 3, .dk = 32, .dv = 20, .read_before_write = true},
      {.n_q = 6, .n_k = 2, .n_v = 2, .dk = 46, .dv = 46, .read_before_write = true},
      {.n_q = 1, .n_k = 1, .n_v = 1, .dk = 200, .dv = 64},
      {.n_q = 1, .n_k = 1, .n_v = 1, .dk = 300, .dv = 70},
      {.n_q = 1, .n_k = 1, .n_v = 1, .dk = 300, .dv = 72},
  };
  for (const GatedDeltaParams& p : shapes) {
    for (const bool outputs : {false, true}) {
      if (outputs || !p.read_before_write) check_delta(p, outputs, kShort, {1, 7, 64, 100});
    }
  }
}

// So many sequences that blocks of the step kernel have several each: of a pass some are at their first token, some
// further on, some not in it, some with more rows than one.
TEST_P(RecurrentCuda, StepsOfManySequencesMatch) {
  Lengths lengths;
  for (int i = 0; i < 29; ++i) lengths.push_back(1 + i * 7 % 10);
  const GatedDeltaParams delta[] = {
      {.n_q = 4, .n_k = 4, .n_v = 40, .dk = 128, .dv = 128},
      {.n_q = 80, .n_k = 10, .n_v = 40, .dk = 72, .dv = 100, .read_before_write = true},
  };
  for (const GatedDeltaParams& p : delta) check_delta(p, true, lengths, {1, 2});
  check_delta(delta[0], false, lengths, {1, 3});
  const DecayCase decay[] = {
      {{40, 40, 4, 8, 128, 128}, 0, 1}, {{90, 1, 1, 90, 64, 64}, 1, 2}, {{40, 4, 4, 4, 130, 128}, 2, 0}};
  for (const DecayCase& shape : decay) check_decay(shape, lengths, {1, 2});
}

// When a model is loaded, not in its first pass.
TEST_P(RecurrentCuda, StatesThatAreTooLargeAreRefused) {
  EXPECT_THROW(gated_delta_state_bytes(*gpu_, {.n_q = 1, .n_k = 1, .n_v = 1, .dk = 520, .dv = 64}), Error);
  EXPECT_THROW(decay_attention_state_bytes(*gpu_, {1, 1, 1, 1, 64, 516}, true), Error);
}

TEST_P(RecurrentCuda, DecayAttentionMatchesInEveryFormAndSplit) {
  const DecayCase cases[] = {
      {{4, 4, 2, 2, 6, 10}, 0, 0},   {{4, 4, 2, 4, 64, 64}, 0, 0},  {{2, 2, 2, 2, 128, 128}, 0, 1},
      {{4, 2, 2, 4, 16, 64}, 1, 1},  {{4, 1, 1, 4, 128, 64}, 1, 2}, {{3, 3, 3, 3, 20, 33}, 1, 0},
      {{4, 4, 2, 2, 12, 24}, 2, 0},  {{2, 2, 2, 2, 64, 128}, 2, 0}, {{2, 2, 2, 2, 256, 96}, 2, 0},
      {{1, 1, 1, 1, 400, 40}, 2, 0}, {{2, 2, 2, 2, 320, 64}, 1, 0}};
  for (const DecayCase& shape : cases) check_decay(shape, kShort, {1, 7, 64, 100});
}

// Prompts of several segments, whose shares of the state are summed up apart.
TEST_P(RecurrentCuda, DecayAttentionMatchesOverSegments) {
  const DecayCase cases[] = {{{2, 1, 1, 2, 128, 96}, 0, 0},
                             {{3, 3, 3, 3, 20, 33}, 1, 1},
                             {{2, 2, 2, 2, 256, 64}, 1, 0},
                             {{2, 2, 2, 2, 64, 72}, 2, 0},
                             {{1, 1, 1, 1, 256, 130}, 2, 0}};
  for (const DecayCase& shape : cases) check_decay(shape, kLong, {100, 1984, 2048, 2150});
}

TEST_P(RecurrentCuda, ConvolutionMatchesInEverySplit) {
  for (const auto& [channels, taps] :
       {std::pair<int64_t, int64_t>{19, 4}, {64, 4}, {1032, 2}, {40, 3}, {24, 7}, {2056, 4}}) {
    const Plan rows = plan(true, 3);
    const Table x = noise(static_cast<int64_t>(rows.rows.size()), channels);
    const Values w = values(taps * channels), bias = values(channels);
    const auto on = [&](Context& context, const std::vector<std::vector<int32_t>>& split) {
      const Vector weight = vector_on(context, w), added = vector_on(context, bias);
      const int64_t bytes = state_bytes(conv_state_floats(channels, taps));
      return run(context, rows, split, bytes, {&x}, channels,
                 [&](Context& ctx, const Pass& pass, Matrix o, std::span<const Matrix> in, StateView state) {
                   combine(ctx, o, in[0], 1, in[0], 0);
                   causal_conv_silu(ctx, pass, o, weight, added, taps, state);
                 });
    };
    const std::string what = "convolution of " + std::to_string(channels) + " channels, " + std::to_string(taps);
    const Values whole = on(*gpu_, passes(rows, 0, false));
    expect_close(whole, on(*cpu_, passes(rows, 0, false)), what, 2e-6, 0x1p-8);
    EXPECT_TRUE(on(*gpu_, passes(rows, 0, true)) == whole) << what << ": each sequence alone";
    for (const int32_t chunk : {1, 2, 64, 100}) {
      EXPECT_TRUE(on(*gpu_, passes(rows, chunk, chunk == 2)) == whole) << what << ": passes of " << chunk;
    }
  }
}

TEST_P(RecurrentCuda, ElementwiseOpsMatch) {
  for (const int64_t cols : {14 * 5, 128 * 3, 512, 24 * 7}) {
    const int64_t group = cols == 70 ? 14 : cols == 384 ? 128 : cols == 512 ? 512 : 24, n = 131;
    const Table x = noise(n, cols), y = noise(n, cols), gate = noise(n, 1);
    std::vector<int32_t> rows(static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) rows[static_cast<size_t>(i)] = i;
    const Values bias = values(cols), log = values(cols);
    const auto on = [&](Context& context, int op) {
      context.arena().reset();
      Matrix a = place(context, x, rows), b = place(context, y, rows), g = place(context, gate, rows);
      const Vector dt_bias = vector_on(context, bias), a_log = vector_on(context, log);
      Matrix wide = context.matrix(n, cols, DType::f32), other = context.matrix(n, cols, DType::f32);
      if (op == 0) combine(context, a, a, 0.75F, b, -1.5F);
      if (op == 1) combine(context, a, b, 0.3F, b, 0);
      if (op == 2) sigmoid_mul(context, a, b, a);
      if (op == 3) sigmoid_mul(context, a, g, a);
      if (op == 4) silu(context, a, a);
      if (op == 5) l2norm(context, a, 1e-6F, 0.25F, group);
      if (op == 6) mamba2_steps(context, wide, other, a, dt_bias, a_log, 0.01F, 3);
      if (op == 7) mamba2_steps(context, other, wide, a, dt_bias, a_log, 0, INFINITY);
      if (op == 8) log_sigmoid(context, wide, a, 1.F / 16, -0.2F);
      Table out{cols, Values(static_cast<size_t>(n * cols)), false};
      fetch(context, op < 6 ? a : wide, rows, out);
      return out.values;
    };
    for (int op = 0; op < 9; ++op) {
      expect_close(on(*gpu_, op), on(*cpu_, op), "op " + std::to_string(op) + " of " + std::to_string(cols), 1e-6,
                   op < 6 ? 0x1p-7 : 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RecurrentCuda, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& type) { return std::string(name(type.param)); });

}  // namespace
}  // namespace hayfork::engine
