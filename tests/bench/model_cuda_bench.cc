// Whole models of known shapes with made-up weights on a GPU, as `hayfork bench` measures them, in a program that needs
// little beside the engine: for tuning.
//   model_cuda_bench MODEL PROMPT DECODE BATCH …   e.g. random:qwen3-8b:0 8192 64 1; EAGER in MODEL's place: no graphs
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/cuda/devices.h"
#include "engine/floor.h"
#include "engine/measure.h"

namespace hayfork::engine {
namespace {

struct Bench {
  std::unique_ptr<Context> context = cuda::make_cuda_context(0, DType::bf16);
  std::unique_ptr<Model> model;
  bool graphs = true;

  void run(const std::string& name, const MeasureCase& what) {
    if (!model || model->info().name != name) {
      model.reset();
      const auto start = std::chrono::steady_clock::now();
      model = load_model(*context, name, {});
      std::printf("# %s loaded in %.1f s, %.2f GB\n", name.c_str(),
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                  static_cast<double>(model->weight_bytes()) / 1e9);
    }
    Measurer measurer(*model, *context, DType::bf16, 0, graphs);
    measurer.run(what);  // warms up
    const Measurement m = measurer.run(what);
    ModelInfo info = model->info();
    info.dtype = "bf16";
    const FloorRates rates = *known_rates("NVIDIA H200");
    const int64_t prompt = what.n_prompt, batch = what.batch;
    const std::vector<ExpertLoad> experts = model->expert_load(*context);
    std::printf("%-32s batch %d%s  prefill %6d  %8.3f s  %.2f x floor", name.c_str(), what.batch,
                graphs ? "" : " eager", what.n_prompt, m.prefill_ms / 1e3,
                m.prefill_ms / 1e3 / prefill_work(info, 0, prompt, batch, experts).seconds(rates));
    if (what.n_gen > 0) {
      const double floor = decode_work(info, prompt, prompt + what.n_gen, batch, experts).seconds(rates);
      std::printf("   decode %7.1f tok/s  %.2f x floor", what.n_gen * batch / m.decode_ms * 1e3,
                  m.decode_ms / 1e3 / floor);
    }
    std::printf("   busy %.3f  planned %.2f peak %.2f GB\n", m.busy, static_cast<double>(m.planned_bytes) / 1e9,
                static_cast<double>(m.peak_bytes) / 1e9);
    std::fflush(stdout);
  }
};

}  // namespace
}  // namespace hayfork::engine

int main(int argc, char** argv) {
  try {
    hayfork::engine::Bench bench;
    for (int i = 1; i < argc;) {
      if (std::string(argv[i]) == "EAGER" || std::string(argv[i]) == "GRAPHS") {
        bench.graphs = std::string(argv[i++]) == "GRAPHS";
        continue;
      }
      if (i + 3 >= argc) {
        std::fprintf(stderr, "usage: model_cuda_bench [EAGER|GRAPHS] MODEL PROMPT DECODE BATCH …\n");
        return 2;
      }
      bench.run(argv[i], {0, std::atoi(argv[i + 1]), std::atoi(argv[i + 2]), std::atoi(argv[i + 3])});
      i += 4;
    }
  } catch (const hayfork::Error& error) {
    std::fputs(error.render().c_str(), stderr);
    return hayfork::exit_code(error);
  }
}
