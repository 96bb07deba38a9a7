// Orthros beside the Transformer of the same shape, through the scheduler as the program runs them: times and rows.
//   orthros_cuda_bench table    TTFT, end to end, output and decode tokens a second of two sequences
//                      cell     one of these: transformer, orthros, hybrid or orthros-h, 0 to 2
//                      bits     the sweep at 32K, every depth compared with its answer without reuse
//                      curve    prefill of one sequence: MODEL LENGTH …
//                      decode   MODEL LENGTH STEPS BATCH: time of a decode step
//                      sweep    eleven needle depths of one haystack, overwritten and inserted, beside single prefills
//                      parked   prefill of MODEL LENGTH with GB of keys on the device and the others parked
//                      sparse   scoring 78 of 13,300 positions beside all of them
// Several parts may be asked for; a part's own arguments follow it. Weights are made up: times do not depend on them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "engine/cuda/devices.h"
#include "engine/model.h"
#include "engine/scheduler.h"

namespace hayfork::engine {
namespace {

constexpr const char* kOrthros = "random:qwen3-8b+orthros128:0";

// The models of the paper's Table 4; the first two are `table`'s.
struct Contestant {
  const char *word, *title, *model;
};
constexpr Contestant kContestants[] = {{"transformer", "Transformer", "random:qwen3-8b:0"},
                                       {"orthros", "Orthros", kOrthros},
                                       {"hybrid", "linear hybrid", "random:qwen3.5-9b:0"},
                                       {"orthros-h", "Orthros-H", "random:qwen3.5-9b+orthros128:0"}};

struct Measured {
  double seconds = 0, prefill_s = 0, decode_s = 0;
  int64_t rows_base = 0, rows_output = 0, parked_bytes = 0;
  std::vector<std::vector<float>> values;  // log-probabilities or NLL, by request
};

class Bench {
 public:
  void use(const std::string& name) {
    if (model_ != nullptr && model_->info().name == name) return;
    model_.reset();
    const auto start = std::chrono::steady_clock::now();
    model_ = load_model(*context_, name, {});
    std::printf("# %s loaded in %.1f s\n", name.c_str(), since(start));
  }

  // `gigabytes`: of cache and scratch, 0: what there is.
  Measured run(const std::vector<Request>& requests, bool reuse = true, double gigabytes = 0) {
    SchedulerOptions options;
    options.memory.kv_dtype = DType::bf16;
    options.memory.bytes = static_cast<int64_t>(gigabytes * 1e9);
    options.prefix_reuse = reuse;
    options.order = Order::given;
    options.allow_beyond_window = true;
    Scheduler scheduler(*model_, *context_, nullptr, options);
    Measured m;
    m.values.resize(requests.size());
    const auto start = std::chrono::steady_clock::now();
    scheduler.answer(
        requests,
        [&](const Answer& answer) {
          if (const auto* failure = std::get_if<Failure>(&answer.result)) {
            throw Error(failure->code, ErrorSubject::model, failure->message);
          }
          const auto* generated = std::get_if<GenerateAnswer>(&answer.result);
          m.values[answer.index] = generated ? generated->logprobs : std::get<NllAnswer>(answer.result).nll;
        },
        StopFlag{});
    m.seconds = since(start);
    const EngineStats& stats = scheduler.stats();
    m.prefill_s = stats.prefill_ms / 1e3;
    m.decode_s = stats.decode_ms / 1e3;
    m.rows_base = stats.rows_base;
    m.rows_output = stats.rows_output;
    m.parked_bytes = scheduler.cache() != nullptr ? scheduler.cache()->parked_bytes() : 0;
    return m;
  }

  std::vector<int32_t> ids(int32_t n, uint64_t seed) const {
    Rng rng(seed);
    std::vector<int32_t> all(static_cast<size_t>(n));
    for (int32_t& id : all) id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(model_->info().vocab_size)));
    return all;
  }

 private:
  static double since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::unique_ptr<Context> context_ = cuda::make_cuda_context(0, DType::bf16);
  std::unique_ptr<Model> model_;
};

GenerateRequest generate(std::vector<int32_t> prompt, int32_t n) {
  return {.prompt = std::move(prompt), .max_new_tokens = n, .stops = {}, .ignore_eos = true, .sampling = {}};
}

