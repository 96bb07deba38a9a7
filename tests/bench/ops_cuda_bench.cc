// Speed of the CUDA ops beside the device's limits. Each benchmark reports its rate and `of_floor`: the share of its
// time that 775 TFLOP/s of bf16 products and 4.2 TB/s of memory allow (both measured on an H200). Useful work only: a
// causal row counts the keys it sees. Correctness is held by ops_cuda_test; values here are random, never zeros.
#include <cmath>
#include <numeric>
#include <random>

#include "engine/kernels/ops.h"
#include "tests/bench/cuda_bench.h"

namespace hayfork::engine {
namespace {

// At least so many random bf16 numbers of unit variance: two megabytes of noise repeated.
const std::vector<bf16>& host_noise(size_t elements) {
  static std::vector<bf16> numbers;
  constexpr size_t kPart = (size_t{1} << 20) + 7;
  if (numbers.empty()) {
    std::mt19937 engine(3);
    std::normal_distribution<float> normal(0, 1);
    numbers.resize(kPart);
    for (bf16& x : numbers) x = to_bf16(normal(engine));
  }
  while (numbers.size() < elements) {
    const size_t n = std::min(numbers.size(), elements - numbers.size());
    numbers.resize(numbers.size() + n);
    std::copy_n(numbers.begin(), n, numbers.end() - static_cast<int64_t>(n));
  }
  return numbers;
}

// Each call's begin elsewhere: queries that were some key's equal would make a softmax of one.
std::unique_ptr<Buffer> noise(size_t elements) {
  static size_t calls = 0;
  const size_t from = ++calls * 37 % 1021;
  auto buffer = gpu().make_buffer(elements * sizeof(bf16));
  gpu().upload(buffer->data(), host_noise(elements + from).data() + from, elements * sizeof(bf16));
  return buffer;
}

Matrix matrix(const Buffer& buffer, int64_t rows, int64_t cols) {
  return {buffer.data(), DType::bf16, rows, cols, cols};
}

std::unique_ptr<LinearWeight> random_weight(int64_t n, int64_t k) {
  const LinearPart part{host_noise(static_cast<size_t>(n * k)).data(), DType::bf16, n, {}};
  return make_linear(gpu(), std::span(&part, 1), k);
}

void run_linear(benchmark::State& state, RowKind kind) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const auto weight = random_weight(n, k);
  const auto x = noise(static_cast<size_t>(m * k)), y = noise(static_cast<size_t>(m * n));
  measure(state, 2.0 * static_cast<double>(m * n * k), 2.0 * static_cast<double>(n * k + m * n + m * k),
          [&] { linear(gpu(), matrix(*y, m, n), matrix(*x, m, k), *weight, kind); });
}
void LinearPrefill(benchmark::State& state) {
  run_linear(state, RowKind::prefill);
}
void LinearDecode(benchmark::State& state) {
  run_linear(state, RowKind::decode);
}

// Linears one after the other, each of weights of its own, as in a decode step: what a launch costs between them.
void LinearDecodeChain(benchmark::State& state) {
  constexpr int kLinears = 8;
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  std::vector<std::unique_ptr<LinearWeight>> weights;
  for (int i = 0; i < kLinears; ++i) weights.push_back(random_weight(n, k));
  const auto x = noise(static_cast<size_t>(m * k)), y = noise(static_cast<size_t>(m * n));
  measure(state, 0, kLinears * 2.0 * static_cast<double>(n * k), [&] {
    for (const auto& weight : weights) linear(gpu(), matrix(*y, m, n), matrix(*x, m, k), *weight, RowKind::decode);
  });
}
// The gate and up projections with the activation behind them.
void LinearActMulDecode(benchmark::State& state) {
  const int64_t m = state.range(0), width = state.range(1), k = state.range(2);
  const auto weight = random_weight(2 * width, k);
  const auto x = noise(static_cast<size_t>(m * k)), y = noise(static_cast<size_t>(m * width));
  const auto fused = noise(static_cast<size_t>(2 * m * width));
  measure(state, 0, 4.0 * static_cast<double>(width * k), [&] {
    linear_act_mul(gpu(), matrix(*y, m, width), matrix(*fused, m, 2 * width), matrix(*x, m, k), *weight,
                   Activation::silu, RowKind::decode);
  });
}

// `sequences` of a length, each with blocks of its own.
struct Paged {
  std::vector<std::vector<int32_t>> tables;
  std::vector<const int32_t*> blocks;
  std::vector<SeqView> seqs;
  std::unique_ptr<Buffer> k, v;
  KvLayer layer;

