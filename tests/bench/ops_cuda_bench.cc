// Speed of the CUDA ops beside the device's limits. Each benchmark reports its rate and `of_floor`: the share of its
// time that 775 TFLOP/s of bf16 products and 4.2 TB/s of memory allow (both measured on an H200). Useful work only: a
// causal row counts the keys it sees. Correctness is held by ops_cuda_test; values here are random, never zeros.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>

#include "engine/cuda/devices.h"
#include "engine/cuda/timer.h"
#include "engine/kernels/ops.h"

namespace hayfork::engine {
namespace {

constexpr double kFlops = 775e12, kBytes = 4.2e12;

Context& gpu() {
  static const std::unique_ptr<Context> context = cuda::make_cuda_context(0, DType::bf16);
  return *context;
}

// Random bf16 numbers; a few megabytes of noise repeated.
std::unique_ptr<Buffer> noise(size_t elements, float scale) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal(0, scale);
  std::vector<bf16> part((size_t{1} << 20) + 7);
  for (bf16& x : part) x = to_bf16(normal(engine));
  auto buffer = gpu().make_buffer(elements * sizeof(bf16));
  for (size_t at = 0; at < elements; at += part.size()) {
    gpu().upload(static_cast<bf16*>(buffer->data()) + at, part.data(),
                 std::min(part.size(), elements - at) * sizeof(bf16));
  }
  return buffer;
}

template <typename F>
void measure(benchmark::State& state, double flops, double bytes, F run) {
  for (int i = 0; i < 3; ++i) run();
  cuda::Timer timer(gpu());
  double seconds = 0;
  int64_t n = 0;
  for (auto _ : state) {
    timer.start();
    run();
    const double s = timer.seconds();
    state.SetIterationTime(s);
    seconds += s;
    ++n;
  }
  seconds /= static_cast<double>(n);
  if (flops > 0) state.counters["TFLOP/s"] = flops / seconds / 1e12;
  if (bytes > 0) state.counters["GB/s"] = bytes / seconds / 1e9;
  state.counters["of_floor"] = std::max(flops / kFlops, bytes / kBytes) / seconds;
}

Matrix matrix(const Buffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.data(), DType::bf16, rows, cols, cols};
}

std::unique_ptr<LinearWeight> random_weight(int64_t n, int64_t k) {
  const auto device = noise(static_cast<size_t>(n * k), 0.05f);
  std::vector<bf16> host(static_cast<size_t>(n * k));
  gpu().download(host.data(), device->data(), host.size() * sizeof(bf16));
  const LinearPart part{host.data(), DType::bf16, n, {}};
  return make_linear(gpu(), std::span(&part, 1), k);
}

void run_linear(benchmark::State& state, RowKind kind) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto weight = random_weight(n, k);
  const auto x = noise(static_cast<size_t>(m * k), 1), y = noise(static_cast<size_t>(m * n), 1);
  measure(state, 2.0 * static_cast<double>(m * n * k), 2.0 * static_cast<double>(n * k + m * n + m * k),
          [&] { linear(gpu(), matrix(*y, m, n), matrix(*x, m, k), *weight, kind); });
}
void LinearPrefill(benchmark::State& state) {
  run_linear(state, RowKind::prefill);
}
void LinearDecode(benchmark::State& state) {
  run_linear(state, RowKind::decode);
}

struct Paged {
  std::vector<int32_t> table;
  const int32_t* blocks;
  std::vector<SeqView> seqs;
  std::unique_ptr<Buffer> k, v;
  KvLayer layer;

  Paged(int32_t length, int32_t n_kv, int32_t dim) {
    for (int32_t i = 0; i * kBlockTokens < length; ++i) table.push_back(i);
    blocks = table.data();
    seqs.push_back({&blocks, -1, length, 0, 1, static_cast<int32_t>(table.size())});
    const size_t n = table.size() * static_cast<size_t>(n_kv) * kBlockTokens * static_cast<size_t>(dim);
    k = noise(n, 1);
    v = noise(n, 1);
    layer = {k->data(), v->data(), DType::bf16, n_kv, dim, dim, 0};
  }
};

// length, heads, kv heads, head dim, window (0: full).
void AttentionPrefill(benchmark::State& state) {
  const auto length = static_cast<int32_t>(state.range(0)), heads = static_cast<int32_t>(state.range(1)),
             kv = static_cast<int32_t>(state.range(2)), dim = static_cast<int32_t>(state.range(3)),
             window = static_cast<int32_t>(state.range(4));
  const Paged paged(length, kv, dim);
  std::vector<Row> rows;
  double pairs = 0;
  for (int32_t p = 0; p < length; ++p) {
    rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
    pairs += window > 0 ? std::min(p + 1, window) : p + 1;
  }
  const Pass pass{rows, paged.seqs, 0};
  const size_t n = rows.size() * static_cast<size_t>(heads * dim);
  const auto q = noise(n, 1), o = noise(n, 1);
  AttentionParams params;
  params.n_heads = heads;
  params.scale = 1.f / std::sqrt(static_cast<float>(dim));
  params.window_base = window;
  gpu().arena().reset();
  gpu().begin_pass(pass);
  measure(state, 4.0 * dim * heads * pairs, 4.0 * static_cast<double>(length) * dim * (heads + kv), [&] {
    attention(gpu(), pass, matrix(*o, length, heads * dim), matrix(*q, length, heads * dim), paged.layer, params);
  });
}