// Table 4 of the paper (arXiv 2610.13735; one H100): TTFT s, end to end s, output and decode tokens a second.
struct Cell {
  int32_t in, out, steps;  // decode steps measured; the rest is counted at their pace
  double paper[4][4];      // by contestant
};
constexpr Cell kCells[] = {
    {131072,
     128,
     127,
     {{77.249, 84.911, 3.0, 33.7},
      {17.016, 24.647, 10.4, 33.3},
      {25.566, 28.130, 9.1, 98.8},
      {10.184, 12.771, 20.0, 97.3}}},
    {130048,
     1024,
     64,
     {{76.160, 137.715, 14.9, 33.2},
      {17.301, 76.345, 26.8, 33.7},
      {25.173, 46.308, 44.2, 96.8},
      {9.882, 30.724, 66.7, 105.8}}},
    {122880,
     8192,
     64,
     {{67.770, 548.357, 29.9, 34.1},
      {15.210, 488.830, 33.5, 34.6},
      {22.747, 189.302, 86.5, 98.3},
      {9.302, 173.887, 94.2, 99.5}}},
};

void cell(Bench& bench, const Contestant& who, const Cell& cell) {
  bench.use(who.model);
  bench.run({generate(bench.ids(4096, 9), 4)});  // warms up
  const Measured m =
      bench.run({generate(bench.ids(cell.in, 1), cell.steps + 1), generate(bench.ids(cell.in, 2), cell.steps + 1)});
  const double step = m.decode_s / cell.steps, e2e = m.prefill_s + step * (cell.out - 1);
  const double* paper = cell.paper[&who - kContestants];
  std::printf(
      "%-13s two sequences %7d in %5d out: TTFT %.3f s, end to end %.3f s, output %.1f tok/s, decode %.1f tok/s "
      "(paper, H100: %.3f %.3f %.1f %.1f); %d steps measured, wall %.3f s\n",
      who.title, cell.in, cell.out, m.prefill_s, e2e, 2 * cell.out / e2e, 2 / step, paper[0], paper[1], paper[2],
      paper[3], cell.steps, m.seconds);
  std::fflush(stdout);
}

void curve(Bench& bench, const std::string& name, int32_t length, double gigabytes) {
  bench.use(name);
  bench.run({generate(bench.ids(4096, 9), 1)});
  const Measured m = bench.run({generate(bench.ids(length, 1), 1)}, true, gigabytes);
  std::printf(
      "prefill %-32s %8d tokens  %8.3f s (%.3f with its cache made)  %9.0f tok/s  rows %ld + %ld  parked %.2f GB  "
      "first token %.6f\n",
      name.c_str(), length, m.prefill_s, m.seconds, length / m.prefill_s, static_cast<long>(m.rows_base),
      static_cast<long>(m.rows_output), static_cast<double>(m.parked_bytes) / 1e9, static_cast<double>(m.values[0][0]));
  std::fflush(stdout);
}

void decode(Bench& bench, const std::string& name, int32_t length, int32_t steps, int32_t batch) {
  bench.use(name);
  bench.run({generate(bench.ids(4096, 9), 4)});
  std::vector<Request> requests;
  for (int32_t i = 0; i < batch; ++i) requests.emplace_back(generate(bench.ids(length, 1 + i), steps + 1));
  const Measured m = bench.run(requests);
  std::printf("decode %-32s %8d tokens, %d sequences: %d steps of %.3f ms, %.1f tok/s; wall %.3f s\n", name.c_str(),
              length, batch, steps, m.decode_s / steps * 1e3, batch * steps / m.decode_s, m.seconds);
  std::fflush(stdout);
}

