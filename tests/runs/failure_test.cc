// Every way the file can fail: one clear error with exit code 6, and the file as it was.
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include <fmt/format.h>

#include "base/file_map.h"
#include "runs/store_impl.h"
#include "tests/runs/store_fixture.h"

namespace hayfork::runs {
namespace {

namespace fs = std::filesystem;

class FailureTest : public ::testing::Test {
 protected:
  fs::path file() const { return folder_.path() / "runs.db"; }
  static std::string bytes(const fs::path& path) { return read_file(path, ErrorSubject::database); }
  static void write(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }
  // Opens in both modes; checks that each is refused with exit code 6 and gives the first error.
  static Error refused(const fs::path& path) {
    StoreOptions quick;
    quick.busy_timeout_ms = 50;
    const Error error = error_of([&] { Store::open(path, OpenMode::create_or_open, {}, quick); });
    EXPECT_EQ(exit_code(error), 6) << error.what();
    EXPECT_EQ(exit_code(error_of([&] { Store::open(path, OpenMode::read_only, {}, quick); })), 6);
    EXPECT_NE(error.detail().where.find(path.string()), std::string::npos) << error.what();
    EXPECT_FALSE(error.detail().next.empty()) << error.what();
    return error;
  }
  RunHandle fill(const fs::path& path, int64_t n) {
    Store store = open_store(path);
    const RunHandle run = store.begin_run(identity(), std::vector{niah_task(n)});
    for (int64_t i = 0; i < n; ++i) store.add_sample(sample(run.run_tasks[0], i));
    store.close();
    return run;
  }
  test::TempDir folder_;
};

// Runs body in a child without root's rights; gives its exit status (0 when body returned true).
int as_nobody(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(3);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(FailureTest, AnEmptyFileIsTaken) {
  write(file(), "");
  EXPECT_NO_THROW(open_store(file()));
}

TEST_F(FailureTest, TextIsNoDatabase) {
  const std::string text = "this is a shopping list, and a long one at that: " + std::string(2000, '.');
  write(file(), text);
  EXPECT_EQ(refused(file()).code(), ErrorCode::corrupt);
  EXPECT_EQ(bytes(file()), text);
}

TEST_F(FailureTest, AShortFileIsNoDatabase) {
  write(file(), "SQLite format 3");
  refused(file());
  EXPECT_EQ(bytes(file()), "SQLite format 3");
}

TEST_F(FailureTest, AnotherProgramsDatabaseIsLeftAlone) {
  raw_sql(file(), "CREATE TABLE bookmarks(url TEXT); INSERT INTO bookmarks VALUES('x')");
  const std::string before = bytes(file());
  const Error error = refused(file());
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_NE(error.detail().why.find("another program's"), std::string::npos);
  EXPECT_EQ(bytes(file()), before);
}

TEST_F(FailureTest, AFolderAMissingFolderAndASpecialFileAreSaid) {
  EXPECT_NE(refused(folder_.path()).detail().why.find("folder"), std::string::npos);
  EXPECT_NE(refused(folder_.path() / "no" / "runs.db").detail().why.find("does not exist"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_.path() / "no"));
  EXPECT_NE(refused("/dev/null").detail().why.find("not an ordinary file"), std::string::npos);
  const Error missing = error_of([&] { Store::open(file(), OpenMode::read_only); });
  EXPECT_EQ(missing.code(), ErrorCode::not_found);
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(FailureTest, NamesWithMarksOfUrisWork) {
  const fs::path odd = folder_.path() / "a?b#c%41 d.db";
  fill(odd, 3);
  EXPECT_TRUE(fs::exists(odd));
  EXPECT_EQ(Store::open(odd, OpenMode::read_only).list_runs().size(), 1u);
}

TEST_F(FailureTest, DamagedPagesAreAnErrorNeverACrash) {
  fill(file(), 300);
  const std::string good = bytes(file());
  ASSERT_GT(good.size(), 100'000u);
  int n_seen = 0;
  for (size_t at = 0; at < good.size(); at += good.size() / 40) {
    std::string bad = good;
    for (size_t i = at; i < std::min(at + 1500, bad.size()); ++i) bad[i] = static_cast<char>(i * 31);
    write(file(), bad);
    try {
      Store store = Store::open(file(), OpenMode::read_only);
      if (!store.check().faults.empty()) ++n_seen;
      for (const RunListRow& run : store.list_runs()) {
        store.digest(run.run);
        for (const RunTaskView& task : store.show_run(run.run).tasks) {
          store.for_each_sample(task.row.id, {.texts = true}, [](const SampleRow&) {});
        }
      }
    } catch (const Error& error) {
      ++n_seen;
      EXPECT_EQ(exit_code(error), 6) << error.what();
    }
  }
  EXPECT_GT(n_seen, 20);  // a page of free space may be damaged unnoticed
}

TEST_F(FailureTest, ATruncatedFileIsAnError) {
  fill(file(), 300);
  fs::resize_file(file(), fs::file_size(file()) / 2);
  const Error error = error_of([&] {
    Store store = Store::open(file(), OpenMode::read_only);
    const auto faults = store.check().faults;
    if (!faults.empty()) throw Error(ErrorCode::corrupt, ErrorSubject::database, faults.front());
  });
  EXPECT_EQ(exit_code(error), 6);
}

TEST_F(FailureTest, TablesThatWereDroppedAreAnError) {
  fill(file(), 3);
  raw_sql(file(), "PRAGMA foreign_keys = OFF; DROP VIEW v_runs; DROP TABLE run_tags");
  const Error error = error_of([&] { Store::open(file(), OpenMode::read_only).list_runs(); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_EQ(exit_code(error), 6);
}

TEST_F(FailureTest, ALockedFileIsSaidAfterTheTimeout) {
  fill(file(), 3);
  int ready[2];
  int go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();  // another process holds the write lock
  if (child == 0) {
    raw_sql(file(),
            "BEGIN IMMEDIATE; INSERT INTO run_tags VALUES(1, 'x')");  // closing would roll back: keep a second one
    sqlite3* db = nullptr;
    sqlite3_open(file().c_str(), &db);
    sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; INSERT INTO run_tags VALUES(1, 'y')", nullptr,
                 nullptr, nullptr);
    char byte = 'r';
    if (::write(ready[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 1) _exit(1);
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  StoreOptions quick;
  quick.busy_timeout_ms = 100;
  const Error error = error_of([&] {
    Store store = Store::open(file(), OpenMode::create_or_open, {}, quick);
    store.add_tag(1, "z");
  });
  EXPECT_EQ(exit_code(error), 6);
  EXPECT_NE(error.summary().find("locked"), std::string::npos) << error.what();
  ASSERT_EQ(::write(go[1], &byte, 1), 1);
  waitpid(child, nullptr, 0);
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
  Store store = open_store(file());
  EXPECT_TRUE(store.check().faults.empty());
  EXPECT_TRUE(store.list_runs()[0].tags.empty());
}

TEST_F(FailureTest, AReadOnlyFolderCanBeReadAndNotWritten) {
  fill(file(), 3);
  fs::permissions(folder_.path(), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::group_read |
                                      fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec);
  fs::permissions(file(), fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  const std::string before = bytes(file());
  EXPECT_EQ(as_nobody([&] { return Store::open(file(), OpenMode::read_only).list_runs().size() == 1; }), 0);
  EXPECT_EQ(as_nobody([&] {
              const Error error = error_of([&] { open_store(file()); });
              return exit_code(error) == 6 && error.summary().find("cannot be written") != std::string::npos;
            }),
            0);
  EXPECT_EQ(as_nobody([&] { return exit_code(error_of([&] { open_store(folder_.path() / "new.db"); })) == 6; }), 0);
  fs::permissions(file(), fs::perms::owner_read | fs::perms::owner_write);
  fs::permissions(folder_.path(), fs::perms::owner_all | fs::perms::others_read | fs::perms::others_exec);
  EXPECT_EQ(bytes(file()), before);
  if (geteuid() != 0) return;  // the owner may read it
  EXPECT_EQ(as_nobody([&] {
              const Error error = error_of([&] { Store::open(file(), OpenMode::read_only); });
              return exit_code(error) == 6 && error.summary().find("cannot be opened") != std::string::npos;
            }),
            0);
}

// Adds samples until the store refuses; checks that what it holds is whole, and that a store with room goes on.
void fill_until_full(const fs::path& path, const StoreOptions& options) {
  int64_t n_offered = 0;
  int64_t run_task = 0;
  {
    Store store = open_store(path, options);
    const RunHandle run = store.begin_run(identity(), std::vector{niah_task(100'000)});
    run_task = run.run_tasks[0];
    const Error error = error_of([&] {
      for (; n_offered < 100'000; ++n_offered) {
        SampleRow row = sample(run_task, n_offered);
        std::string noise;  // does not compress
        for (uint64_t x = static_cast<uint64_t>(n_offered) + 1; noise.size() < 2000;
             x = x * 6364136223846793005u + 1442695040888963407u) {
          noise += static_cast<char>(x >> 56);
        }
        row.response = StoredText{noise};
        store.add_sample(std::move(row));
      }
      store.flush();
    });
    EXPECT_EQ(exit_code(error), 6);
    EXPECT_NE(error.summary().find("no space"), std::string::npos) << error.what();
    EXPECT_EQ(exit_code(error_of([&] { store.finish_run(run.run, {"done", 0, {}, {}, {}}); })), 6);  // it says so again
  }
  Store store = Store::open(path, OpenMode::read_only);
  EXPECT_TRUE(store.check().faults.empty());
  const int64_t n_stored = static_cast<int64_t>(store.stored_samples(run_task).size());
  EXPECT_GT(n_stored, 0);
  EXPECT_LE(n_stored, n_offered);
  EXPECT_EQ(n_stored % 64, 0);  // whole batches
  EXPECT_EQ(store.run_tasks(store.find_run("@last").id)[0].row.n_done, n_stored);
}

TEST_F(FailureTest, AFullFileKeepsWhatWasCommitted) {
  StoreOptions options;
  options.max_pages = 400;
  options.commit_seconds = 600;
  fill_until_full(file(), options);
  Store store = open_store(file());  // room again
  const int64_t run_task = store.run_tasks(store.find_run("@last").id)[0].row.id;
  store.add_sample(sample(run_task, 99'999));
  store.flush();
  EXPECT_TRUE(store.check().faults.empty());
}

TEST_F(FailureTest, AFullDiskKeepsWhatWasCommitted) {
  const fs::path disk = folder_.path() / "disk";
  fs::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root; AFullFileKeepsWhatWasCommitted covers the same path";
  }
  StoreOptions options;
  options.commit_seconds = 600;
  fill_until_full(disk / "runs.db", options);
  write(disk / "rest", std::string(4'000'000, 'x'));
  EXPECT_EQ(exit_code(error_of([&] { open_store(disk / "new.db"); })), 6);
  umount2(disk.c_str(), MNT_DETACH);
}

TEST_F(FailureTest, ANetworkFileSystemGetsARollbackJournalAndAWarning) {
  std::vector<Event> events;
  StoreOptions options;
  options.file_system = [](const fs::path&) { return int64_t{0x6969}; };
  {
    Store store = Store::open(
        file(), OpenMode::create_or_open, [&](const Event& event) { events.push_back(event); }, options);
    EXPECT_EQ(store.journal_mode(), "delete");
    const RunHandle run = store.begin_run(identity(), std::vector{niah_task(100)});
    for (int64_t i = 0; i < 100; ++i) store.add_sample(sample(run.run_tasks[0], i));
    store.flush();
    EXPECT_FALSE(fs::exists(file().string() + "-wal"));
  }
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].code, "HAY-W003");
  EXPECT_EQ(events[0].level, Event::Level::warn);
  {
    Store store = open_store(file());  // the same file on a local disk
    EXPECT_EQ(store.journal_mode(), "wal");
  }
  Store store = Store::open(file(), OpenMode::create_or_open, {}, options);  // and carried back
  EXPECT_EQ(store.journal_mode(), "delete");
  EXPECT_EQ(store.list_runs()[0].n_done, 100);
}

TEST_F(FailureTest, SeveralProcessesMayCreateTheSameFile) {
  for (int round = 0; round < 25; ++round) {
    SCOPED_TRACE(round);
    const auto path = folder_.path() / fmt::format("new{}.db", round);
    int gate[2];
    ASSERT_EQ(pipe(gate), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        char byte;
        close(gate[1]);
        [[maybe_unused]] const ssize_t n = read(gate[0], &byte, 1);  // all at once: when the parent closes its end
        try {
          Store store = open_store(path);
          const RunHandle run = store.begin_run(identity(), std::vector{niah_task(20)});
          for (int64_t k = 0; k < 20; ++k) store.add_sample(sample(run.run_tasks[0], k));
          store.close();
        } catch (const Error& error) {
          std::fprintf(stderr, "%s\n", error.what());
          _exit(1);
        }
        _exit(0);
      }
      children.push_back(child);
    }
    close(gate[0]);
    close(gate[1]);
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    Store store = open_store(path);
    EXPECT_EQ(store.list_runs().size(), 6u);
    EXPECT_TRUE(store.check().faults.empty());
  }
}

TEST(Provenance, TellsThisProcessFromDeadAndForeignOnes) {
  const ProcessIdentity self = this_process();
  EXPECT_EQ(liveness(self.pid, self.boot_id), Liveness::alive);
  EXPECT_EQ(liveness(self.pid, self.boot_id + "1"), Liveness::dead);  // the pid was given to another process
  EXPECT_EQ(liveness(999'999'999, self.boot_id), Liveness::dead);
  EXPECT_EQ(liveness(self.pid, "another-boot/pid:[1]/5"), Liveness::elsewhere);
  EXPECT_EQ(liveness(self.pid, ""), Liveness::elsewhere);
  const HostRow host = this_host();
  EXPECT_FALSE(host.hostname->empty());
  EXPECT_FALSE(host.cpu->empty());
  EXPECT_FALSE(host.os->empty());
}

}  // namespace
}  // namespace hayfork::runs
