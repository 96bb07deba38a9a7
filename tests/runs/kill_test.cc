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

// One process's part: begins or resumes the one run of the file and writes what is missing. `pause` between samples;
// a byte goes to `started` when the first sample is about to be written.
void work(const std::filesystem::path& file, std::chrono::microseconds pause, int started = -1) {
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
  if (started >= 0 && ::write(started, "s", 1) != 1) _exit(2);
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

// Starts a worker and kills it: at a random moment of its start, or (`midway`) after it has begun to write.
// Returns whether it was killed before it had finished.
bool start_and_kill(const std::filesystem::path& file, std::chrono::microseconds when, bool midway) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    work(file, std::chrono::microseconds(200), ends[1]);
    _exit(0);
  }
  close(ends[1]);
  char byte = 0;
  if (midway && read(ends[0], &byte, 1) != 1) {  // the run was finished already
    waitpid(child, nullptr, 0);
    close(ends[0]);
    return false;
  }
  std::this_thread::sleep_for(when);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  close(ends[0]);
  return WIFSIGNALED(status);
}

TEST(Kill, AnyNumberOfKillsGiveTheSameRun) {
  test::TempDir folder;
  const auto file = folder.path() / "killed.db";
  std::mt19937 random(20261130);  // when to kill
  std::uniform_int_distribution<int> when_us(200, 25'000);
  int n_killed = 0;
  for (int n = 0; n < 200 && n_killed < 30; ++n) {
    if (!start_and_kill(file, std::chrono::microseconds(when_us(random)), n % 3 != 0)) {
      std::filesystem::remove(file);  // a busy machine let it finish: begin again, so that kills meet work
      continue;
    }
    ++n_killed;
    if (n % 5 != 0 || !std::filesystem::exists(file)) continue;
    Store store = open_store(file);  // whatever the moment, the file is sound
    EXPECT_EQ(store.check().faults, std::vector<std::string>{});
    for (const RunListRow& row : store.list_runs()) EXPECT_NE(row.status, "running");
  }
  EXPECT_EQ(n_killed, 30);
  const pid_t child = fork();
  if (child == 0) {
    work(file, {});
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  const auto whole = folder.path() / "whole.db";
  work(whole, {});
  Store killed = open_store(file);
  Store quiet = open_store(whole);
  const int64_t run = killed.find_run("@last").id;
  EXPECT_EQ(killed.list_runs().size(), 1u);
  EXPECT_EQ(killed.list_runs()[0].n_done, 2 * kSamples);
  EXPECT_EQ(killed.list_runs()[0].n_failed, 0);
  EXPECT_EQ(killed.list_runs()[0].status, "done");
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
