// Where results go: databases that are damaged or out of reach, outputs that are full or closed. Exit status 6, the
// database whole.
#include <fcntl.h>
#include <sys/mount.h>

#include <chrono>
#include <thread>

#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

class BadOutputTest : public test::BadInputTest {
 protected:
  ProcessResult shell(const std::string& command) const {
    ProcessOptions options;
    options.cwd = folder_.path();
    options.environment["HAYFORK"] = test::binary().string();
    options.environment["MODEL"] = demo();
    return test::run_process("/bin/sh", {"-c", command}, options);
  }
};

TEST_F(BadOutputTest, PathsThatAreNoDatabase) {
  fs::create_directory(path("folder"));
  const std::string sqlite_head = std::string("SQLite format 3\0", 16);
  write("empty.db", "");
  write("short.db", "x");
  write("head.db", sqlite_head);
  write("noise.db", sqlite_head + std::string(8192, '\x5A'));
  write("text.db", std::string(100000, 'x'));
  for (const char* name :
       {"folder", "short.db", "head.db", "noise.db", "text.db", "no/such/runs.db", "empty.db/x.db"}) {
    SCOPED_TRACE(name);
    const bool file = fs::is_regular_file(path(name));
    const std::string before = file ? read(name) : "";
    expect_error(run({"run", "--model", demo(), "--tasks", "niah", "--lengths", "128", "--depths", "0", "--samples",
                      "1", "--db", name}),
                 6, {name});
    expect_error(run({"list", "runs", "--db", name}), 6, {name});
    expect_error(run({"resume", "--db", name}), 6, {name});
    expect_error(run({"db", "check", "--db", name}), 6, {name});
    expect_error(run({"db", "merge", name, "--db", path("other.db")}), 6, {name});
    if (file) {
      EXPECT_EQ(read(name), before);
    }
  }
  for (const char* name : {"", "nowhere.db", "/dev/null", "/proc/self/mem"}) {
    SCOPED_TRACE(name);
    expect_error(run({"list", "runs", "--db", name}), 6, {});
  }
}

