#include "tests/support/bad_input.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include <gmock/gmock.h>

#include "base/file_map.h"

namespace hayfork::test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

void expect_error(const ProcessResult& result, int status, const std::vector<std::string>& words) {
  EXPECT_EQ(result.status, status) << result.err;
  const size_t begin = result.err.find("error: ");
  ASSERT_NE(begin, std::string::npos) << result.err;
  const std::string message = result.err.substr(begin);
  EXPECT_EQ(result.err.find("error: ", begin + 1), std::string::npos) << "more than one error:\n" << result.err;
  EXPECT_LE(std::count(message.begin(), message.end(), '\n'), 4) << message;
  EXPECT_LE(message.size(), 2000u) << message;
  EXPECT_THAT(message, HasSubstr("\n  next ")) << "says nothing about what to do now";
  EXPECT_THAT(result.err, Not(HasSubstr("internal error")));
  for (const std::string& word : words) EXPECT_THAT(message, HasSubstr(word));
}

ProcessOptions as_user() {
  constexpr uint32_t kNobody = 65534;
  ProcessOptions options;
  if (::geteuid() == 0) options.user = kNobody;
  return options;
}

bool user_reaches_sources() {
  if (::geteuid() != 0) return true;
  for (fs::path folder = source_dir(); folder.has_relative_path(); folder = folder.parent_path())
    if ((fs::status(folder).permissions() & fs::perms::others_exec) == fs::perms::none) return false;
  return true;
}

std::string BadInputTest::write(const std::string& name, std::string_view content) const {
  const fs::path file = folder_.path() / name;
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  return file.string();
}

std::string BadInputTest::read(const std::string& name) const {
  return read_file(folder_.path() / name, ErrorSubject::general);
}

std::string BadInputTest::demo() {
  return (source_dir() / "demo" / "full").string();
}

std::string BadInputTest::copy_of_demo(const std::string& name) const {
  fs::copy(demo(), folder_.path() / name, fs::copy_options::recursive);
  return path(name);
}

ProcessResult BadInputTest::run(const std::vector<std::string>& arguments, const std::string& input) const {
  ProcessOptions options;
  options.cwd = folder_.path();
  options.input = input;
  options.environment["HAYFORK_CACHE"] = path("cache");
  options.limit_bytes = uint64_t{4} << 30;
  options.limit_s = 120;
  return hayfork(arguments, options);
}

ProcessResult BadInputTest::run_niah(const std::string& model, const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {"run",       "--model", model,  "--tasks",      "niah",
                                        "--threads", "1",       "--db", path("runs.db")};
  const auto has = [&](const char* flag) { return std::find(more.begin(), more.end(), flag) != more.end(); };
  if (!has("--lengths")) arguments.insert(arguments.end(), {"--lengths", "256"});
  if (!has("--depths")) arguments.insert(arguments.end(), {"--depths", "0,100"});
  if (!has("--samples")) arguments.insert(arguments.end(), {"--samples", "1"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments);
}

ProcessResult BadInputTest::nll(const std::string& model, const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {"probe", "nll", "--model", path(model), "--requests", "-", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments, R"({"tokens":[3,4,5,6]})");
}

void BadInputTest::expect_intact(const std::string& db) const {
  const ProcessResult result = run({"db", "check", "--db", path(db)});
  EXPECT_EQ(result.status, 0) << result.err;
}

}  // namespace hayfork::test
