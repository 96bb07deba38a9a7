// What tests of the program's verbs share: a folder to run it in (bad_input.h), runs made up (made_runs.h), answers as
// JSON, and the short names they are written with.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/bad_input.h"
#include "tests/support/made_runs.h"
#include "tests/support/raw_sql.h"

namespace hayfork::test {

class CliTest : public BadInputTest {
 protected:
  // Adds runs to runs.db of the test's folder; their ids in order.
  std::vector<std::string> add(const std::vector<MadeRun>& made) const { return make_runs(path("runs.db"), made); }
  // What the verb prints with -o json. Fails the test unless it ends with 0.
  nlohmann::json json_of(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"-o", "json"});
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }
  ProcessResult import_of(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "import");
    return run(arguments);
  }
};

}  // namespace hayfork::test

namespace hayfork::cli {

namespace fs = std::filesystem;
using nlohmann::json;
using test::expect_error;
using test::MadeRun;
using test::MadeTask;
using test::ones;
using test::ProcessOptions;
using test::ProcessResult;
using ::testing::HasSubstr;
using ::testing::Not;

}  // namespace hayfork::cli