TEST_F(BadOutputTest, AReadOnlyFolderIsSaid) {
  HAY_NEED_USER();
  ASSERT_EQ(niah().status, 0);
  fs::permissions(path("runs.db"), fs::perms::all);
  fs::permissions(folder_.path(),
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  const ProcessOptions options = test::as_user();
  expect_error(test::hayfork({"run", "--model", demo(), "--tasks", "niah", "--lengths", "128", "--depths", "0",
                              "--samples", "1", "--db", path("runs.db")},
                             options),
               6, {"runs.db"});
  EXPECT_EQ(test::hayfork({"list", "runs", "--db", path("runs.db")}, options).status, 0);
  EXPECT_EQ(test::hayfork({"show", "@last", "--db", path("runs.db")}, options).status, 0);
  fs::permissions(folder_.path(), fs::perms::all);
  expect_intact();
}

TEST_F(BadOutputTest, DamagedPagesAreFoundAndSurvived) {
  ASSERT_EQ(niah().status, 0);
  const std::string whole = read("runs.db");
  for (const double share : {0.05, 0.3, 0.6, 0.95}) {
    SCOPED_TRACE(share);
    std::string damaged = whole;
    const auto at = static_cast<size_t>(share * static_cast<double>(whole.size()));
    for (size_t i = at; i < std::min(at + 6000, damaged.size()); ++i) damaged[i] = static_cast<char>(i * 37);
    write("d.db", damaged);
    for (const char* verb : {"check", "digest", "vacuum"}) {
      const ProcessResult result = run({"db", verb, "--db", "d.db"});
      EXPECT_TRUE(result.status == 6 || (result.status == 0 && std::string(verb) != "check")) << verb << result.err;
    }
    for (const ProcessResult& result :
         {run({"list", "runs", "--db", "d.db"}), run({"show", "@last", "--db", "d.db"}),
          run({"show", "sample", "1", "--db", "d.db"}), run({"heatmap", "@last", "--db", "d.db"})}) {
      if (result.status != 0) expect_error(result, 6, {"d.db"});
    }
  }
  for (const size_t n : {whole.size() / 2, size_t{4096}, size_t{100}}) {
    SCOPED_TRACE(n);
    write("d.db", whole.substr(0, n));
    expect_error(run({"show", "sample", "1", "--db", "d.db"}), 6, {"d.db"});
  }
}

TEST_F(BadOutputTest, RunsAndSamplesThatAreNotThere) {
  ASSERT_EQ(niah().status, 0);
  for (const char* reference : {"rzzzzz", "@tag:none", "@baseline:none", "@nonsense", "@", "'; DROP TABLE runs; --",
                                "@last:niah:niah", "%", "_"}) {
    SCOPED_TRACE(reference);
    const ProcessResult result = run({"show", reference, "--db", "runs.db"});
    EXPECT_TRUE(result.status == 6 || result.status == 2) << result.err;
    expect_error(result, result.status, {});
  }
  for (const char* sample : {"0", "-1", "999999", "x", "99999999999999999999"}) {
    SCOPED_TRACE(sample);
    const ProcessResult result = run({"show", "sample", sample, "--db", "runs.db"});
    EXPECT_TRUE(result.status == 6 || result.status == 2) << result.err;
    expect_error(result, result.status, {});
  }
  expect_intact();
}

TEST_F(BadOutputTest, FullAndClosedOutputs) {
  ASSERT_EQ(niah().status, 0);
  for (const char* verb : {"list runs", "show @last", "show @last -o json", "heatmap @last", "help", "version",
                           "db check", "completion bash"}) {
    SCOPED_TRACE(verb);
    const std::string db =
        std::string(verb).find_first_of("@dl") == 0 || std::string(verb).find("@") != std::string::npos
            ? " --db runs.db"
            : "";
    expect_error(shell("\"$HAYFORK\" " + std::string(verb) + db + " >/dev/full"), 6, {"standard output"});
    EXPECT_EQ(shell("\"$HAYFORK\" " + std::string(verb) + db + " >&-").status, 6);
    EXPECT_LT(shell("\"$HAYFORK\" " + std::string(verb) + db + " 2>/dev/full >/dev/null").status, 1);
    EXPECT_EQ(shell("\"$HAYFORK\" " + std::string(verb) + db + " | head -c 1 >/dev/null").status, 0);
  }
  EXPECT_EQ(shell("\"$HAYFORK\" list runs --db runs.db </dev/null >/dev/null 2>&- ").status, 0);
  for (const char* out : {"no/such/map.svg", "/dev/full", "."}) {
    SCOPED_TRACE(out);
    const ProcessResult result = run({"heatmap", "@last", "--db", "runs.db", "-o", out});
    EXPECT_TRUE(result.status == 6 || result.status == 2) << result.err;
    expect_error(result, result.status, {});
  }
  write("requests.jsonl", R"({"tokens":[7,8]})");
  expect_error(run({"probe", "nll", "--model", demo(), "--requests", "requests.jsonl", "--stats", "no/such/file"}), 6,
               {"no/such/file"});
  const ProcessResult full = shell("\"$HAYFORK\" probe nll --model \"$MODEL\" --requests requests.jsonl >/dev/full");
  expect_error(full, 6, {"standard output"});
  expect_intact();
}

// A database on a file system with no room left at any moment of the run: the run ends with 6 or well, and what is in
// the file can be read and gone on with.
TEST_F(BadOutputTest, ADiskThatFillsAtAnyMoment) {
  fs::create_directory(path("small"));
  if (::mount("tmpfs", path("small").c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "needs the right to mount a tmpfs";
  }
  const std::vector<std::string> grid = {"--lengths", "128",           "--depths", "0,50,100", "--samples", "3",
                                         "--db",      "small/runs.db", "--tasks",  "niah",     "--model",   demo()};
  const auto command = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = words;
    all.insert(all.end(), grid.begin(), grid.end());
    return run(all);
  };
  const ProcessResult roomy = command({"run"});
  EXPECT_EQ(roomy.status, 0) << roomy.err;
  const json wanted = json::parse(run({"db", "digest", "--db", "small/runs.db", "-o", "json"}).out);
  const auto needed = fs::file_size(path("small/runs.db"));
  for (const uintmax_t room : {uintmax_t{4096}, uintmax_t{65536}, needed / 2, needed}) {
    SCOPED_TRACE(room);
    for (const auto& entry : fs::directory_iterator(path("small"))) fs::remove(entry.path());
    const auto space = fs::space(path("small")).available;
    write("small/filler", std::string(space - std::min(space, room), 'x'));
    const ProcessResult result = command({"run"});
    if (result.status != 0) expect_error(result, 6, {"small/runs.db"});
    fs::remove(path("small/filler"));
    if (!fs::exists(path("small/runs.db"))) continue;
    const ProcessResult check = run({"db", "check", "--db", "small/runs.db"});
    if (check.status != 0) {  // not even the schema went in: the file is empty, and a run may begin in it
      expect_error(check, 6, {"small/runs.db"});
      EXPECT_EQ(command({"run"}).status, 0);
      continue;
    }
    const ProcessResult listed = run({"list", "runs", "--db", "small/runs.db", "-o", "json"});
    ASSERT_EQ(listed.status, 0) << listed.err;
    if (json::parse(listed.out)["runs"].empty()) continue;
    const ProcessResult resumed = run({"resume", "--db", "small/runs.db"});
    EXPECT_EQ(resumed.status, 0) << resumed.err;
    const json digest = json::parse(run({"db", "digest", "--db", "small/runs.db", "-o", "json"}).out);
    EXPECT_EQ(digest["digest"]["sha256"], wanted["digest"]["sha256"]);
    expect_intact("small/runs.db");
  }
  ::umount2(path("small").c_str(), MNT_DETACH);
}

TEST_F(BadOutputTest, TwoRunsIntoOneDatabase) {
  ProcessResult first, second;
  const auto grid = [&](const char* name) {
    return niah({"--lengths", "256-512*2", "--depths", "0-100+25", "--name", name});
  };
  std::thread other([&] { first = grid("one"); });
  second = grid("two");
  other.join();
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(second.status, 0) << second.err;
  const json runs = json::parse(run({"list", "runs", "--db", "runs.db", "-o", "json"}).out)["runs"];
  EXPECT_EQ(runs.size(), 2u);
  const auto digest = [&](const char* name) {
    return run({"db", "digest", name, "--db", "runs.db"}).out.substr(0, 64);
  };
  EXPECT_EQ(digest("one"), digest("two"));
  expect_intact();
}

TEST_F(BadOutputTest, CachesOutOfReachCostTimeNotTheRun) {
  ProcessOptions options;
  options.cwd = folder_.path();
  const std::vector<std::string> words = {"run",      "--model", demo(),      "--tasks", "niah", "--lengths",    "128",
                                          "--depths", "0",       "--samples", "1",       "--db", path("runs.db")};
  write("cachefile", "no folder");
  write("cache2/digests.txt", std::string("\0garbage\n", 9) + std::string(1000, 'x'));
  write("cache2/speeds.json", "{");
  fs::create_directories(path("cache3/digests.txt"));
  for (const char* cache : {"/proc/no", "/dev/null", "cachefile", "cache2", "cache3"}) {
    SCOPED_TRACE(cache);
    options.environment["HAYFORK_CACHE"] = cache[0] == '/' ? cache : path(cache);
    const ProcessResult result = test::hayfork(words, options);
    EXPECT_EQ(result.status, 0) << result.err;
  }
  options.environment["HAYFORK_CACHE"] = "";
  options.environment["HOME"] = "";
  EXPECT_EQ(test::hayfork(words, options).status, 0);
  options.environment["HOME"] = "/no/such/home";
  EXPECT_EQ(test::hayfork(words, options).status, 0);
}

}  // namespace
}  // namespace hayfork::cli
