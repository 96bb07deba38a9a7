// hayfork report and hayfork serve through the program: what is written, what is refused, who is answered.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <regex>
#include <thread>

#include "tests/support/cli_test.h"
#include "tests/support/made_site.h"

namespace hayfork::cli {
namespace {

class ReportTest : public test::BadInputTest {
 protected:
  void SetUp() override { made_ = test::make_site(path("runs.db")); }
  test::MadeSite made_;
};

TEST_F(ReportTest, WritesOneFileWhenItIsSmall) {
  const ProcessResult result = run({"report"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("wrote report.html (24 runs, "));
  EXPECT_THAT(result.out, HasSubstr("no external requests)  sha256 "));
  const std::string first = read("report.html");
  ASSERT_EQ(run({"report", "-o", "again.html"}).status, 0);
  EXPECT_EQ(read("again.html"), first);
}

TEST_F(ReportTest, WritesAFolderWhenAsked) {
  const ProcessResult result = run({"report", "-o", "site", "--runs", made_.models[0] + "," + made_.models[1]});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("wrote site/index.html (+10 pages, 2 runs"));
  EXPECT_THAT(result.err, HasSubstr("2 of 24 runs"));
  EXPECT_TRUE(fs::exists(path("site/samples-" + made_.models[1] + ".html")));
  EXPECT_THAT(read("site/index.html"), Not(HasSubstr("run-" + made_.models[2])));
}

TEST_F(ReportTest, ChoosesByFilterAndBaseline) {
  const ProcessResult result = run(
      {"report", "-o", "site", "--filter", "tag=nightly", "--baseline", made_.series[1], "--include-samples", "none"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(read("site/architectures.html"), HasSubstr(made_.series[1] + ", as asked for"));
  EXPECT_FALSE(fs::exists(path("site/samples-" + made_.series[1] + ".html")));
}

TEST_F(ReportTest, TooLargeForOneFileIsSaidOrBecomesAFolder) {
  const std::vector<std::string> all = {"--include-samples", "all", "--samples-a-run", "0", "--max-mb", "1"};
  std::vector<std::string> words = {"report", "-o", "one.html"};
  words.insert(words.end(), all.begin(), all.end());
  expect_error(run(words), 2, {"too large for one file", "--max-mb 1"});
  EXPECT_FALSE(fs::exists(path("one.html")));
  words = {"report"};
  words.insert(words.end(), all.begin(), all.end());
  const ProcessResult result = run(words);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("wrote report/index.html (+"));
}

TEST_F(ReportTest, WhatCannotBeIsOneClearError) {
  expect_error(run({"report", "--runs", "nobody"}), 6, {"no run \"nobody\""});
  expect_error(run({"report", "--baseline", "@nobody"}), 6, {"@nobody"});
  expect_error(run({"report", "--filter", "colour=red"}), 2, {"colour=red"});
  expect_error(run({"report", "--include-samples", "some"}), 2, {"some"});
  expect_error(run({"report", "--max-mb", "0"}), 2, {"--max-mb"});
  expect_error(run({"report", "--db", "none.db"}), 6, {"none.db"});
  expect_error(run({"report", "-o", "runs.db/site"}), 6, {"runs.db/site"});
  EXPECT_EQ(run({"report", "--filter", "tag=nobody"}).status, 5);
  expect_intact();
}

// ---- serve ---------------------------------------------------------------------------------------------------------

// The program as a server of its own folder, stopped with the object.
class Server {
 public:
  Server(const fs::path& folder, std::vector<std::string> words) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    words.insert(words.begin(), {test::binary().string(), "serve"});
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      if (::chdir(folder.c_str()) != 0) ::_exit(127);
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    char c = 0;
    while (::read(ends[0], &c, 1) == 1 && c != '\n') line_ += c;
    err_ = ends[0];
    std::smatch found;
    if (std::regex_search(line_, found, std::regex(":([0-9]+)/"))) port_ = std::stoi(found[1]);
  }
  ~Server() {
    if (pid_ > 0) stop(SIGKILL);
    ::close(err_);
  }
  int stop(int signal) {
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  int port() const { return port_; }
  const std::string& line() const { return line_; }
  // Sends bytes; all that comes back.
  std::string ask(const std::string& bytes) const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port_));
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    std::string out;
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
      (void)!::write(socket, bytes.data(), bytes.size());
      char buffer[65536];
      for (ssize_t n = 0; (n = ::read(socket, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(n));
    }
    ::close(socket);
    return out;
  }
  std::string get(const std::string& target, const std::string& headers = "") const {
    const std::string host =
        headers.find("Host:") == std::string::npos ? "Host: 127.0.0.1:" + std::to_string(port_) + "\r\n" : "";
    return ask("GET " + target + " HTTP/1.1\r\n" + host + headers + "Connection: close\r\n\r\n");
  }

