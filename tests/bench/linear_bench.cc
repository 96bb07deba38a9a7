// Speed of the CPU's linear beside oneDNN's matmul (where installed) on the same matrices, and beside what this machine
// can do: the rate of the product's own inner loop on data in the first-level cache, and the bandwidth of reading
// memory. Shapes are SmolLM2-135M's. A contestant's result is compared with ours before its time counts.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

#if defined(HAY_BENCH_ONEDNN)
#include <oneapi/dnnl/dnnl.hpp>
#endif

#include "base/parallel.h"
#include "base/rng.h"
#include "engine/kernels/ops.h"
#include "engine/kernels/simd/simd.h"

namespace hayfork::engine {
namespace {

std::vector<float> random_floats(int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = round_to_bf16(static_cast<float>(2 * rng.uniform() - 1));
  return values;
}

struct Problem {
  int64_t m, n, k;
  DType type;
  std::unique_ptr<Context> context;
  std::vector<float> x, w, y;
  std::unique_ptr<LinearWeight> weight;

  explicit Problem(const benchmark::State& state)
      : m(state.range(0)), n(state.range(1)), k(state.range(2)), type(state.range(3) != 0 ? DType::bf16 : DType::f32) {
    context = make_cpu_context(type);
    x = random_floats(m * k, 1);
    w = random_floats(n * k, 2);
    y.resize(static_cast<size_t>(m * n));
    const LinearPart part{w.data(), DType::f32, n, {}};
    weight = make_linear(*context, {&part, 1}, k);
  }
  void run() {
    linear(*context, {y.data(), DType::f32, m, n, n}, {x.data(), DType::f32, m, k, k}, *weight, RowKind::prefill);
  }
  void report(benchmark::State& state) const {
    const auto flops = static_cast<double>(2 * m * n * k), bytes = static_cast<double>(n * k * size_of(type));
    state.counters["GFLOP/s"] = benchmark::Counter(flops / 1e9, benchmark::Counter::kIsIterationInvariantRate);
    state.counters["GB/s"] = benchmark::Counter(bytes / 1e9, benchmark::Counter::kIsIterationInvariantRate);
  }
};

void hayfork_linear(benchmark::State& state) {
  Problem p(state);
  for (auto _ : state) p.run();
  p.report(state);
}

#if defined(HAY_BENCH_ONEDNN)
// Weights in the layout oneDNN asks for; inputs are rounded by a reorder inside the clock, as ours are.
void onednn_matmul(benchmark::State& state) {
  using namespace dnnl;
  Problem p(state);
  p.run();
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  stream s(cpu);
  const auto type = p.type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const memory::desc x_f32({p.m, p.k}, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc x_desc({p.m, p.k}, type, memory::format_tag::ab);
  const memory::desc w_f32({p.k, p.n}, memory::data_type::f32, memory::format_tag::ba);
  const memory::desc w_any({p.k, p.n}, type, memory::format_tag::any);
  const memory::desc y_desc({p.m, p.n}, memory::data_type::f32, memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  const matmul::primitive_desc desc(cpu, x_desc, w_any, y_desc);
#else
  const matmul::primitive_desc desc(matmul::desc(x_desc, w_any, y_desc), cpu);
#endif
  memory x(x_f32, cpu, p.x.data()), x_in(x_desc, cpu), w(w_f32, cpu, p.w.data()), w_in(desc.weights_desc(), cpu);
  std::vector<float> out(p.y.size());
  memory y(y_desc, cpu, out.data());
  reorder(w, w_in).execute(s, w, w_in);
  const matmul product(desc);
  reorder round(x, x_in);
  const auto run = [&] {
    if (p.type == DType::bf16) round.execute(s, x, x_in);
    product.execute(s, {{DNNL_ARG_SRC, p.type == DType::bf16 ? x_in : x}, {DNNL_ARG_WEIGHTS, w_in}, {DNNL_ARG_DST, y}});
    s.wait();
  };
  run();
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::abs(out[i] - p.y[i]) > 1e-3F * std::sqrt(static_cast<float>(p.k))) return state.SkipWithError("differs");
  }
  for (auto _ : state) run();
  p.report(state);
}

#endif

// The ceiling: the inner loop on a panel that stays in the first-level cache.
void inner_loop(benchmark::State& state) {
  constexpr int64_t kM = 6, kN = 64, kK = 32;
  const bool narrow = state.range(0) != 0;
  alignas(64) static float a[kM * kK], b[kK * kN], c[kM * kN];
  for (auto _ : state) {
    for (int i = 0; i < 1000; ++i) {
      if (narrow) {
        cpu::simd().gemm_bf16(kM, kN / 16, kK, reinterpret_cast<bf16*>(a), 2 * kK, reinterpret_cast<bf16*>(b), kN, c,
                              kN, false, 0);
      } else {
        cpu::simd().gemm_f32(kM, kN / 16, kK, a, kK, b, kN, c, kN, false, 0);
      }
    }
    benchmark::ClobberMemory();
  }
  state.SetLabel(std::string(cpu::simd().name));
  state.counters["GFLOP/s"] =
      benchmark::Counter((narrow ? 2 : 1) * 2e3 * kM * kN * kK / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

void read_bandwidth(benchmark::State& state) {
  const std::vector<int64_t> data(size_t{1} << 26, 1);  // 512 MB
  const auto n = static_cast<int64_t>(data.size());
  for (auto _ : state) {
    parallel_for(n, 1 << 20, [&](int64_t begin, int64_t end) {
      benchmark::DoNotOptimize(std::accumulate(data.data() + begin, data.data() + end, int64_t{0}));
    });
  }
  state.counters["GB/s"] =
      benchmark::Counter(static_cast<double>(n) * 8 / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

void shapes(benchmark::internal::Benchmark* bench) {
  for (const int64_t bf16 : {1, 0}) {
    for (const int64_t m : {1, 4, 16, 64, 512}) {
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{960, 576}, {576, 576}, {3072, 576}, {576, 1536}}) {
        bench->Args({m, n, k, bf16});
      }
    }
    bench->Args({1, 49152, 576, bf16});
  }
  bench->ArgNames({"m", "n", "k", "bf16"})->UseRealTime();
}

BENCHMARK(inner_loop)->ArgName("bf16")->Arg(1)->Arg(0);
BENCHMARK(read_bandwidth)->UseRealTime();
BENCHMARK(hayfork_linear)->Apply(shapes);
#if defined(HAY_BENCH_ONEDNN)
BENCHMARK(onednn_matmul)->Apply(shapes);
#endif

}  // namespace
}  // namespace hayfork::engine

BENCHMARK_MAIN();
