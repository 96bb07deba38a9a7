// What every test of bad input shares: a folder, files written whole, a demo checkpoint that can be damaged, small runs
// and probes, and the one rule for messages: the exit status, a single error of at most four lines, and what it must
// name.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::test {

// Fails the test unless `result` ended with `status` and one error message of at most four lines, with a "next" line,
// that holds each of `words`.
void expect_error(const ProcessResult& result, int status, const std::vector<std::string>& words);

// An ordinary user, for whom permissions hold: nobody where the tests run as root.
ProcessOptions as_user();
// Whether that user may enter the folder of the sources: nobody cannot, where it lies in root's own home.
bool user_reaches_sources();
#define HAY_NEED_USER()                         \
  if (!::hayfork::test::user_reaches_sources()) \
  GTEST_SKIP() << "an ordinary user cannot enter the folder of the sources"

class BadInputTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  // Writes a file of the test's folder (its folders too); gives its path.
  std::string write(const std::string& name, std::string_view content) const;
  std::string read(const std::string& name) const;
  static std::string demo();  // demo/full
  // A copy of it; gives its path.
  std::string copy_of_demo(const std::string& name) const;
  // In the test's folder, which keeps caches and databases too, in at most 4 GiB and 120 s of processor time.
  ProcessResult run(const std::vector<std::string>& arguments, const std::string& input = "") const;
  // `hayfork run` of a small niah grid into runs.db; of demo/full.
  ProcessResult run_niah(const std::string& model, const std::vector<std::string>& more = {}) const;
  ProcessResult niah(const std::vector<std::string>& more = {}) const { return run_niah(demo(), more); }
  // `hayfork probe nll` of four tokens by a checkpoint, named in the test's folder or with its whole path.
  ProcessResult nll(const std::string& model, const std::vector<std::string>& more = {}) const;
  // The database can be read and is whole.
  void expect_intact(const std::string& db = "runs.db") const;

  TempDir folder_;
};

}  // namespace hayfork::test
