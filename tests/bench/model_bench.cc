// A whole checkpoint on the CPU: prefill at once and greedy decode, tokens a second. The folder is named by the
// environment variable HAYFORK_BENCH_MODEL. Whether the numbers are right is the golden tests' business.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "base/rng.h"
#include "engine/cache.h"
#include "engine/model.h"

namespace hayfork::engine {
namespace {

class Loaded {
 public:
  explicit Loaded(DType type) : type_(type), context_(make_cpu_context(type)) {
    model_ = load_model(*context_, std::getenv("HAYFORK_BENCH_MODEL"), {});
  }
  void start(int32_t length) {
    cache_.emplace(*context_, model_->state_specs(), type_, length / kBlockTokens + 2, 1);
    seq_ = cache_->create();
  }
  // The next tokens of the sequence; the last one's arg max.
  int32_t step(std::span<const int32_t> ids, RowKind kind) {
    const int32_t from = cache_->length(seq_), n = static_cast<int32_t>(ids.size());
    if (!cache_->extend(seq_, from + n)) std::abort();
    std::vector<Row> rows;
    for (int32_t i = 0; i < n; ++i) {
      rows.push_back({ids[static_cast<size_t>(i)], from + i, 0, Stream::base, kind, i == n - 1 ? 0 : -1});
    }
    const SeqView view = cache_->view(seq_, from + n);
    const ForwardResult result = model_->forward(*context_, {rows, {&view, 1}, 1}, *cache_);
    const HeadQuery query{0, {}, nullptr};
    return model_->head(*context_, result.hidden, {&query, 1})[0].argmax;
  }
  const Model& model() const { return *model_; }

 private:
  DType type_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Model> model_;
  std::optional<Cache> cache_;
  SeqId seq_ = 0;
};

Loaded& loaded(int64_t bf16) {
  static Loaded models[] = {Loaded(DType::f32), Loaded(DType::bf16)};
  return models[bf16];
}

std::vector<int32_t> prompt(const Model& model, int64_t n) {
  Rng rng(1);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  for (int32_t& id : ids) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(model.info().vocab_size)));
  return ids;
}

void prefill(benchmark::State& state) {
  Loaded& it = loaded(state.range(0));
  const auto ids = prompt(it.model(), state.range(1));
  for (auto _ : state) {
    it.start(static_cast<int32_t>(ids.size()));
    it.step(ids, RowKind::prefill);
  }
  state.counters["tok/s"] =
      benchmark::Counter(static_cast<double>(ids.size()), benchmark::Counter::kIsIterationInvariantRate);
}

// Tokens 16 … 144 after a prompt of 16.
void decode(benchmark::State& state) {
  Loaded& it = loaded(state.range(0));
  constexpr int32_t kTokens = 128;
  const auto ids = prompt(it.model(), state.range(1));
  for (auto _ : state) {
    state.PauseTiming();
    it.start(static_cast<int32_t>(ids.size()) + kTokens);
    int32_t next = it.step(ids, RowKind::prefill);
    state.ResumeTiming();
    for (int32_t i = 0; i < kTokens; ++i) next = it.step({&next, 1}, RowKind::decode);
  }
  state.counters["tok/s"] = benchmark::Counter(kTokens, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["weights GB/s"] = benchmark::Counter(static_cast<double>(it.model().weight_bytes()) * kTokens / 1e9,
                                                      benchmark::Counter::kIsIterationInvariantRate);
}

void sizes(benchmark::internal::Benchmark* bench, std::initializer_list<int64_t> lengths) {
  for (const int64_t bf16 : {1, 0}) {
    for (const int64_t length : lengths) bench->Args({bf16, length});
  }
  bench->ArgNames({"bf16", "prompt"})->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(prefill)->Apply([](auto* b) { sizes(b, {512, 2048}); });
BENCHMARK(decode)->Apply([](auto* b) { sizes(b, {16, 2048}); });

}  // namespace
}  // namespace hayfork::engine

int main(int argc, char** argv) {
  if (std::getenv("HAYFORK_BENCH_MODEL") == nullptr) {
    std::fprintf(stderr, "HAYFORK_BENCH_MODEL must name a checkpoint folder\n");
    return 2;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
