// Runs that ask for what cannot be: one error before anything is computed, and no database left half made.
#include <sys/stat.h>

#include "tests/support/cli_test.h"

namespace hayfork::cli {
namespace {

class BadRunTest : public test::BadInputTest {};

TEST_F(BadRunTest, LengthsAndDepths) {
  expect_error(niah({"--lengths", "8192"}), 2, {"4608", "8192", "--allow-beyond-window"});
  expect_error(niah({"--lengths", "256,1m"}), 2, {"4608", "1 of 2 lengths"});
  for (const char* lengths : {"0", "-1", "abc", "", ",", "1,,2", "8-4*2", "256-512", "256-512+0", "256-512*1",
                              "99999999999999999999", "1e9", "256.5", "4q", "256;512", "0-1000000000+1"}) {
    SCOPED_TRACE(lengths);
    expect_error(niah({"--lengths", lengths}), 2, {});
  }
  for (const char* lengths : {"1", "8", "20"}) {
    SCOPED_TRACE(lengths);
    expect_error(niah({"--lengths", lengths}), 2, {lengths});
  }
  for (const char* depths : {"-1", "101", "nan", "inf", "x", "", "0-100", "0-100+0", "0-100+1e-9", "50,1e300"}) {
    SCOPED_TRACE(depths);
    expect_error(niah({"--depths", depths}), 2, {"depth"});
  }
}

TEST_F(BadRunTest, Counts) {
  for (const char* flag : {"--samples", "--limit", "--batch-size", "--chunk", "--threads", "--niah-needles"}) {
    for (const char* value : {"-1", "x", "", "1.5", "99999999999999999999"}) {
      SCOPED_TRACE(std::string(flag) + " " + value);
      expect_error(niah({flag, value}), 2, {std::string(flag).substr(std::string(flag).rfind('-') + 1)});
    }
  }
  for (const char* flag : {"--samples", "--limit", "--batch-size", "--niah-needles"}) {
    SCOPED_TRACE(flag);
    expect_error(niah({flag, "0"}), 2, {});
  }
  for (const char* shard : {"2/2", "-1/2", "0/0", "1", "a/b", "0/1/2", "0/99999999999999999999"}) {
    SCOPED_TRACE(shard);
    expect_error(niah({"--shard", shard}), 2, {"shard"});
  }
  for (const char* limit : {"-5m", "x", "5x", "nan", ""}) {
    SCOPED_TRACE(limit);
    expect_error(niah({"--time-limit", limit}), 2, {"time-limit"});
  }
  expect_error(niah({"--max-failed", "2"}), 2, {"max-failed"});
  expect_error(niah({"--niah-needles", "100000"}), 2, {"needles"});
  expect_error(niah({"--threads", "1000000"}), 2, {"threads"});
}

TEST_F(BadRunTest, NamesThatNobodyKnows) {
  expect_error(niah({"--niah-kind", "nonsense"}), 2, {"nonsense", "secret"});
  expect_error(niah({"--niah-placement", "nonsense"}), 2, {"nonsense", "overwrite"});
  expect_error(niah({"--niah-spacing", "nonsense"}), 2, {"nonsense", "sigmoid"});
  expect_error(niah({"--order", "nonsense"}), 2, {"nonsense"});
  expect_error(niah({"--dtype", "f8"}), 2, {"f8", "bf16"});
  expect_error(niah({"--device", "tpu"}), 2, {"tpu"});
  expect_error(niah({"--device", "cuda:99"}), 10, {"cuda:99"});
  expect_error(niah({"--lenghts", "256"}), 2, {"--lenghts", "--lengths"});
  expect_error(niah({"stray"}), 2, {"stray"});
  expect_error(niah({"--system", "x"}), 2, {"--chat-template"});
  expect_error(niah({"--chat-template"}), 2, {"template"});
  expect_error(niah({"-o", "xml"}), 2, {"xml", "csv"});
  expect_error(niah({"--ignore-config-key"}), 2, {"--ignore-config-key"});
  for (const char* task : {"nonsense", "", ",", "@nonsense", "@", "niah,nonsense", "../niah"}) {
    SCOPED_TRACE(task);
    expect_error(run({"run", "--model", demo(), "--tasks", task, "--db", path("t.db")}), 2, {"task"});
  }
  EXPECT_FALSE(fs::exists(path("t.db")));
  expect_error(run({"rnu", "--model", demo()}), 2, {"rnu", "run"});
  expect_error(run({"run", "--tasks", "niah"}), 2, {"--model"});
  expect_error(run({"run", "--model", demo()}), 2, {"--tasks"});
  expect_error(run({""}), 2, {});
}

TEST_F(BadRunTest, Haystacks) {
  const auto with = [&](const std::string& haystack) { return niah({"--niah-haystack", haystack}); };
  fs::create_directory(path("empty"));
  expect_error(with(path("empty")), 11, {path("empty")});
  expect_error(with(path("nowhere")), 11, {path("nowhere")});
  expect_error(with(write("zero.txt", "")), 11, {"zero.txt"});
  expect_error(with(write("blanks.txt", "\n \n\t\n")), 11, {"blanks.txt"});
  write("others/notes.md", "text that is no .txt");
  expect_error(with(path("others")), 11, {path("others"), ".txt"});
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  expect_error(with(path("pipe")), 11, {path("pipe")});
  fs::create_symlink("circle", path("circle"));
  expect_error(with(path("circle")), 11, {path("circle")});
  // What is text of a kind is used: one byte, bytes that are no UTF-8 (counted and told), NULs.
  for (const std::string& text : {std::string("a"), std::string("One sentence. \xFF\xFE Another \xC3."),
                                  std::string("A\0B. C\0D.", 9), std::string(2 << 20, 'x')}) {
    SCOPED_TRACE(text.substr(0, 20));
    const ProcessResult result = with(write("hay.txt", text));
    if (result.status != 0) expect_error(result, 11, {"hay.txt"});
  }
  expect_intact();
}

TEST_F(BadRunTest, ModelsThatAreNotThere) {
  expect_error(run_niah("/no/such/folder"), 7, {"/no/such/folder"});
  expect_error(run_niah(write("file", "x")), 7, {"file"});
  expect_error(run_niah(path("")), 7, {path("")});
  expect_error(run_niah(std::string(5000, 'x')), 7, {"xxx"});
  expect_error(run_niah("a\nb\x1b[31mc"), 7, {"a\\nb"});
  expect_error(niah({"--tokenizer", "/no/such/folder"}), 7, {"/no/such/folder"});
  expect_error(run({"bench", "--model", "/no/such/folder", "--save", "--db", path("runs.db")}), 7, {"/no/such/folder"});
  for (const char* file : {"runs.db", "runs.db-journal", "runs.db-wal"}) EXPECT_FALSE(fs::exists(path(file))) << file;
}

TEST_F(BadRunTest, FilesWithoutPermission) {
  HAY_NEED_USER();
  const std::string copy = copy_of_demo("demo");
  fs::permissions(folder_.path(), fs::perms::all);
  ProcessOptions options = test::as_user();
  options.cwd = folder_.path();
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json", "hayfork.json",
                           "generation_config.json", "tokenizer_config.json"}) {
    SCOPED_TRACE(name);
    const fs::path file = fs::path(copy) / name;
    fs::permissions(file, fs::perms::none);
    expect_error(test::hayfork({"run", "--model", copy, "--tasks", "niah", "--db", path("p.db")}, options), 7,
                 {name, "ermission"});
    fs::permissions(file, fs::perms::all);
  }
  fs::permissions(copy, fs::perms::none);
  expect_error(test::hayfork({"run", "--model", copy, "--tasks", "niah", "--db", path("p.db")}, options), 7,
               {copy, "ermission"});
  fs::permissions(copy, fs::perms::all);
  EXPECT_FALSE(fs::exists(path("p.db")));
}

TEST_F(BadRunTest, SettingsFiles) {
  for (const char* text :
       {"[1]", "text", "lenghts: 4k", "lengths: {a: b}", "run: 7", "rnu: {lengths: 4k}", "lengths: [[1]]", "a: b: c",
        "\t- x", "run: {lengths: abc}", "&a [*a]", "lengths: \"\xFF\""}) {
    SCOPED_TRACE(text);
    write("hayfork.yaml", text);
    expect_error(run({"run", "--model", demo(), "--tasks", "niah", "--dry-run"}), 2, {"hayfork.yaml"});
  }
  std::string bomb = "a0: &a0 [x]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + "," + before + "]\n";
  }
  write("hayfork.yaml", bomb);
  expect_error(run({"run", "--model", demo(), "--tasks", "niah", "--dry-run"}), 2, {"hayfork.yaml"});
  write("hayfork.yaml", std::string(1 << 20, '['));
  expect_error(run({"run", "--model", demo(), "--tasks", "niah", "--dry-run"}), 2, {"hayfork.yaml"});
}

}  // namespace
}  // namespace hayfork::cli
