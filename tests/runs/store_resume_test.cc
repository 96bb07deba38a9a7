// Runs that go on: samples that failed, interrupted runs, processes that are gone.
#include <chrono>
#include <thread>

#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

TEST_F(StoreTest, ResumeRedoesFailedSamplesAndReplacesTheirRows) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(60)});
  for (int64_t i = 0; i < 60; ++i) store.add_sample(sample(run.run_tasks[0], i, false));
  const auto stored = store.stored_samples(run.run_tasks[0]);
  EXPECT_EQ(stored.size(), 58u);
  EXPECT_EQ(stored.count({"7", 0}), 0u);
  EXPECT_EQ(store.run_tasks(run.run)[0].row.n_failed, 2);
  for (const int64_t i : {7, 57}) store.add_sample(sample(run.run_tasks[0], i));
  store.flush();
  const RunTaskRow task = store.run_tasks(run.run)[0].row;
  EXPECT_EQ(task.n_failed, 0);
  EXPECT_EQ(task.n_done, 60);
  EXPECT_TRUE(store.check().faults.empty());
}

TEST_F(StoreTest, ASampleIsWrittenOnce) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(3)});
  store.add_sample(sample(run.run_tasks[0], 1));
  store.flush();
  store.add_sample(sample(run.run_tasks[0], 2));
  store.add_sample(sample(run.run_tasks[0], 1));
  EXPECT_EQ(error_of([&] { store.flush(); }).code(), ErrorCode::internal);
  EXPECT_EQ(error_of([&] { store.add_sample(sample(run.run_tasks[0], 3)); }).code(), ErrorCode::internal);
  EXPECT_EQ(error_of([&] { store.close(); }).code(), ErrorCode::internal);
  EXPECT_EQ(raw_sql(file(), "SELECT count(*) FROM samples"),
            std::vector<std::string>{"1"});  // the batch is whole or absent
}

TEST_F(StoreTest, ResumeChecksStatusProcessAndNumerics) {
  Store store = open_store(file());
  const RunHandle done = filled(store, 2);
  EXPECT_TRUE(store.resume_run(done.run, {}).finished);
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
  const Error other = error_of([&] { store.resume_run(run.run, {.numerics_id = "cuda/1"}); });
  EXPECT_EQ(exit_code(other), 2);
  EXPECT_NE(other.detail().why.find("cuda/1"), std::string::npos);
  const ResumeState state = store.resume_run(run.run, {.numerics_id = "cuda/1", .allow_mixed_numerics = true});
  EXPECT_EQ(state.config_json, identity().config_json);
  EXPECT_EQ(state.handle.run_tasks, run.run_tasks);
  EXPECT_EQ(store.show_run(run.run).events.at(0).code, "HAY-W005");
  const int64_t attempt = store.begin_attempt(run.run, {.shard = 1});
  EXPECT_EQ(exit_code(error_of([&] { store.resume_run(run.run, {.shard = 1}); })), 6);  // this very process works on it
  EXPECT_FALSE(store.resume_run(run.run, {.shard = 0}).finished);
  store.finish_attempt(attempt, {"interrupted", 1.0, {}, {}, {}});
  EXPECT_FALSE(store.resume_run(run.run, {.shard = 1}).finished);
  RunIdentity imported = identity();
  imported.status = "imported";
  const RunHandle theirs = store.begin_run(imported, std::vector{niah_task(2)});
  EXPECT_EQ(exit_code(error_of([&] { store.resume_run(theirs.run, {}); })), 2);
}

TEST_F(StoreTest, AnInterruptedRunGoesOnWithTheNextAttempt) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
  store.begin_attempt(run.run, {});
  EXPECT_EQ(store.shown_status(store.find_run("@last")), "running");
  // As a kill leaves it: the pid names no process with this start time any more.
  raw_sql(file(), "UPDATE run_attempts SET boot_id = boot_id || '9'; UPDATE runs SET boot_id = boot_id || '9'");
  EXPECT_EQ(store.shown_status(store.find_run("@last")), "interrupted");
  EXPECT_EQ(store.list_runs()[0].status, "interrupted");
  RunFilter filter;
  filter.status = "interrupted";
  EXPECT_EQ(store.list_runs(filter).size(), 1u);
  store.resume_run(run.run, {});
  store.begin_attempt(run.run, {});
  const auto attempts = store.show_run(run.run).attempts;
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].end_reason, "lost");
  EXPECT_EQ(attempts[1].attempt, 2);
  EXPECT_EQ(store.shown_status(store.find_run("@last")), "running");
}

TEST_F(StoreTest, ASilentProcessOfAnotherMachineCountsAsGone) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
  store.begin_attempt(run.run, {});
  raw_sql(file(), "UPDATE run_attempts SET boot_id = 'another/machine/1'");
  EXPECT_EQ(store.shown_status(store.find_run(run.run_id)), "running");
  raw_sql(file(), "UPDATE run_attempts SET last_beat = '2020-01-01T00:00:00Z'");
  EXPECT_EQ(store.shown_status(store.find_run(run.run_id)), "interrupted");
}

TEST_F(StoreTest, TheWriterBeatsWhileTheRunIsQuiet) {
  StoreOptions options;
  options.beat_seconds = 0.02;
  Store store = open_store(file(), options);
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(2)});
  store.begin_attempt(run.run, {});
  raw_sql(file(), "UPDATE runs SET last_beat = NULL");
  for (int i = 0; i < 200 && !store.find_run(run.run_id).last_beat; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(store.find_run(run.run_id).last_beat);
}

}  // namespace
}  // namespace hayfork::runs
