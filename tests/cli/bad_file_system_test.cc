// File systems with odd manners, as network file systems have them: no shared memory, no locks, no mapping of files, a
// flush that fails. The run goes well with a warning, or ends with one error, and never spoils the database.
#include <chrono>

#include "tests/support/cli_test.h"
#include "tests/support/sanitizer.h"

namespace hayfork::cli {
namespace {

class BadFileSystemTest : public test::BadInputTest {
 protected:
  void SetUp() override {
    if (test::kSanitized) GTEST_SKIP() << "the address sanitizer must be the first library of a program";
  }
  // The program where files whose path holds `part` behave in this manner.
  ProcessResult odd(const std::string& manner, const std::string& part, const std::vector<std::string>& arguments,
                    const std::string& input = "") const {
    ProcessOptions options;
    options.cwd = folder_.path();
    options.input = input;
    options.environment = {
        {"HAYFORK_CACHE", path("cache")},
        {"HAYFORK_TEST_FS", manner},
        {"HAYFORK_TEST_FS_PATH", part},
        {"LD_PRELOAD", (test::binary().parent_path().parent_path() / "tests" / "odd_file_system.so").string()}};
    return test::hayfork(arguments, options);
  }
  ProcessResult odd_run(const std::string& manner) const {
    return odd(manner, manner.starts_with("nfs") ? folder_.path().string() : "runs.db",
               {"run", "--model", demo(), "--tasks", "niah", "--lengths", "256", "--depths", "0,100", "--samples", "1",
                "--threads", "1", "--db", path("runs.db")});
  }
};

TEST_F(BadFileSystemTest, ANetworkFileSystemIsWarnedOfAndUsed) {
  const ProcessResult result = odd_run("nfs");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("network file system"));
  EXPECT_FALSE(fs::exists(path("runs.db-wal")));
  expect_intact();
  EXPECT_EQ(odd("nfs", folder_.path().string(), {"show", "@last", "--db", path("runs.db")}).status, 0);
}

TEST_F(BadFileSystemTest, WithoutSharedMemoryARollbackJournalIsUsed) {
  for (const char* before : {"no file", "its own", "of a local disk"}) {
    SCOPED_TRACE(before);
    if (before == std::string("of a local disk")) {
      ASSERT_EQ(niah().status, 0);  // leaves it in WAL mode
    }
    const ProcessResult result = odd_run("no-map");
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("without shared memory"));
    EXPECT_EQ(odd("no-map", "runs.db", {"show", "@last", "--db", path("runs.db")}).status, 0);
    expect_intact();
  }
}

TEST_F(BadFileSystemTest, WithoutLocksNothingIsWritten) {
  for (const std::string manner : {"nfs,no-lock", "no-lock"}) {
    SCOPED_TRACE(manner);
    fs::remove(path("runs.db"));
    expect_error(odd_run(manner), 6, {"runs.db", "gives no locks", "local disk"});
    EXPECT_FALSE(fs::exists(path("runs.db")));
    ASSERT_EQ(niah().status, 0);
    const std::string before = read("runs.db");
    const auto start = std::chrono::steady_clock::now();
    expect_error(odd_run(manner), 6, {"runs.db", "gives no locks"});
    expect_error(odd(manner, folder_.path().string(), {"show", "@last", "--db", path("runs.db")}), 6,
                 {"gives no locks"});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(14));  // SQLite would wait 15 for each
    EXPECT_EQ(read("runs.db"), before);
    expect_intact();
  }
}

TEST_F(BadFileSystemTest, AFlushThatFailsEndsTheRun) {
  ASSERT_EQ(niah().status, 0);
  expect_error(odd_run("no-fsync"), 6, {"runs.db"});
  expect_intact();
  EXPECT_EQ(run({"show", "@last", "--db", path("runs.db")}).status, 0);
  EXPECT_EQ(niah().status, 0);
  expect_intact();
}

TEST_F(BadFileSystemTest, WeightsThatCannotBeMapped) {
  const std::vector<std::string> probe = {"probe", "nll", "--model", demo(), "--requests", "-", "--threads", "1"};
  expect_error(odd("no-map", "model.safetensors", probe, R"({"tokens":[3,4,5,6]})"), 7, {"model.safetensors", "copy"});
}

TEST_F(BadFileSystemTest, OutputsThatCannotBeFlushed) {
  ASSERT_EQ(niah().status, 0);
  expect_error(odd("no-fsync", "map.svg", {"heatmap", "@last", "--db", path("runs.db"), "-o", path("map.svg")}), 6,
               {"map.svg"});
  EXPECT_FALSE(fs::exists(path("map.svg")));
}

}  // namespace
}  // namespace hayfork::cli