// `all`: every depth is computed again without reuse, else one.
void sweep(Bench& bench, int32_t length, bool all_again) {
  constexpr int32_t kDepths = 11, kNeedle = 16, kQuestion = 24;
  bench.use(kOrthros);
  bench.run({generate(bench.ids(4096, 9), 1)});
  const std::vector<int32_t> haystack = bench.ids(length - kQuestion, 1), needle = bench.ids(kNeedle, 2),
                             question = bench.ids(kQuestion, 3);
  const Measured one = bench.run({generate(bench.ids(length, 4), 1)});
  for (const bool insert : {false, true}) {
    std::vector<Request> requests;
    for (int32_t d = 0; d < kDepths; ++d) {
      const auto at = static_cast<std::ptrdiff_t>(int64_t{length - kQuestion - kNeedle} * d / (kDepths - 1));
      std::vector<int32_t> ids(haystack.begin(), haystack.begin() + at);
      ids.insert(ids.end(), needle.begin(), needle.end());
      ids.insert(ids.end(), haystack.begin() + at + (insert ? 0 : kNeedle), haystack.end());
      ids.resize(static_cast<size_t>(length - kQuestion));
      ids.insert(ids.end(), question.begin(), question.end());
      requests.emplace_back(generate(std::move(ids), 1));
    }
    const Measured all = bench.run(requests);
    bool same = true;
    for (size_t d = all_again ? 0 : 5; d < (all_again ? requests.size() : 6); ++d) {
      same = same && bench.run({requests[d]}, false).values[0] == all.values[d];
    }
    std::printf(
        "sweep of %d depths, %d tokens, %s: %ld + %ld rows = %.3f prefills of rows; %.3f s = %.3f of 11 x %.3f s; "
        "bits %s\n",
        kDepths, length, insert ? "inserted" : "overwritten", static_cast<long>(all.rows_base),
        static_cast<long>(all.rows_output), static_cast<double>(all.rows_base) / length, all.seconds,
        all.seconds / (kDepths * one.seconds), one.seconds, same ? "equal" : "DIFFER");
    std::fflush(stdout);
  }
}

void sparse(Bench& bench) {
  constexpr int32_t kTokens = 13300, kAsked = 78;
  bench.use(kOrthros);
  const std::vector<int32_t> ids = bench.ids(kTokens, 5);
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < kAsked; ++i) positions.push_back(1 + i * (kTokens - 2) / (kAsked - 1));
  bench.run({NllRequest{ids, positions}});
  const Measured few = bench.run({NllRequest{ids, positions}}), all = bench.run({NllRequest{ids, {}}});
  bool same = true;
  for (size_t i = 0; i < positions.size(); ++i)
    same = same && few.values[0][i] == all.values[0][static_cast<size_t>(positions[i] - 1)];
  std::printf("sparse scoring, %d of %d: %ld + %ld rows, %.3f s; full: %ld + %ld rows, %.3f s; ratio %.3f; bits %s\n",
              kAsked, kTokens, static_cast<long>(few.rows_base), static_cast<long>(few.rows_output), few.seconds,
              static_cast<long>(all.rows_base), static_cast<long>(all.rows_output), all.seconds,
              few.seconds / all.seconds, same ? "equal" : "DIFFER");
}

}  // namespace
}  // namespace hayfork::engine

int main(int argc, char** argv) {
  using namespace hayfork::engine;
  try {
    Bench bench;
    for (int i = 1; i < argc; ++i) {
      const std::string part = argv[i];
      if (part == "table") {
        for (size_t who = 0; who < 2; ++who) {
          for (const Cell& one : kCells) cell(bench, kContestants[who], one);
        }
      } else if (part == "cell" && i + 2 < argc) {
        const auto* const who =
            std::find_if(std::begin(kContestants), std::end(kContestants),
                         [&](const Contestant& c) { return std::strcmp(argv[i + 1], c.word) == 0; });
        if (who == std::end(kContestants)) {
          std::fprintf(stderr, "no such model: %s\n", argv[i + 1]);
          return 2;
        }
        cell(bench, *who, kCells[std::clamp(std::atoi(argv[i + 2]), 0, 2)]);
        i += 2;
      } else if (part == "sweep") {
        sweep(bench, 131072, false);
      } else if (part == "bits") {
        sweep(bench, 32768, true);
      } else if (part == "sparse") {
        sparse(bench);
      } else if (part == "curve" && i + 2 < argc) {
        curve(bench, argv[i + 1], std::atoi(argv[i + 2]), 0);
        i += 2;
      } else if (part == "decode" && i + 4 < argc) {
        decode(bench, argv[i + 1], std::atoi(argv[i + 2]), std::max(1, std::atoi(argv[i + 3])), std::atoi(argv[i + 4]));
        i += 4;
      } else if (part == "parked" && i + 3 < argc) {
        curve(bench, argv[i + 1], std::atoi(argv[i + 2]), std::atof(argv[i + 3]));
        i += 3;
      } else {
        std::fprintf(stderr,
                     "usage: orthros_cuda_bench [table] [cell MODEL N] [bits] [sweep] [sparse] [curve MODEL LENGTH] "
                     "[decode MODEL LENGTH STEPS BATCH] [parked MODEL LENGTH GB] …\n");
        return 2;
      }
    }
  } catch (const hayfork::Error& error) {
    std::fputs(error.render().c_str(), stderr);
    return hayfork::exit_code(error);
  }
}