// length, heads, kv heads, head dim: one row.
void AttentionDecode(benchmark::State& state) {
  const auto length = static_cast<int32_t>(state.range(0)), heads = static_cast<int32_t>(state.range(1)),
             kv = static_cast<int32_t>(state.range(2)), dim = static_cast<int32_t>(state.range(3));
  const Paged paged(length, kv, dim);
  const std::vector<Row> rows = {{0, length - 1, 0, Stream::base, RowKind::decode, -1}};
  const Pass pass{rows, paged.seqs, 0};
  const auto q = noise(static_cast<size_t>(heads * dim), 1), o = noise(static_cast<size_t>(heads * dim), 1);
  AttentionParams params;
  params.n_heads = heads;
  params.scale = 1.f / std::sqrt(static_cast<float>(dim));
  measure(state, 0, 4.0 * static_cast<double>(length) * kv * dim, [&] {
    gpu().arena().reset();
    gpu().begin_pass(pass);
    attention(gpu(), pass, matrix(*o, 1, heads * dim), matrix(*q, 1, heads * dim), paged.layer, params);
  });
}

void Rmsnorm(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto x = noise(static_cast<size_t>(rows * cols), 1), y = noise(static_cast<size_t>(rows * cols), 1);
  const std::vector<float> weight(static_cast<size_t>(cols), 1.1f);
  const auto w = gpu().make_buffer(weight.size() * sizeof(float));
  gpu().upload(w->data(), weight.data(), weight.size() * sizeof(float));
  const Vector vector{static_cast<const float*>(w->data()), cols};
  measure(state, 0, 4.0 * static_cast<double>(rows * cols), [&] {
    rmsnorm(gpu(), matrix(*y, rows, cols), matrix(*x, rows, cols), vector, 1e-6f, NormKind::llama, cols);
  });
}

void ActMul(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto gate_up = noise(static_cast<size_t>(rows * cols * 2), 1), y = noise(static_cast<size_t>(rows * cols), 1);
  const Matrix both = matrix(*gate_up, rows, 2 * cols);
  measure(state, 0, 6.0 * static_cast<double>(rows * cols), [&] {
    act_mul(gpu(), matrix(*y, rows, cols), both.columns(0, cols), both.columns(cols, cols), Activation::silu);
  });
}

void Add(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto x = noise(static_cast<size_t>(rows * cols), 1), y = noise(static_cast<size_t>(rows * cols), 1);
  measure(state, 0, 6.0 * static_cast<double>(rows * cols),
          [&] { add(gpu(), matrix(*x, rows, cols), matrix(*y, rows, cols), 1); });
}

void Head(benchmark::State& state) {
  const int64_t rows = state.range(0), vocab = state.range(1), k = state.range(2);
  const auto weight = random_weight(vocab, k);
  const auto x = noise(static_cast<size_t>(rows * k), 1);
  const std::vector<int32_t> target = {11};
  const std::vector<HeadRow> queries(static_cast<size_t>(rows), HeadRow{target, nullptr});
  measure(state, 2.0 * static_cast<double>(rows * vocab * k), 2.0 * static_cast<double>(vocab * k), [&] {
    gpu().arena().reset();
    gpu().begin_pass({});
    benchmark::DoNotOptimize(head(gpu(), matrix(*x, rows, k), *weight, 0, queries));
  });
}

BENCHMARK(LinearPrefill)
    ->UseManualTime()
    ->Args({8192, 6144, 4096})
    ->Args({8192, 24576, 4096})
    ->Args({8192, 4096, 12288})
    ->Args({512, 4096, 4096});
BENCHMARK(LinearDecode)
    ->UseManualTime()
    ->ArgsProduct({{1, 2, 8, 64}, {6144, 24576}, {4096}})
    ->Args({1, 4096, 12288})
    ->Args({1, 4096, 4096});
BENCHMARK(AttentionPrefill)
    ->UseManualTime()
    ->Args({8192, 32, 8, 128, 0})
    ->Args({32768, 32, 8, 128, 0})
    ->Args({8192, 32, 8, 64, 0})
    ->Args({8192, 16, 4, 256, 0})
    ->Args({131072, 32, 8, 128, 128});
BENCHMARK(AttentionDecode)
    ->UseManualTime()
    ->Args({2048, 32, 8, 128})
    ->Args({32768, 32, 8, 128})
    ->Args({131072, 32, 8, 128})
    ->Args({131072, 16, 4, 256});
BENCHMARK(Rmsnorm)->UseManualTime()->Args({8192, 4096})->Args({1, 4096});
BENCHMARK(ActMul)->UseManualTime()->Args({8192, 12288});
BENCHMARK(Add)->UseManualTime()->Args({8192, 4096});
BENCHMARK(Head)->UseManualTime()->Args({2048, 151936, 4096})->Args({1, 151936, 4096});

}  // namespace
}  // namespace hayfork::engine

BENCHMARK_MAIN();
