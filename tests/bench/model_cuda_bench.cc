// Whole models of known shapes with made-up weights on a GPU, as `hayfork bench` measures them, in a program that needs
// little beside the engine: for tuning, and for scripts/gpu_report.py. One JSON object a line.
//   model_cuda_bench MODEL PROMPT DECODE BATCH …   e.g. random:qwen3-8b:0 8192 64 1
// Words in a MODEL's place: eager and graphs switch between the two; choices MODEL N scores four endings of N documents
// (a 0-shot multiple-choice run as the engine sees it) through the scheduler.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "engine/cuda/devices.h"
#include "engine/floor.h"
#include "engine/measure.h"
#include "engine/scheduler.h"

namespace hayfork::engine {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Bench {
  std::unique_ptr<Context> context = cuda::make_cuda_context(0, DType::bf16);
  std::unique_ptr<Model> model;
  bool graphs = true;

  void load(const std::string& name) {
    if (model && model->info().name == name) return;
    model.reset();
    const auto start = std::chrono::steady_clock::now();
    model = load_model(*context, name, {});
    fmt::print("{{\"loaded\":\"{}\",\"seconds\":{:.2f},\"weight_bytes\":{}}}\n", name, seconds_since(start),
               model->weight_bytes());
  }

  void measure(const std::string& name, const MeasureCase& what) {
    load(name);
    Measurer measurer(*model, *context, DType::bf16, 0, graphs);
    measurer.run(what);  // warms up
    const Measurement m = measurer.run(what);
    ModelInfo info = model->info();
    info.dtype = "bf16";
    const FloorRates rates = *known_rates("NVIDIA H200");
    const int64_t prompt = what.n_prompt, end = prompt + what.n_gen;
    const std::vector<ExpertLoad> experts = model->expert_load(*context);
    const double prefill_floor = prefill_work(info, 0, prompt, what.batch, experts).seconds(rates) * 1e3;
    fmt::print("{{\"model\":\"{}\",\"batch\":{},\"graphs\":{},\"prompt\":{},\"prefill_s\":{:.4f},\"prefill_x\":{:.3f}",
               name, what.batch, graphs, prompt, m.prefill_ms / 1e3, m.prefill_ms / prefill_floor);
    if (what.n_gen > 0) {
      const double floor = decode_work(info, prompt, end, what.batch, experts).seconds(rates) * 1e3;
      fmt::print(",\"gen\":{},\"decode_tok_s\":{:.1f},\"decode_x\":{:.3f}", what.n_gen,
                 what.n_gen * what.batch / m.decode_ms * 1e3, m.decode_ms / floor);
    }
    fmt::print(",\"busy\":{:.4f},\"planned_bytes\":{},\"peak_bytes\":{}}}\n", m.busy, m.planned_bytes, m.peak_bytes);
    std::fflush(stdout);
  }

  void choices(const std::string& name, int n) {
    load(name);
    Rng rng(1);
    const auto ids = [&](uint64_t least, uint64_t spread) {
      std::vector<int32_t> list(least + rng.below(spread));
      for (int32_t& id : list) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(model->info().vocab_size)));
      return list;
    };
    for (int rep = 0; rep < 2; ++rep) {  // the first warms up
      std::vector<Request> requests;
      for (int i = 0; i < n; ++i) {
        ScoreRequest r{.context = ids(30, 90), .continuations = {}};
        for (int c = 0; c < 4; ++c) r.continuations.push_back(ids(2, 20));
        requests.push_back(std::move(r));
      }
      SchedulerOptions options;
      options.memory.kv_dtype = DType::bf16;
      Scheduler scheduler(*model, *context, nullptr, options);
      const auto start = std::chrono::steady_clock::now();
      scheduler.answer(
          requests, [](const Answer&) {}, StopFlag{});
      const double seconds = seconds_since(start);
      if (rep == 0) continue;
      const EngineStats stats = scheduler.stats();
      fmt::print(
          "{{\"model\":\"{}\",\"documents\":{},\"seconds\":{:.3f},\"busy\":{:.4f},\"rows\":{},\"passes\":{},"
          "\"planned_bytes\":{},\"peak_bytes\":{}}}\n",
          name, n, seconds, stats.busy, stats.rows_base, stats.n_passes, stats.planned_bytes, stats.peak_bytes);
    }
    std::fflush(stdout);
  }
};

}  // namespace
}  // namespace hayfork::engine

int main(int argc, char** argv) {
  try {
    hayfork::engine::Bench bench;
    for (int i = 1; i < argc;) {
      const std::string word = argv[i];
      if (word == "eager" || word == "graphs") {
        bench.graphs = word == "graphs";
        ++i;
      } else if (word == "choices" && i + 2 < argc) {
        bench.choices(argv[i + 1], std::atoi(argv[i + 2]));
        i += 3;
      } else if (i + 3 < argc) {
        bench.measure(word, {0, std::atoi(argv[i + 1]), std::atoi(argv[i + 2]), std::atoi(argv[i + 3])});
        i += 4;
      } else {
        std::fprintf(stderr, "usage: model_cuda_bench [eager|graphs] MODEL PROMPT DECODE BATCH … [choices MODEL N]\n");
        return 2;
      }
    }
  } catch (const hayfork::Error& error) {
    std::fputs(error.render().c_str(), stderr);
    return hayfork::exit_code(error);
  }
}
