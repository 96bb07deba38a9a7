// Databases that cannot be used: one clear message, exit status 6, the file left as it was.
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file_map.h"
#include "tests/support/bad_input.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/raw_sql.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using test::hayfork;
using test::ProcessOptions;
using test::ProcessResult;
using ::testing::HasSubstr;

class StorageTest : public ::testing::Test {
 protected:
  StorageTest() { fs::permissions(folder_.path(), fs::perms::all); }
  std::string db(const std::string& name = "runs.db") const { return (folder_.path() / name).string(); }
  ProcessResult run(const std::string& file, const ProcessOptions& options = {}) {
    return hayfork({"run", "--model", (test::source_dir() / "demo" / "full").string(), "--tasks", "niah", "--lengths",
                    "256", "--depths", "0,100", "--samples", "1", "--db", file},
                   options);
  }
  ProcessResult run_as_user(const std::string& file) { return run(file, test::as_user()); }
  test::TempDir folder_;
};

TEST_F(StorageTest, AFileThatIsNoDatabaseStaysAsItIs) {
  std::ofstream(db()) << "these are my notes, not a database, and they are long enough to be looked at by anyone\n";
  const std::string before = read_file(db(), ErrorSubject::general);
  const ProcessResult result = run(db());
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.err, HasSubstr("error: "));
  EXPECT_EQ(read_file(db(), ErrorSubject::general), before);
}

TEST_F(StorageTest, AnotherProgramsDatabaseStaysAsItIs) {
  test::raw_sql(db(), "create table notes(x); insert into notes values(1)");
  const std::string before = read_file(db(), ErrorSubject::general);
  EXPECT_EQ(run(db()).status, 6);
  EXPECT_EQ(read_file(db(), ErrorSubject::general), before);
}

TEST_F(StorageTest, ANewerSchemaIsRefused) {
  ASSERT_EQ(run(db()).status, 0);
  test::raw_sql(db(), "pragma user_version = 9999");
  const ProcessResult result = run(db());
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.err, HasSubstr("newer"));
  EXPECT_EQ(hayfork({"list", "runs", "--db", db()}).status, 6);
}

TEST_F(StorageTest, AReadOnlyFileIsRefusedForWritingAndReadForLooking) {
  HAY_NEED_USER();
  ASSERT_EQ(run(db()).status, 0);
  fs::permissions(db(), fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  const ProcessResult result = run_as_user(db());
  EXPECT_EQ(result.status, 6) << result.err;
  EXPECT_EQ(hayfork({"list", "runs", "--db", db()}, test::as_user()).status, 0);
}

TEST_F(StorageTest, NoPermissionIsSaid) {
  HAY_NEED_USER();
  fs::create_directories(folder_.path() / "closed");
  fs::permissions(folder_.path() / "closed", fs::perms::owner_all);
  if (::geteuid() != 0) fs::permissions(folder_.path() / "closed", fs::perms::none);
  const ProcessResult result = run_as_user((folder_.path() / "closed" / "runs.db").string());
  test::expect_error(result, 6, {"closed/runs.db", "ermission"});
  fs::permissions(folder_.path() / "closed", fs::perms::owner_all);
}

TEST_F(StorageTest, ALockedDatabaseIsSaid) {
  ASSERT_EQ(run(db()).status, 0);
  const test::ExclusiveLock lock(db());
  const ProcessResult result = test::run_process(test::binary().string(), {"db", "vacuum", "--db", db()});
  EXPECT_EQ(result.status, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("locked"));
}

// A small file system of its own, when the test may mount one.
class FullDisk {
 public:
  explicit FullDisk(const fs::path& at, const char* size) : at_(at) {
    fs::create_directories(at_);
    mounted_ = ::mount("tmpfs", at_.c_str(), "tmpfs", 0, size) == 0;
  }
  ~FullDisk() {
    if (mounted_) ::umount2(at_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  fs::path at_;
  bool mounted_ = false;
};

TEST_F(StorageTest, AFullDiskEndsTheRunAndSpoilsNothing) {
  const FullDisk disk(folder_.path() / "small", "size=512k");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs";
  const std::string file = (folder_.path() / "small" / "runs.db").string();
  std::ofstream filler(folder_.path() / "small" / "filler");
  const ProcessResult begun = run(file);
  filler << std::string(1 << 20, 'x') << std::flush;
  filler.close();
  const ProcessResult result = run(file);
  EXPECT_EQ(result.status, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: "));
  fs::remove(folder_.path() / "small" / "filler");
  if (begun.status == 0) {
    EXPECT_EQ(hayfork({"db", "check", "--db", file}).status, 0);
  }
}

}  // namespace
}  // namespace hayfork::cli
