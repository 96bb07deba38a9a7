// Where values come from: flag > environment > hayfork.yaml up to the git root > user's config.yaml > default.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::cli {
namespace {

namespace fs = std::filesystem;
using test::hayfork;
using test::ProcessOptions;
using test::ProcessResult;
using ::testing::HasSubstr;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    fs::create_directories(root() / ".git");
    fs::create_directories(root() / "a" / "b");
  }
  fs::path root() const { return folder_.path() / "project"; }
  // Value and origin of a flag of `list`.
  std::pair<std::string, std::string> setting(const std::string& flag,
                                              std::map<std::string, std::string> environment = {}) {
    environment["XDG_CONFIG_HOME"] = (folder_.path() / "config").string();
    const ProcessResult result =
        hayfork({"config", "list", "--explain", "-o", "json"}, {.cwd = root() / "a" / "b", .environment = environment});
    EXPECT_EQ(result.status, 0) << result.err;
    const auto root_json = nlohmann::json::parse(result.out);
    for (const auto& row : root_json["settings"]) {
      if (row["flag"] == flag) return {row["value"], row["origin"]};
    }
    return {};
  }
  ProcessResult run(const std::vector<std::string>& arguments) {
    return hayfork(arguments, {.cwd = root() / "a" / "b",
                               .environment = {{"XDG_CONFIG_HOME", (folder_.path() / "config").string()}}});
  }
  test::TempDir folder_;
};

TEST_F(SettingsTest, TheNearerOneWins) {
  EXPECT_EQ(setting("db"), std::pair(std::string("runs.db"), std::string("default")));
  write(folder_.path() / "config" / "hayfork" / "config.yaml", "db: user.db\n");
  EXPECT_EQ(setting("db").first, "user.db");
  write(root() / "hayfork.yaml", "db: project.db\n");
  EXPECT_EQ(setting("db").first, "project.db");
  EXPECT_THAT(setting("db").second, HasSubstr("project/hayfork.yaml"));
  write(root() / "a" / "hayfork.yaml", "db: nearer.db\n");
  EXPECT_EQ(setting("db").first, "nearer.db");
  EXPECT_EQ(setting("db", {{"HAYFORK_DB", "environment.db"}}).first, "environment.db");
  EXPECT_EQ(setting("db", {{"HAYFORK_DB", "environment.db"}}).second, "environment HAYFORK_DB");
}

TEST_F(SettingsTest, TheFlagWinsOverAll) {
  write(root() / "hayfork.yaml", "db: /no/such/project.db\n");
  EXPECT_THAT(run({"list", "runs"}).err, HasSubstr("/no/such/project.db"));
  EXPECT_THAT(run({"list", "runs", "--db", "/no/such/flag.db"}).err, HasSubstr("/no/such/flag.db"));
}

TEST_F(SettingsTest, FilesBeyondTheGitRootAreNotRead) {
  write(folder_.path() / "hayfork.yaml", "db: outside.db\n");
  EXPECT_EQ(setting("db").first, "runs.db");
}

TEST_F(SettingsTest, AVerbsOwnSectionWinsOverTheWhole) {
  write(root() / "hayfork.yaml", "db: all.db\nlist: {db: mine.db}\n");
  EXPECT_EQ(setting("db").first, "mine.db");
}

TEST_F(SettingsTest, AFlagsOtherNameWillDo) {
  const ProcessResult result = hayfork({"config", "run", "-o", "json"}, {.environment = {{"HAYFORK_DEVICES", "cpu"}}});
  EXPECT_THAT(result.out, HasSubstr("environment HAYFORK_DEVICES"));
  write(root() / "hayfork.yaml", "devices: cpu\n");
  EXPECT_EQ(run({"config", "run"}).status, 0);
}

TEST_F(SettingsTest, UnknownKeysAreErrorsWithASuggestion) {
  write(root() / "hayfork.yaml", "lenghts: 4k\n");
  const ProcessResult result = run({"list", "runs"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown key \"lenghts\""));
  EXPECT_THAT(result.err, HasSubstr("did you mean lengths or length?"));
  write(root() / "hayfork.yaml", "run: {smaples: 4}\n");
  EXPECT_THAT(run({"list", "runs"}).err, HasSubstr("did you mean samples?"));
  write(root() / "hayfork.yaml", "rnu: {samples: 4}\n");
  EXPECT_THAT(run({"list", "runs"}).err, HasSubstr("did you mean run?"));
}

TEST_F(SettingsTest, ABadValueNamesItsOrigin) {
  const ProcessResult result =
      hayfork({"run", "--model", "m", "--tasks", "niah"}, {.environment = {{"HAYFORK_SEED", "x"}}});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("environment HAYFORK_SEED"));
}

TEST_F(SettingsTest, BrokenFilesNameTheLine) {
  write(root() / "hayfork.yaml", "db: a\n  b: [c\n");
  const ProcessResult result = run({"list", "runs"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("hayfork.yaml, line 2"));
  write(root() / "hayfork.yaml", "- just\n- a list\n");
  EXPECT_EQ(run({"list", "runs"}).status, 2);
}

}  // namespace
}  // namespace hayfork::cli
