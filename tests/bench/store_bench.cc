// The results database at scale: writes runs of samples through the store and tells how many rows a second it took.
//   store_bench FILE RUNS SAMPLES [BIG]      BIG: two more runs of so many samples, named big-a and big-b
// scripts/scale_check.sh times the program's verbs on what it makes.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/digest.h"
#include "runs/provenance.h"
#include "runs/store.h"

namespace {

using namespace hayfork;  // NOLINT: a program of one file
using Clock = std::chrono::steady_clock;

runs::RunIdentity identity(int64_t number, const std::string& name) {
  runs::RunIdentity out;
  out.model.name = "model-" + std::to_string(number % 50);
  out.model.arch = number % 2 == 0 ? "full" : "swa";
  out.model.weights_sha256 = sha256_hex(out.model.name);
  out.model.tokenizer_sha256 = sha256_hex("tokenizer");
  out.model.n_params = 1'000'000'000;
  out.model.train_tokens = 1'000'000'000 * (number % 50 + 1);
  out.host = runs::this_host();
  out.plan_sha256 = sha256_hex("plan " + std::to_string(number) + name);
  out.dtype = "f32";
  if (!name.empty()) out.name = name;
  return out;
}

runs::PlannedTask task(const std::string& name, int64_t n) {
  runs::PlannedTask out;
  out.task.name = name;
  out.task.family = "made";
  out.task.version = "1";
  out.task.kind = "generate";
  out.task.primary_metric = "acc";
  out.task.config_json = "{}";
  out.task.protocol = "made/" + name + "/1";
  out.metric_defs = {{0, "acc", true, "mean", {}}};
  out.n_planned = n;
  return out;
}

runs::SampleRow sample(int64_t run_task, int64_t run, int64_t i, const std::string& document, bool graded) {
  runs::SampleRow row;
  row.run_task = run_task;
  row.doc_id = std::to_string(i);
  row.doc_sha256 = document;
  row.ctx_len = 1024 << (i % 6);
  row.depth_pct = static_cast<double>(i % 11) * 10;
  row.prompt_sha256 = document;
  row.prompt_tokens = *row.ctx_len;
  row.finish = "stop";
  row.gen_tokens = 8;
  const uint64_t draw = static_cast<uint64_t>(i + 1) * 2654435761u ^ static_cast<uint64_t>(run) * 40503u;
  row.score = graded ? static_cast<double>(draw % 1000003) / 1000003 : draw % 10 < 7 ? 1.0 : 0.0;
  row.answer = std::to_string(draw % 1000);
  row.target = "7";
  row.response = runs::StoredText{"The answer is " + *row.answer + "."};
  row.metrics = {{.metric = "acc", .value = row.score}};
  return row;
}

void write_run(runs::Store& store, int64_t number, int64_t n, const std::string& name, bool graded,
               const std::vector<std::string>& documents) {
  const runs::RunHandle handle =
      store.begin_run(identity(number, name), std::vector<runs::PlannedTask>{task(graded ? "graded" : "made", n)});
  for (int64_t i = 0; i < n; ++i)
    store.add_sample(sample(handle.run_tasks[0], number, i, documents[static_cast<size_t>(i)], graded));
  store.flush();
  runs::MetricRow metric;
  metric.metric = "acc";
  metric.value = 0.7;
  metric.n = n;
  store.set_metrics(handle.run_tasks[0], std::vector<runs::MetricRow>{metric});
  store.finish_task(handle.run_tasks[0], "done");
  store.finish_run(handle.run, {.status = "done", .exit_code = 0});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "store_bench FILE RUNS SAMPLES [BIG]\n");
    return 2;
  }
  const int64_t n_runs = std::atoll(argv[2]), n_samples = std::atoll(argv[3]), big = argc > 4 ? std::atoll(argv[4]) : 0;
  std::vector<std::string> documents;
  for (int64_t i = 0; i < std::max(n_samples, big); ++i)
    documents.push_back(sha256_hex("document " + std::to_string(i)));
  try {
    runs::Store store = runs::Store::open(argv[1], runs::OpenMode::create_or_open);
    const auto start = Clock::now();
    for (int64_t run = 0; run < n_runs; ++run) write_run(store, run, n_samples, "", false, documents);
    for (int64_t run = 0; run < 2 && big > 0; ++run) {
      write_run(store, n_runs + run, big, run == 0 ? "big-a" : "big-b", false, documents);
      write_run(store, n_runs + 2 + run, big, run == 0 ? "graded-a" : "graded-b", true, documents);
    }
    store.close();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const auto rows = static_cast<double>(n_runs * n_samples + 4 * big);
    std::printf("%.0f sample rows in %.1f s: %.0f rows/s\n", rows, seconds, rows / seconds);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.render().c_str());
    return 1;
  }
  return 0;
}
