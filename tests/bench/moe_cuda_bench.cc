// Speed of a layer's experts on CUDA: rows sorted, both products, the weighted sum; without the router. `of_floor` as
// in ops_cuda_bench: 775 TFLOP/s and 4.2 TB/s, the bytes of every chosen expert once a call. The routing is random and
// changes from call to call, so that weights come from memory. Correctness is held by moe_cuda_test.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "engine/kernels/moe.h"
#include "tests/bench/cuda_bench.h"

namespace hayfork::engine {
namespace {

struct Layer {
  std::unique_ptr<Experts> experts;
  ExpertActivation act;
  int32_t top_k;
};

// The rows of one expert repeated for all.
std::unique_ptr<Layer> make_layer(const ExpertShape& shape, const ExpertActivation& act, int32_t top_k) {
  auto layer = std::make_unique<Layer>(Layer{make_experts(gpu(), shape), act, top_k});
  std::mt19937 random(5);
  for (const Experts::Part part : {Experts::Part::gate_up, Experts::Part::down}) {
    const int64_t n = part == Experts::Part::gate_up ? 2 * shape.width : shape.hidden;
    const int64_t k = part == Experts::Part::gate_up ? shape.hidden : shape.width;
    const std::vector<float> bias(shape.bias ? static_cast<size_t>(n) : 0, 0.1F);
    std::vector<uint8_t> blocks(static_cast<size_t>(n * k / 2)), exponents(static_cast<size_t>(n * k / 32));
    for (uint8_t& b : blocks) b = static_cast<uint8_t>(random());
    for (uint8_t& x : exponents) x = static_cast<uint8_t>(118 + random() % 3);
    std::vector<bf16> values(shape.mxfp4 ? 0 : static_cast<size_t>(n * k));
    for (bf16& v : values) v = to_bf16((static_cast<float>(random() % 2001) / 1000 - 1) * 0.05F);
    const LinearPart rows{values.data(), DType::bf16, n, {}};
    for (int64_t e = 0; e < shape.n_experts; ++e) {
      if (shape.mxfp4)
        layer->experts->set_mxfp4(gpu(), part, e, {blocks.data(), exponents.data()}, bias);
      else
        layer->experts->set(gpu(), part, e, std::span(&rows, 1), bias);
    }
  }
  return layer;
}

const Layer& gpt_oss_20b() {
  static const auto layer = make_layer({32, 2880, 2880, true, true}, {.limit = 7}, 4);
  return *layer;
}
const Layer& qwen3_30b_a3b() {
  static const auto layer = make_layer({128, 2048, 768, false, false}, {}, 8);
  return *layer;
}

void run_layer(benchmark::State& state, const Layer& layer) {
  const ExpertShape& shape = layer.experts->shape;
  const int64_t rows = state.range(0);
  const RowKind kind = state.range(1) != 0 ? RowKind::decode : RowKind::prefill;
  constexpr int kRoutings = 16;
  std::mt19937 random(7);
  std::vector<int32_t> chosen(static_cast<size_t>(shape.n_experts));
  std::iota(chosen.begin(), chosen.end(), 0);
  double distinct = 0;
  std::vector<std::unique_ptr<Buffer>> experts_of;
  for (int r = 0; r < kRoutings; ++r) {
    std::vector<int32_t> all;
    for (int64_t m = 0; m < rows; ++m) {
      std::shuffle(chosen.begin(), chosen.end(), random);
      all.insert(all.end(), chosen.begin(), chosen.begin() + layer.top_k);
    }
    distinct += static_cast<double>(std::set<int32_t>(all.begin(), all.end()).size()) / kRoutings;
    experts_of.push_back(gpu().make_buffer(all.size() * sizeof(int32_t)));
    gpu().upload(experts_of.back()->data(), all.data(), all.size() * sizeof(int32_t));
  }
  std::vector<float> weights(static_cast<size_t>(rows * layer.top_k), 0.25F);
  std::vector<bf16> noise(static_cast<size_t>(rows * shape.hidden));
  for (bf16& v : noise) v = to_bf16(static_cast<float>(random() % 2001) / 1000 - 1);
  const auto weights_of = gpu().make_buffer(weights.size() * sizeof(float));
  gpu().upload(weights_of->data(), weights.data(), weights.size() * sizeof(float));
  const auto x = gpu().make_buffer(noise.size() * sizeof(bf16)), y = gpu().make_buffer(noise.size() * sizeof(bf16));
  gpu().upload(x->data(), noise.data(), noise.size() * sizeof(bf16));
  const auto scratch = gpu().make_buffer(static_cast<size_t>(layer.experts->scratch_bytes(rows, layer.top_k)));
  RowGroups groups;
  groups.group[groups.n++] = {kind, Stream::base, 0, static_cast<int32_t>(rows)};
  const auto run = [&](int routing) {
    run_experts(gpu(), {y->data(), DType::bf16, rows, shape.hidden, shape.hidden},
                {x->data(), DType::bf16, rows, shape.hidden, shape.hidden},
                {static_cast<int32_t*>(experts_of[static_cast<size_t>(routing)]->data()),
                 static_cast<float*>(weights_of->data()), layer.top_k},
                *layer.experts, layer.act, groups, scratch->data());
  };
  const int calls = rows > 256 ? 2 : kRoutings;
  const double flops = 6.0 * static_cast<double>(rows * layer.top_k * shape.hidden * shape.width);
  const double bytes = static_cast<double>(layer.experts->bytes) / static_cast<double>(shape.n_experts) * distinct;
  measure(
      state, flops, bytes,
      [&] {
        for (int i = 0; i < calls; ++i) run(i);
      },
      calls);
}

void GptOss20b(benchmark::State& state) {
  run_layer(state, gpt_oss_20b());
}
void Qwen3Moe30b(benchmark::State& state) {
  run_layer(state, qwen3_30b_a3b());
}
void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"rows", "decode"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (const int64_t rows : {1, 8, 32, 64}) b->Args({rows, 1});
  for (const int64_t rows : {1, 512, 2048, 8192}) b->Args({rows, 0});
}
BENCHMARK(GptOss20b)->Apply(shapes);
BENCHMARK(Qwen3Moe30b)->Apply(shapes);

}  // namespace
}  // namespace hayfork::engine

BENCHMARK_MAIN();
