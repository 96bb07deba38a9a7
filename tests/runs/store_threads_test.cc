// A store that is read, written and closed at once.
#include <atomic>
#include <thread>

#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

TEST_F(StoreTest, ReadersSeeWholeBatchesWhileARunWrites) {
  StoreOptions options;
  options.commit_samples = 16;
  options.commit_seconds = 600;  // batches by number alone, however busy the machine
  Store store = open_store(file(), options);
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(3000)});
  std::atomic<bool> stop{false};
  std::atomic<int> n_reads{0};
  std::thread reader([&] {
    Store other = Store::open(file(), OpenMode::read_only);
    int64_t last = 0;
    while (!stop || n_reads == 0) {
      const RunTaskRow task = other.run_tasks(run.run)[0].row;
      EXPECT_GE(task.n_done, last);
      EXPECT_EQ(task.n_done % 16, task.n_done == 3000 ? 3000 % 16 : 0);
      last = task.n_done;
      ++n_reads;
    }
  });
  for (int64_t i = 0; i < 3000; ++i) store.add_sample(sample(run.run_tasks[0], i));
  store.flush();
  stop = true;
  reader.join();
  EXPECT_GT(n_reads, 0);
  EXPECT_EQ(store.run_tasks(run.run)[0].row.n_done, 3000);
}

TEST_F(StoreTest, TakesSamplesFromSeveralThreads) {
  Store store = open_store(file());
  const RunHandle run = store.begin_run(identity(), std::vector{niah_task(400)});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = t; i < 400; i += 4) store.add_sample(sample(run.run_tasks[0], i));
      store.flush();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store.stored_samples(run.run_tasks[0]).size(), 400u);
}

TEST_F(StoreTest, AClosedFileIsComplete) {
  {
    Store store = open_store(file());
    filled(store, 500);
  }
  EXPECT_FALSE(std::filesystem::exists(file().string() + "-wal"));
  const auto copy = folder_.path() / "copy.db";
  std::filesystem::copy_file(file(), copy);
  Store store = Store::open(copy, OpenMode::read_only);
  EXPECT_EQ(store.run_tasks(store.find_run("@last").id)[0].row.n_done, 500);
}

TEST_F(StoreTest, ReadOnlyNeverWrites) {
  {
    Store store = open_store(file());
    filled(store, 5);
  }
  Store store = Store::open(file(), OpenMode::read_only);
  const int64_t run = store.find_run("@last").id;
  EXPECT_EQ(exit_code(error_of([&] { store.add_tag(run, "x"); })), 6);
  EXPECT_EQ(exit_code(error_of([&] { store.begin_run(identity(), {}); })), 6);
  EXPECT_THROW(store.add_sample(sample(1, 1)), Error);
}

TEST_F(StoreTest, ClosedAndMovedStoresBehave) {
  Store store = open_store(file());
  Store moved = std::move(store);
  const RunHandle run = filled(moved, 2);
  moved.close();
  moved.close();
  EXPECT_EQ(error_of([&] { moved.find_run(run.run_id); }).code(), ErrorCode::internal);
}

}  // namespace
}  // namespace hayfork::runs
