// The promise "never lost": a writer killed with SIGKILL at random times, resumed each time, ends with the digest of a
// run that nobody disturbed; and how fast samples are written.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

constexpr int64_t kSamples = 1500;

// One process's part: begins or resumes the one run of the file and writes what is missing. `pause` between samples.
void work(const std::filesystem::path& file, std::chrono::microseconds pause) {
  StoreOptions options;
  options.commit_samples = 8;
  options.commit_seconds = 0.005;
  Store store = open_store(file, options);
  const auto runs = store.runs_of_plan("plan-1");
  RunHandle run;
  if (runs.empty()) {
    run = store.begin_run(identity(), std::vector{niah_task(kSamples), choice_task(kSamples)});
  } else {
    const ResumeState state = store.resume_run(runs.front().id, {.numerics_id = "cpu/1"});
    if (state.finished) return;
    run = state.handle;
  }
  const int64_t attempt = store.begin_attempt(run.run, {});
  for (const int64_t run_task : run.run_tasks) {
    const auto stored = store.stored_samples(run_task);
    for (int64_t i = 0; i < kSamples; ++i) {
      if (stored.count({std::to_string(i), 0}) != 0) continue;
      SampleRow row = sample(run_task, i, stored.size() > 100);  // early attempts also leave failed rows
      row.attempt = attempt;
      row.batch_size = attempt;  // may differ, and must not count
      store.add_sample(std::move(row));
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
    }
    store.flush();
    for (int64_t i = 7; i < kSamples; i += 50) {  // what is still failed is done again
      if (store.stored_samples(run_task).count({std::to_string(i), 0}) == 0) store.add_sample(sample(run_task, i));
    }
    store.finish_task(run_task, "done", 0.1);
    store.set_metrics(run_task,
                      std::vector<MetricRow>{{0, "", "acc", "none", 2.0 / 3, kSamples, {}, 0.1, 0.9, "wilson"}});
  }
  store.finish_attempt(attempt, {"done", 0.1, {}, {}, 0});
  store.finish_run(run.run, {"done", 0, {}, {}, {}});
  store.close();
}

TEST(Kill, AnyNumberOfKillsGiveTheSameRun) {
  test::TempDir folder;
  const auto file = folder.path() / "killed.db";
  std::mt19937 random(20261130);  // when to kill
  std::uniform_int_distribution<int> when_us(200, 25'000);
  int n_killed = 0;
  for (int n = 0; n < 60; ++n) {
    const bool last = n_killed >= 25;
    const pid_t child = fork();
    if (child == 0) {
      work(file, std::chrono::microseconds(last ? 0 : 20));
      _exit(0);
    }
    if (!last) {
      std::this_thread::sleep_for(std::chrono::microseconds(when_us(random)));
      kill(child, SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    n_killed += WIFSIGNALED(status) ? 1 : 0;
    if (!last && std::filesystem::exists(file) && n % 5 == 0) {  // whatever the moment, the file is sound
      Store store = open_store(file);
      EXPECT_EQ(store.check().faults, std::vector<std::string>{});
      const auto rows = store.list_runs();
      if (!rows.empty() && WIFSIGNALED(status)) {
        EXPECT_EQ(rows[0].status, "interrupted");
      }
    }
    if (last) {
      ASSERT_EQ(status, 0);
      break;
    }
  }
  EXPECT_GE(n_killed, 20);
  const auto whole = folder.path() / "whole.db";
  work(whole, {});
  Store killed = open_store(file);
  Store quiet = open_store(whole);
  const int64_t run = killed.find_run("@last").id;
  EXPECT_EQ(killed.list_runs().size(), 1u);
  EXPECT_EQ(killed.list_runs()[0].n_done, 2 * kSamples);
  EXPECT_EQ(killed.list_runs()[0].n_failed, 0);
  EXPECT_EQ(killed.list_runs()[0].status, "done");
  EXPECT_GT(killed.show_run(run).attempts.size(), 5u);
  EXPECT_EQ(killed.digest(run).sha256, quiet.digest(quiet.find_run("@last").id).sha256);
  EXPECT_EQ(killed.digest(run).n_samples, 2 * kSamples);
  EXPECT_TRUE(killed.check().faults.empty());
  EXPECT_TRUE(killed.resume_run(run, {}).finished);
}

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

TEST(Speed, WritesFiveThousandSamplesASecond) {
  test::TempDir folder;
  Store store = open_store(folder.path() / "runs.db");
  constexpr int64_t kMany = 20'000;
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(kMany)});
  std::vector<SampleRow> rows;
  for (int64_t i = 0; i < kMany; ++i) rows.push_back(sample(run.run_tasks[0], i));
  const double cpu = cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  for (SampleRow& row : rows) store.add_sample(std::move(row));
  store.flush();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double used = cpu_seconds() - cpu;
  RecordProperty("samples_per_second", static_cast<int>(kMany / wall));
  std::printf("%lld samples: %.0f a second (%.0f a processor second)\n", static_cast<long long>(kMany), kMany / wall,
              kMany / used);
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "speed under a sanitizer says nothing";
#endif
  EXPECT_GE(kMany / used, 5000);  // processor time: the machine may be busy with other tests
}

}  // namespace
}  // namespace hayfork::runs
