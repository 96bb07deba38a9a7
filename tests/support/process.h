// Running the built program as its users do: arguments in, exit status and both outputs out.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace hayfork::test {

struct ProcessResult {
  int status = 0;  // exit status; 128 + signal when killed
  std::string out, err;
  int64_t peak_bytes = 0;  // resident, at most
};

struct ProcessOptions {
  std::filesystem::path cwd;                       // empty: the test's own
  std::map<std::string, std::string> environment;  // added to a bare one: PATH and a HOME that is empty
  std::string input;
  double signal_after_s = -1;  // sends `signal` then (and again after a tenth of a second when `twice`)
  std::string once_it_says;    // these seconds count from when standard error holds this; empty: from the start
  int signal = 2;
  bool twice = false;
  uint32_t user = 0;         // run as this user, when the tests are root's
  uint64_t limit_bytes = 0;  // of address space (not under a sanitizer, which needs it all); 0: none
  uint64_t limit_s = 0;      // of processor time; 0: none
};

// Runs `program` to its end. Throws std::runtime_error when it cannot be started.
ProcessResult run_process(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                          const ProcessOptions& options = {});
// The hayfork of this build.
ProcessResult hayfork(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

}  // namespace hayfork::test
