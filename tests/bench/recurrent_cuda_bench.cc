// Speed of the recurrent mixers' CUDA kernels beside the device's limits. `of_floor` is the share of the time that one
// read of the inputs and one write of the outputs (decode: of the states too) take at 4.2 TB/s: no kernel beats it.
// Shapes as in the published comparisons: Gated DeltaNet with 16 query and key heads, 32 value heads of 128 × 128;
// linear attention with a decay per head (Lightning) or per token (Mamba-2) and 32 such heads; GLA with 4 heads of 256
// × 512.
#include <cmath>
#include <random>

#include "engine/kernels/conv.h"
#include "engine/kernels/decay_attention.h"
#include "engine/kernels/gated_delta.h"
#include "tests/bench/cuda_bench.h"

namespace hayfork::engine {
namespace {

constexpr int kSteps = 16;

// Random numbers of the buffers' types; a few megabytes of noise repeated.
template <typename T>
std::unique_ptr<Buffer> noise(int64_t n, float scale, float shift, T (*convert)(float)) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal(shift, scale);
  std::vector<T> part((size_t{1} << 20) + 7);
  for (T& x : part) x = convert(normal(engine));
  const auto elements = static_cast<size_t>(n);
  auto buffer = gpu().make_buffer(elements * sizeof(T));
  for (size_t at = 0; at < elements; at += part.size()) {
    gpu().upload(static_cast<T*>(buffer->data()) + at, part.data(), std::min(part.size(), elements - at) * sizeof(T));
  }
  return buffer;
}
std::unique_ptr<Buffer> narrow(int64_t n, float scale = 1, float shift = 0) {
  return noise<bf16>(n, scale, shift, to_bf16);
}
// −|x|: log decays.
std::unique_ptr<Buffer> decays(int64_t n, float scale) {
  return noise<float>(n, scale, 0, [](float x) { return -std::abs(x); });
}
Matrix matrix(const Buffer& buffer, int64_t rows, int64_t cols, DType type = DType::bf16) {
  return {buffer.data(), type, rows, cols, cols};
}
Vector vector_of(const Buffer& buffer, int64_t n) {
  return {static_cast<const float*>(buffer.data()), n};
}

// `batch` sequences of `length` rows from position 0, or one decode row each.
struct Rows {
  Rows(int64_t batch, int64_t length, RowKind kind) {
    for (int32_t s = 0; s < batch; ++s) {
      SeqView view{};
      view.state_slot = s;
      seqs.push_back(view);
      for (int32_t t = 0; t < length; ++t) {
        rows.push_back({0, kind == RowKind::decode ? 4096 : t, s, Stream::base, kind, -1});
      }
    }
  }
  Pass pass() const { return {rows, seqs, 0}; }
  std::vector<Row> rows;
  std::vector<SeqView> seqs;
};

// Decode steps: several at once, of one the device would show its start alone.
template <typename F>
void measure_kind(benchmark::State& state, RowKind kind, double bytes, F run) {
  const int calls = kind == RowKind::decode ? kSteps : 1;
  const auto all = [&] {
    for (int i = 0; i < calls; ++i) run();
  };
  measure(state, 0, bytes, all, calls);
}

// The states of a layer: a header at the start of each tells the plain kernels where it stands.
struct States {
  States(int64_t batch, int64_t bytes_)
      : bytes(bytes_), buffer(gpu().make_buffer(static_cast<size_t>(batch * bytes_))) {
    gpu().zero(buffer->data(), buffer->bytes());
  }
  StateView view() const { return {static_cast<char*>(buffer->data()), bytes, 0}; }
  int64_t bytes;
  std::unique_ptr<Buffer> buffer;
};
// Puts a decode row's state at its position: a pass of one prefill row there would do the same.
constexpr GatedDeltaParams kDelta{.n_q = 16, .n_k = 16, .n_v = 32, .dk = 128, .dv = 128};

void run_gated_delta(benchmark::State& state, RowKind kind) {
  const int64_t length = kind == RowKind::prefill ? state.range(0) : 1, batch = state.range(1), n = batch * length;
  const GatedDeltaParams& p = kDelta;
  const Rows rows(batch, length, kind);
  const int64_t keys = int64_t{p.n_k} * p.dk, values = int64_t{p.n_v} * p.dv;
  const auto q = narrow(n * keys), k = narrow(n * keys), v = narrow(n * values), o = narrow(n * values);
  const auto a = narrow(n * p.n_v), b = narrow(n * p.n_v), log = decays(p.n_v, 1), bias = decays(p.n_v, 1);
  const States states(batch, gated_delta_state_bytes(gpu(), p));
  const auto scratch =
      gpu().make_buffer(static_cast<size_t>(chunk_scratch_bytes(gated_delta_chunk_bytes(gpu(), p), n)));
  const Matrix room = matrix(*scratch, 1, static_cast<int64_t>(scratch->bytes()), DType::u8);
  gpu().arena().reset();
  const Pass pass = rows.pass();
  gpu().begin_pass(pass);
  double bytes = 2.0 * static_cast<double>(n * 2 * (keys + values));
  if (kind == RowKind::decode) bytes += 8.0 * static_cast<double>(batch * p.n_v * p.dk * p.dv);
  const auto run = [&] {
    if (kind == RowKind::prefill) {  // the peers' kernels normalise q and k too
      l2norm(gpu(), matrix(*q, n, keys), 1e-6F, 0.088F, p.dk);
      l2norm(gpu(), matrix(*k, n, keys), 1e-6F, 1, p.dk);
    }
    gated_delta(gpu(), pass, matrix(*o, n, values), matrix(*q, n, keys), matrix(*k, n, keys), matrix(*v, n, values),
                matrix(*a, n, p.n_v), matrix(*b, n, p.n_v), vector_of(*log, p.n_v), vector_of(*bias, p.n_v), p,
                states.view(), room);
  };
  measure_kind(state, kind, bytes, run);
}
void GatedDeltaPrefill(benchmark::State& state) {
  run_gated_delta(state, RowKind::prefill);
}
void GatedDeltaDecode(benchmark::State& state) {
  run_gated_delta(state, RowKind::decode);
}

// form: 0 a decay per head, 1 per token, 2 per channel.
void run_decay(benchmark::State& state, const DecayHeads& p, int form, RowKind kind) {
  const int64_t length = kind == RowKind::prefill ? state.range(0) : 1, batch = state.range(1), n = batch * length;
  const Rows rows(batch, length, kind);
  const int64_t queries = int64_t{p.n_q} * p.dk, keys = int64_t{p.n_k} * p.dk, values = int64_t{p.n_v} * p.dv;
  const int64_t outputs = int64_t{p.n} * p.dv, logs = form == 2 ? keys : p.n;
  const auto q = narrow(n * queries), k = narrow(n * keys), v = narrow(n * values), o = narrow(n * outputs);
  const auto decay = decays(form == 0 ? p.n : n * logs, 0.1F), scale = decays(n * p.n, 1);
  const States states(batch, decay_attention_state_bytes(gpu(), p, form == 2));
  const auto scratch =
      gpu().make_buffer(static_cast<size_t>(chunk_scratch_bytes(decay_attention_chunk_bytes(gpu(), p, form == 2), n)));
  const Matrix room = matrix(*scratch, 1, static_cast<int64_t>(scratch->bytes()), DType::u8);
  Decay by;
  if (form == 0) by.per_head = vector_of(*decay, p.n);
  if (form == 1) by.per_token = matrix(*decay, n, p.n, DType::f32);
  if (form == 2) by.per_channel = matrix(*decay, n, keys, DType::f32);
  const Matrix v_scale = form == 1 ? matrix(*scale, n, p.n, DType::f32) : Matrix{};
  gpu().arena().reset();
  const Pass pass = rows.pass();
  gpu().begin_pass(pass);
  double bytes = 2.0 * static_cast<double>(n * (queries + keys + values + outputs));
  if (form > 0) bytes += 4.0 * static_cast<double>(n * logs);
  if (kind == RowKind::decode) bytes += 8.0 * static_cast<double>(batch * p.n * p.dk * p.dv);
  measure_kind(state, kind, bytes, [&] {
    decay_attention(gpu(), pass, matrix(*o, n, outputs), matrix(*q, n, queries), matrix(*k, n, keys),
                    matrix(*v, n, values), by, v_scale, {}, p, states.view(), room);
  });
}
constexpr DecayHeads kHeads{.n = 32, .n_q = 32, .n_k = 32, .n_v = 32, .dk = 128, .dv = 128};
constexpr DecayHeads kGrouped{.n = 64, .n_q = 1, .n_k = 1, .n_v = 64, .dk = 128, .dv = 64};
constexpr DecayHeads kGla{.n = 4, .n_q = 4, .n_k = 4, .n_v = 4, .dk = 256, .dv = 512};
void LightningPrefill(benchmark::State& state) {
  run_decay(state, kHeads, 0, RowKind::prefill);
}
void TokenDecayPrefill(benchmark::State& state) {
  run_decay(state, kHeads, 1, RowKind::prefill);
}
void Mamba2Prefill(benchmark::State& state) {  // 64 heads of 64, state 128, one group
  run_decay(state, kGrouped, 1, RowKind::prefill);
}
void GlaPrefill(benchmark::State& state) {
  run_decay(state, kGla, 2, RowKind::prefill);
}
void LightningDecode(benchmark::State& state) {
  run_decay(state, kHeads, 0, RowKind::decode);
}
void Mamba2Decode(benchmark::State& state) {
  run_decay(state, kGrouped, 1, RowKind::decode);
}
void GlaDecode(benchmark::State& state) {
  run_decay(state, kGla, 2, RowKind::decode);
}

// Causal convolution of Qwen3.5's 8,192 channels, four taps.
void Convolution(benchmark::State& state) {
  const int64_t n = state.range(0), channels = 8192;
  const Rows rows(1, n, RowKind::prefill);
  const auto x = narrow(n * channels), w = decays(4 * channels, 0.3F);
  const States states(1, state_bytes(conv_state_floats(channels, 4)));
  gpu().arena().reset();
  const Pass pass = rows.pass();
  gpu().begin_pass(pass);
  measure(state, 0, 4.0 * static_cast<double>(n * channels), [&] {
    causal_conv_silu(gpu(), pass, matrix(*x, n, channels), vector_of(*w, 4 * channels), {}, 4, states.view());
  });
}

void lengths(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Unit(benchmark::kMillisecond);
  for (const int64_t n : {8192, 32768, 131072}) b->Args({n, 1});
  b->Args({32768, 2});
}
void batches(benchmark::internal::Benchmark* b) {
  b->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (const int64_t n : {1, 8, 32, 64, 128}) b->Args({1, n});
}
BENCHMARK(GatedDeltaPrefill)->Apply(lengths);
BENCHMARK(LightningPrefill)->Apply(lengths);
BENCHMARK(TokenDecayPrefill)->Apply(lengths);
BENCHMARK(Mamba2Prefill)->Apply(lengths);
BENCHMARK(GlaPrefill)->Apply(lengths);
BENCHMARK(GatedDeltaDecode)->Apply(batches);
BENCHMARK(LightningDecode)->Apply(batches);
BENCHMARK(Mamba2Decode)->Apply(batches);
BENCHMARK(GlaDecode)->Apply(batches);
BENCHMARK(Convolution)->UseManualTime()->Unit(benchmark::kMicrosecond)->Args({8192})->Args({131072});

}  // namespace
}  // namespace hayfork::engine

BENCHMARK_MAIN();