  Paged(int32_t length, int32_t n_kv, int32_t dim, int32_t sequences = 1) {
    const int32_t n_blocks = (length + kBlockTokens - 1) / kBlockTokens;
    for (int32_t s = 0; s < sequences; ++s) {
      tables.emplace_back(static_cast<size_t>(n_blocks));
      std::iota(tables.back().begin(), tables.back().end(), s * n_blocks);
      blocks.push_back(tables.back().data());
    }
    for (int32_t s = 0; s < sequences; ++s)
      seqs.push_back({&blocks[static_cast<size_t>(s)], -1, length, 0, 1, n_blocks});
    const size_t n = static_cast<size_t>(sequences * n_blocks * n_kv) * kBlockTokens * static_cast<size_t>(dim);
    k = noise(n);
    v = noise(n);
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
  const auto q = noise(n), o = noise(n);
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

// length, heads, kv heads, head dim, sequences, window of base rows: a row each, or with a window an Orthros pair.
void AttentionDecode(benchmark::State& state) {
  const auto length = static_cast<int32_t>(state.range(0)), heads = static_cast<int32_t>(state.range(1)),
             kv = static_cast<int32_t>(state.range(2)), dim = static_cast<int32_t>(state.range(3)),
             sequences = static_cast<int32_t>(state.range(4)), window = static_cast<int32_t>(state.range(5));
  const Paged paged(length, kv, dim, sequences);
  std::vector<Row> rows;
  for (const Stream stream : {Stream::base, Stream::output}) {
    if (stream == Stream::output && window == 0) continue;
    for (int32_t s = 0; s < sequences; ++s) rows.push_back({0, length - 1, s, stream, RowKind::decode, -1});
  }
  const Pass pass{rows, paged.seqs, 0};
  const auto n = static_cast<int64_t>(rows.size());
  const auto q = noise(rows.size() * static_cast<size_t>(heads * dim)),
             o = noise(rows.size() * static_cast<size_t>(heads * dim));
  AttentionParams params;
  params.n_heads = heads;
  params.scale = 1.f / std::sqrt(static_cast<float>(dim));
  params.window_base = window;
  gpu().arena().reset();
  gpu().begin_pass(pass);
  measure(state, 0, 4.0 * sequences * static_cast<double>(length) * kv * dim,
          [&] { attention(gpu(), pass, matrix(*o, n, heads * dim), matrix(*q, n, heads * dim), paged.layer, params); });
}

void Rmsnorm(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto x = noise(static_cast<size_t>(rows * cols)), y = noise(static_cast<size_t>(rows * cols));
  const std::vector<float> weight(static_cast<size_t>(cols), 1.1f);
  const auto w = gpu().make_buffer(weight.size() * sizeof(float));
  gpu().upload(w->data(), weight.data(), weight.size() * sizeof(float));
  const Vector vector{static_cast<const float*>(w->data()), cols};
  measure(state, 0, 4.0 * static_cast<double>(rows * cols), [&] {
    rmsnorm(gpu(), matrix(*y, rows, cols), matrix(*x, rows, cols), vector, 1e-6f, NormKind::llama, cols);
  });
}

void AddRmsnorm(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto x = noise(static_cast<size_t>(rows * cols)), y = noise(static_cast<size_t>(rows * cols)),
             h = noise(static_cast<size_t>(rows * cols));
  const auto w = gpu().make_buffer(static_cast<size_t>(cols) * sizeof(float));
  const std::vector<float> weight(static_cast<size_t>(cols), 1.1f);
  gpu().upload(w->data(), weight.data(), weight.size() * sizeof(float));
  const Vector vector{static_cast<const float*>(w->data()), cols};
  measure(state, 0, 8.0 * static_cast<double>(rows * cols), [&] {
    add_rmsnorm(gpu(), matrix(*x, rows, cols), matrix(*h, rows, cols), matrix(*y, rows, cols), 1.f, vector, 1e-6f,
                NormKind::llama, {});
  });
}

// rows, heads, kv heads, head dim: norms of heads, rotation, cache write.
void FinishQkv(benchmark::State& state) {
  const auto n = static_cast<int32_t>(state.range(0)), heads = static_cast<int32_t>(state.range(1)),
             kv = static_cast<int32_t>(state.range(2)), dim = static_cast<int32_t>(state.range(3));
  const Paged paged(n, kv, dim);
  std::vector<Row> rows;
  for (int32_t p = 0; p < n; ++p) rows.push_back({0, p, 0, Stream::base, RowKind::prefill, -1});
  const Pass pass{rows, paged.seqs, 0};
  const int64_t width = int64_t{heads + 2 * kv} * dim;
  const auto qkv = noise(static_cast<size_t>(n * width));
  const Matrix fused = matrix(*qkv, n, width);
  const std::vector<float> weight(static_cast<size_t>(dim), 1.1f);
  const auto w = gpu().make_buffer(weight.size() * sizeof(float));
  gpu().upload(w->data(), weight.data(), weight.size() * sizeof(float));
  QkvFinish finish{.head_dim = dim};
  finish.q_norm = finish.k_norm = {static_cast<const float*>(w->data()), dim};
  RopeTable table;
  for (int i = 0; i < dim / 2; ++i)
    table.inv_freq.push_back(std::pow(1e6f, -2.f * static_cast<float>(i) / static_cast<float>(dim)));
  const std::vector<int32_t> table_of_seq = {0};
  gpu().arena().reset();
  gpu().begin_pass(pass);
  finish.angles = rope_angles(gpu(), rows, std::span(&table, 1), table_of_seq);
  measure(state, 0, 4.0 * static_cast<double>(n * width) + 4.0 * n * dim, [&] {
    finish_qkv(gpu(), pass, fused.columns(0, heads * dim), fused.columns(heads * dim, kv * dim),
               fused.columns((heads + kv) * dim, kv * dim), paged.layer, finish);
  });
}

void ActMul(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto gate_up = noise(static_cast<size_t>(rows * cols * 2)), y = noise(static_cast<size_t>(rows * cols));
  const Matrix both = matrix(*gate_up, rows, 2 * cols);
  measure(state, 0, 6.0 * static_cast<double>(rows * cols), [&] {
    act_mul(gpu(), matrix(*y, rows, cols), both.columns(0, cols), both.columns(cols, cols), Activation::silu);
  });
}

void Add(benchmark::State& state) {
  const int64_t rows = state.range(0), cols = state.range(1);
  const auto x = noise(static_cast<size_t>(rows * cols)), y = noise(static_cast<size_t>(rows * cols));
  measure(state, 0, 6.0 * static_cast<double>(rows * cols),
          [&] { add(gpu(), matrix(*x, rows, cols), matrix(*y, rows, cols), 1); });
}

// rows, vocabulary, width, decode rows.
void Head(benchmark::State& state) {
  const int64_t rows = state.range(0), vocab = state.range(1), k = state.range(2);
  const auto weight = random_weight(vocab, k);
  const auto x = noise(static_cast<size_t>(rows * k));
  const std::vector<int32_t> target = {11};
  const RowKind kind = state.range(3) != 0 ? RowKind::decode : RowKind::prefill;
  const std::vector<HeadRow> queries(static_cast<size_t>(rows), HeadRow{target, nullptr, kind});
  // What the device does: a run's passes follow each other, and results are read while the next one is computed.
  measure(state, 2.0 * static_cast<double>(rows * vocab * k), 2.0 * static_cast<double>(vocab * k), [&] {
    gpu().arena().reset();
    gpu().begin_pass({});
    benchmark::DoNotOptimize(head_queue(gpu(), matrix(*x, rows, k), *weight, 0, queries));
  });
}

BENCHMARK(LinearPrefill)
    ->UseManualTime()
    ->Args({8192, 6144, 4096})
    ->Args({8192, 24576, 4096})
    ->Args({8192, 4096, 12288})
    ->Args({2048, 151936, 4096})
    ->Args({512, 4096, 4096});
BENCHMARK(LinearDecode)
    ->UseManualTime()
    ->ArgsProduct({{1, 2, 8, 64}, {6144, 24576}, {4096}})
    ->Args({1, 4096, 12288})
    ->Args({8, 4096, 12288})
    ->Args({1, 4096, 4096});
BENCHMARK(LinearDecodeChain)->UseManualTime()->Args({1, 4096, 4096})->Args({1, 6144, 4096})->Args({1, 4096, 12288});
BENCHMARK(LinearActMulDecode)->UseManualTime()->Args({1, 12288, 4096})->Args({8, 12288, 4096});
BENCHMARK(AttentionPrefill)
    ->UseManualTime()
    ->Args({8192, 32, 8, 128, 0})
    ->Args({32768, 32, 8, 128, 0})
    ->Args({131072, 32, 8, 128, 0})
    ->Args({8192, 32, 8, 64, 0})
    ->Args({32768, 32, 8, 64, 0})
    ->Args({8192, 16, 4, 256, 0})
    ->Args({32768, 16, 4, 256, 0})
    ->Args({131072, 32, 8, 128, 128});
BENCHMARK(AttentionDecode)
    ->UseManualTime()
    ->Args({2048, 32, 8, 128, 1, 0})
    ->Args({2048, 32, 8, 128, 8, 0})
    ->Args({32768, 32, 8, 128, 1, 0})
    ->Args({131072, 32, 8, 128, 1, 0})
    ->Args({131072, 32, 8, 128, 1, 128})
    ->Args({131072, 32, 8, 64, 1, 0})
    ->Args({131072, 16, 4, 256, 1, 0});
BENCHMARK(Rmsnorm)->UseManualTime()->Args({8192, 4096})->Args({1, 4096});
BENCHMARK(AddRmsnorm)->UseManualTime()->Args({8192, 4096})->Args({1, 4096});
BENCHMARK(FinishQkv)->UseManualTime()->Args({8192, 32, 8, 128})->Args({1, 32, 8, 128});
BENCHMARK(ActMul)->UseManualTime()->Args({8192, 12288});
BENCHMARK(Add)->UseManualTime()->Args({8192, 4096});
BENCHMARK(Head)
    ->UseManualTime()
    ->Args({2048, 151936, 4096, 0})
    ->Args({1, 151936, 4096, 0})
    ->Args({1, 151936, 4096, 1})
    ->Args({8, 151936, 4096, 1});

}  // namespace
}  // namespace hayfork::engine

BENCHMARK_MAIN();
