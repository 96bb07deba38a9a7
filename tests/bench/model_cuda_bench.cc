// Whole models of known shapes with made-up weights on a GPU: prefill of one sequence in chunks, greedy decode after
// it. Prints tokens a second and the floor: the larger of useful FLOP at 775 TFLOP/s and bytes at 4.2 TB/s (weights
// once a step, K/V of the keys seen). A causal row counts the keys it sees; a linear layer 2 FLOP a weight and row.
//   model_cuda_bench MODEL PROMPT [DECODE [BATCH]] …   e.g. random:qwen3-8b:0 8192 64 1
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/cache.h"
#include "engine/cuda/devices.h"
#include "engine/model.h"

namespace hayfork::engine {
namespace {

constexpr double kFlops = 775e12, kBytes = 4.2e12;
constexpr int32_t kChunk = 8192;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Floor {
  double flops = 0, bytes = 0;
  double seconds() const { return std::max(flops / kFlops, bytes / kBytes); }
};

// Keys that rows [from, to) of one sequence see in a layer, summed; `output` rows of Orthros see all.
double keys_seen(const LayerInfo& layer, double from, double to, bool output) {
  const double window = output && layer.kind == "orthros" ? 0 : layer.window;
  if (window <= 0) return (to * (to + 1) - from * (from + 1)) / 2;
  double sum = 0;
  for (double p = from; p < to; ++p) sum += std::min(p + 1, window);
  return sum;
}

Floor floor_of(const Model& model, double from, double to, double batch, bool decode) {
  const ModelInfo& info = model.info();
  const bool two = model.two_streams();
  const double rows = to - from, output_rows = two ? (decode ? rows : 1) : 0;
  Floor floor;
  const double head = 2.0 * info.hidden_size * info.vocab_size;
  floor.flops = batch * (2.0 * static_cast<double>(info.n_params_no_embedding) * (rows + output_rows) +
                         head * (decode ? rows : 1));
  floor.bytes = static_cast<double>(model.weight_bytes()) * (decode ? rows : 1);
  for (const LayerInfo& layer : info.layers) {
    const double pair = 4.0 * layer.n_heads * layer.head_dim;
    double pairs = keys_seen(layer, from, to, false);
    const double read = two ? keys_seen(layer, decode ? from : to - 1, to, true) : pairs;
    if (two) pairs += read;
    floor.flops += batch * pair * pairs;
    if (decode) floor.bytes += batch * read * 2.0 * layer.n_kv_heads * layer.head_dim * 2.0;
  }
  return floor;
}

struct Bench {
  std::unique_ptr<Context> context = cuda::make_cuda_context(0, DType::bf16);
  std::unique_ptr<Model> model;

  // One pass over `n` new tokens of each sequence; the arg max after the last of each.
  std::vector<int32_t> step(Cache& cache, const std::vector<SeqId>& seqs, const std::vector<std::vector<int32_t>>& ids,
                            RowKind kind, bool want) {
    std::vector<SeqView> views;
    std::vector<Row> rows;
    const bool two = model->two_streams();
    for (const Stream stream : {Stream::base, Stream::output}) {
      if (stream == Stream::output && !(two && want)) continue;
      for (size_t s = 0; s < seqs.size(); ++s) {
        const auto n = static_cast<int32_t>(ids[s].size());
        const int32_t from = cache.length(seqs[s]) - (stream == Stream::output ? n : 0);
        if (stream == Stream::base && !cache.extend(seqs[s], from + n)) std::abort();
        for (int32_t i = stream == Stream::output ? n - 1 : 0; i < n; ++i) {
          const bool wanted = want && i == n - 1 && (stream == Stream::output) == two;
          rows.push_back({ids[s][static_cast<size_t>(i)], from + i, static_cast<int32_t>(s), stream, kind,
                          wanted ? static_cast<int32_t>(s) : -1});
        }
      }
    }
    for (const SeqId seq : seqs) views.push_back(cache.view(seq, cache.length(seq)));
    const ForwardResult result =
        model->forward(*context, {rows, views, want ? static_cast<int32_t>(seqs.size()) : 0}, cache);
    std::vector<int32_t> next;
    if (!want) return next;
    std::vector<HeadQuery> queries;
    for (size_t s = 0; s < seqs.size(); ++s) queries.push_back({static_cast<int32_t>(s), {}, nullptr});
    for (const HeadResult& r : model->head(*context, result.hidden, queries)) next.push_back(r.argmax);
    return next;
  }

  void run(const std::string& name, int32_t prompt, int32_t n_decode, int32_t batch) {
    if (!model || model->info().name != name) {
      model.reset();
      const auto start = std::chrono::steady_clock::now();
      model = load_model(*context, name, {});
      std::printf("# %s loaded in %.1f s, %.2f GB\n", name.c_str(), seconds_since(start),
                  static_cast<double>(model->weight_bytes()) / 1e9);
    }
    for (int rep = 0; rep < 2; ++rep) {  // the first run warms up
      Cache cache(*context, model->state_specs(), DType::bf16, (prompt + n_decode) / kBlockTokens * batch + 2 * batch,
                  batch);
      std::vector<SeqId> seqs;
      Rng rng(1);
      std::vector<std::vector<int32_t>> ids(static_cast<size_t>(batch));
      for (int32_t b = 0; b < batch; ++b) seqs.push_back(cache.create());
      auto start = std::chrono::steady_clock::now();
      std::vector<int32_t> next;
      for (int32_t at = 0; at < prompt; at += kChunk / batch) {
        const int32_t n = std::min(kChunk / batch, prompt - at);
        for (auto& one : ids) {
          one.resize(static_cast<size_t>(n));
          for (int32_t& id : one) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(model->info().vocab_size)));
        }
        next = step(cache, seqs, ids, RowKind::prefill, at + n == prompt);
      }
      const double ttft = seconds_since(start);
      start = std::chrono::steady_clock::now();
      for (int32_t i = 0; i < n_decode; ++i) {
        for (int32_t b = 0; b < batch; ++b) ids[static_cast<size_t>(b)] = {next[static_cast<size_t>(b)]};
        next = step(cache, seqs, ids, RowKind::decode, true);
      }
      const double decode = seconds_since(start);
      if (rep == 0) continue;
      const double prefill_floor = floor_of(*model, 0, prompt, batch, false).seconds();
      std::printf("%-32s batch %d  prefill %6d  %8.3f s  %9.0f tok/s  %.2f x floor", name.c_str(), batch, prompt, ttft,
                  prompt * batch / ttft, ttft / prefill_floor);
      if (n_decode > 0) {
        const double decode_floor = floor_of(*model, prompt, prompt + n_decode, batch, true).seconds();
        std::printf("   decode %7.1f tok/s  %.2f x floor", n_decode * batch / decode, decode / decode_floor);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
};

}  // namespace
}  // namespace hayfork::engine

int main(int argc, char** argv) {
  if (argc < 5 || (argc - 1) % 4 != 0) {
    std::fprintf(stderr, "usage: model_cuda_bench MODEL PROMPT DECODE BATCH [MODEL PROMPT DECODE BATCH …]\n");
    return 2;
  }
  try {
    hayfork::engine::Bench bench;
    for (int i = 1; i + 3 < argc; i += 4)
      bench.run(argv[i], std::atoi(argv[i + 1]), std::atoi(argv[i + 2]), std::atoi(argv[i + 3]));
  } catch (const hayfork::Error& error) {
    std::fputs(error.render().c_str(), stderr);
    return hayfork::exit_code(error);
  }
}