 private:
  pid_t pid_ = 0;
  int port_ = 0, err_ = -1;
  std::string line_;
};

class ServeTest : public ReportTest {};

TEST_F(ServeTest, AnswersItsPagesAndNothingElse) {
  Server server(folder_.path(), {"--port", "0"});
  ASSERT_GT(server.port(), 0) << server.line();
  const std::string index = server.get("/");
  EXPECT_THAT(index, HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(index, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(index, HasSubstr("Models × tasks"));
  EXPECT_THAT(server.get("/run-" + made_.models[0] + ".html"), HasSubstr("HTTP/1.1 200"));
  for (const char* path : {"/none.html", "/runs.db", "/../../etc/passwd", "/run-%2e%2e.html", "/index", "/%00.html"})
    EXPECT_THAT(server.get(path), Not(HasSubstr("HTTP/1.1 200"))) << path;
  EXPECT_EQ(server.stop(SIGINT), 130);
}

TEST_F(ServeTest, RefusesOtherHostsOriginsAndMethods) {
  Server server(folder_.path(), {"--port", "0"});
  const std::string port = std::to_string(server.port());
  EXPECT_THAT(server.get("/", "Host: evil.example:" + port + "\r\n"), HasSubstr("HTTP/1.1 403"));
  EXPECT_THAT(server.get("/", "Host: 127.0.0.1:1\r\n"), HasSubstr("HTTP/1.1 403"));
  EXPECT_THAT(server.get("/", "Host: localhost:" + port + "\r\n"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(server.get("/", "Origin: http://evil.example\r\n"), HasSubstr("HTTP/1.1 403"));
  EXPECT_THAT(server.get("/", "Origin: null\r\n"), HasSubstr("HTTP/1.1 403"));
  EXPECT_THAT(server.get("/", "Origin: http://127.0.0.1:" + port + "\r\n"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(server.ask("GET / HTTP/1.0\r\n\r\n"), HasSubstr(" 403"));
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"})
    EXPECT_THAT(server.ask(std::string(method) + " / HTTP/1.1\r\nHost: localhost:" + port +
                           "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
                HasSubstr("HTTP/1.1 405"))
        << method;
  EXPECT_THAT(server.ask("nonsense\r\n\r\n"), Not(HasSubstr(" 200 ")));
  EXPECT_THAT(server.get("/" + std::string(100'000, 'a') + ".html"), Not(HasSubstr(" 200 ")));
  EXPECT_THAT(server.get("/"), HasSubstr("HTTP/1.1 200"));
  EXPECT_EQ(server.stop(SIGTERM), 143);
}

TEST_F(ServeTest, ExposedItAsksForItsToken) {
  const std::string token = "0123456789abcdefX";
  Server server(folder_.path(), {"--port", "0", "--expose", "0.0.0.0", "--token", token});
  EXPECT_THAT(server.line(), HasSubstr("/?token=" + token));
  EXPECT_THAT(server.get("/"), HasSubstr("HTTP/1.1 401"));
  EXPECT_THAT(server.get("/?token=0123456789abcdefY"), HasSubstr("HTTP/1.1 401"));
  EXPECT_THAT(server.get("/", "Cookie: a=b; hayfork_token=\r\n"), HasSubstr("HTTP/1.1 401"));
  const std::string entry = server.get("/?token=" + token);
  EXPECT_THAT(entry, HasSubstr("HTTP/1.1 303"));
  EXPECT_THAT(entry, HasSubstr("HttpOnly; SameSite=Strict"));
  EXPECT_THAT(server.get("/", "Cookie: a=b; hayfork_token=" + token + "\r\n"), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(server.get("/", "Authorization: Bearer " + token + "\r\n"), HasSubstr("HTTP/1.1 200"));
  Server other(folder_.path(), {"--port", "0", "--expose", "127.0.0.1"});
  EXPECT_TRUE(std::regex_search(other.line(), std::regex("token=[0-9a-f]{32}"))) << other.line();
}

TEST_F(ServeTest, APortInUseIsSaid) {
  Server server(folder_.path(), {"--port", "0"});
  expect_error(run({"serve", "--port", std::to_string(server.port())}), 2, {std::to_string(server.port()), "--port"});
  expect_error(run({"serve", "--port", "70000"}), 2, {"--port"});
  expect_error(run({"serve", "--expose", "203.0.113.7", "--port", "0"}), 2, {"203.0.113.7"});
  expect_error(run({"serve", "--token", "0123456789abcdefX"}), 2, {"--expose"});
  expect_error(run({"serve", "--expose", "127.0.0.1", "--token", "short"}), 2, {"--token"});
}

TEST_F(ServeTest, ShowsWhatCameSinceAndWritesNothing) {
  Server server(folder_.path(), {"--port", "0", "--newest", "2"});
  EXPECT_THAT(server.get("/"), HasSubstr("2 of the database"));
  EXPECT_THAT(server.get("/run-" + made_.models[0] + ".html"), HasSubstr("HTTP/1.1 200"));  // any run of the database
  ASSERT_EQ(run({"tag", "add", made_.hostile, "fresh"}).status, 0);
  EXPECT_THAT(server.get("/"), HasSubstr("fresh"));
  server.stop(SIGINT);
  const std::string before = read("runs.db");
  Server again(folder_.path(), {"--port", "0"});
  again.get("/niah.html");
  again.stop(SIGINT);
  EXPECT_EQ(read("runs.db"), before);
  expect_intact();
}

// ---- databases that cannot be trusted ------------------------------------------------------------------------------

class BadReportTest : public ReportTest {
 protected:
  void sql(const std::string& text) const { test::raw_sql(path("runs.db"), "pragma journal_mode = delete; " + text); }
  void expect_refused(const std::vector<std::string>& words) const {
    const std::string before = read("runs.db");
    expect_error(run({"report", "-o", "out.html"}), 6, words);
    expect_error(run({"serve", "--port", "0"}), 6, words);
    EXPECT_FALSE(fs::exists(path("out.html")));
    EXPECT_EQ(read("runs.db"), before);
  }
};

TEST_F(BadReportTest, ANewerSchema) {
  sql("pragma user_version = 99");
  expect_refused({"99"});
}

TEST_F(BadReportTest, AMissingTable) {
  sql("drop table search_points");
  expect_refused({"search_points"});
}

TEST_F(BadReportTest, APageOfRubbish) {
  sql("vacuum");
  std::string bytes = read("runs.db");
  for (size_t at = 8192; at + 4096 < bytes.size(); at += 8192) bytes.replace(at, 4096, std::string(4096, '\x5a'));
  write("runs.db", bytes);
  const ProcessResult result = run({"report", "-o", "out.html"});
  expect_error(result, 6, {"runs.db"});
  EXPECT_FALSE(fs::exists(path("out.html")));
}

}  // namespace
}  // namespace hayfork::cli
