// The program's manners: verbs, flags, help, exit statuses, documentation that is up to date.
#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file_map.h"
#include "base/utf8.h"
#include "cli/codes.h"
#include "cli/command.h"
#include "cli/help.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::cli {
namespace {

using test::hayfork;
using test::ProcessResult;
using ::testing::HasSubstr;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST(Program, NeedsAVerb) {
  const ProcessResult result = hayfork({});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("error: no verb"));
}

TEST(Program, SuggestsTheVerbThatWasMeant) {
  const ProcessResult result = hayfork({"rnu", "--model", "m"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown verb \"rnu\""));
  EXPECT_THAT(result.err, HasSubstr("did you mean run?"));
}

TEST(Program, VerbsOfLaterVersionsAreNotThere) {
  EXPECT_EQ(hayfork({"frobnicate"}).status, 2);
  EXPECT_THAT(hayfork({"frobnicate"}).err, HasSubstr("hayfork help lists them"));
}

TEST(Program, SuggestsTheFlagThatWasMeant) {
  const ProcessResult result = hayfork({"run", "--model", "m", "--tasks", "niah", "--lenghts", "4k"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown flag --lenghts"));
  EXPECT_THAT(result.err, HasSubstr("did you mean --lengths or --length?"));
}

TEST(Program, SuggestsThePartThatWasMeant) {
  EXPECT_THAT(hayfork({"show", "mdoel", "demo/full"}).err, HasSubstr("did you mean model?"));
  EXPECT_THAT(hayfork({"probe", "logitz"}).err, HasSubstr("did you mean logits?"));
  EXPECT_THAT(hayfork({"list", "rnus"}).err, HasSubstr("did you mean runs?"));
}

TEST(Program, SuggestsTheTaskThatWasMeant) {
  const ProcessResult result = hayfork({"run", "--model", "m", "--tasks", "naih", "--dry-run"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean niah?"));
}

TEST(Program, UnderscoresAreHyphensInFlags) {
  const ProcessResult result = hayfork({"run", "--model", "m", "--tasks", "niah", "--batch_size", "zero"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--batch-size"));
  const ProcessResult other = hayfork({"run", "--model", "m", "--tasks", "niah", "--num_fewshot=x"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("--num-fewshot: cannot read \"x\""));
}

TEST(Program, OptionsOfOneFamilyHaveABareName) {
  for (const char* flag : {"--niah-kind", "--kind", "--niah_kind"}) {
    const ProcessResult result = hayfork(
        {"show", "prompt", "niah", "--model", (test::source_dir() / "demo" / "full").string(), flag, "nonsense"});
    EXPECT_EQ(result.status, 2) << flag;
    EXPECT_THAT(result.err, HasSubstr("nonsense")) << flag;
  }
}

TEST(Program, AFlagNeedsItsValue) {
  const ProcessResult result = hayfork({"run", "--model"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--model needs a value"));
}

TEST(Program, NamesTheRequiredFlag) {
  const ProcessResult result = hayfork({"run", "--tasks", "niah"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("run needs --model M"));
}

TEST(Program, RefusesArgumentsItDoesNotKnow) {
  const ProcessResult result = hayfork({"version", "please"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("unexpected argument \"please\""));
}

TEST(Program, RefusesUnknownChoices) {
  const ProcessResult result = hayfork({"list", "tasks", "-o", "jsno"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean json"));
}

TEST(Program, ErrorsAreFourLinesAtMost) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"rnu"}, {"probe"}, {"probe", "logitz"}, {"show", "sample"}, {"run", "--model", "x", "--tasks", "niah"}}) {
    const ProcessResult result = hayfork(arguments);
    EXPECT_NE(result.status, 0);
    EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 4) << result.err;
  }
}

TEST(Program, AMissingModelIsSeven) {
  const ProcessResult result = hayfork({"show", "model", "/no/such/folder"});
  EXPECT_EQ(result.status, 7);
  EXPECT_THAT(result.err, HasSubstr("/no/such/folder"));
}

TEST(Program, AMissingRequestFileIsEleven) {
  EXPECT_EQ(hayfork({"probe", "nll", "--model", "m", "--requests", "/no/such/file"}).status, 11);
}

TEST(Program, AMissingDatabaseIsSix) {
  const ProcessResult result = hayfork({"list", "runs", "--db", "/no/such/file.db"});
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.err, HasSubstr("/no/such/file.db"));
}

TEST(Program, AFullStandardOutputIsSix) {
  const ProcessResult result =
      test::run_process("/bin/sh", {"-c", "exec \"$0\" help run > /dev/full", test::binary().string()});
  EXPECT_EQ(result.status, 6);
  EXPECT_THAT(result.err, HasSubstr("cannot write the results"));
}

TEST(Program, ColourOnlyWhenAsked) {
  EXPECT_EQ(hayfork({"help"}).out.find('\x1b'), std::string::npos);
  EXPECT_NE(hayfork({"help"}, {.environment = {{"CLICOLOR_FORCE", "1"}}}).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(hayfork({"help"}, {.environment = {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}}).out.find('\x1b'),
            std::string::npos);
  EXPECT_EQ(hayfork({"--plain", "help"}, {.environment = {{"CLICOLOR_FORCE", "1"}}}).out.find('\x1b'),
            std::string::npos);
}

TEST(Version, AsTextAndAsJson) {
  EXPECT_THAT(hayfork({"version"}).out, ::testing::StartsWith("hayfork 0."));
  EXPECT_THAT(hayfork({"--version"}).out, ::testing::StartsWith("hayfork 0."));
  EXPECT_THAT(hayfork({"version", "--json"}).out,
              ::testing::StartsWith("{\"schema\":\"hayfork/version/1\",\"version\":\"0."));
}

TEST(Explain, KnowsCodesAndStatuses) {
  EXPECT_THAT(hayfork({"explain", "HAY-W003"}).out, HasSubstr("write-ahead log"));
  EXPECT_THAT(hayfork({"explain", "w003"}).out, HasSubstr("write-ahead log"));
  EXPECT_THAT(hayfork({"explain", "6"}).out, HasSubstr("storage"));
  EXPECT_EQ(hayfork({"explain", "HAY-W999"}).status, 2);
  EXPECT_EQ(hayfork({"explain"}).status, 0);
}

// ---- help and documentation ----------------------------------------------------------------------------------------

TEST(Help, EveryVerbHasOne) {
  for (const Command& command : commands()) {
    std::vector<std::string> arguments = words_of(command.path);
    arguments.push_back("--help");
    const ProcessResult result = hayfork(arguments);
    EXPECT_EQ(result.status, 0) << command.path;
    EXPECT_EQ(result.err, "") << command.path;
    EXPECT_THAT(result.out, HasSubstr("hayfork " + command.path)) << command.path;
    EXPECT_THAT(result.out, HasSubstr("usage:")) << command.path;
  }
}

TEST(Help, WorksWhateverElseIsWrong) {
  EXPECT_EQ(hayfork({"run", "--no-such-flag", "--help"}).status, 0);
  EXPECT_EQ(hayfork({"--help"}).status, 0);
  EXPECT_EQ(hayfork({"probe", "--help"}).status, 0);
  EXPECT_EQ(hayfork({"show", "--help"}).status, 0);
  EXPECT_EQ(hayfork({"help", "probe", "logits"}).status, 0);
  EXPECT_EQ(hayfork({"help", "nonsense"}).status, 2);
}

TEST(Help, FitsInAHundredColumns) {
  const Console console({.plain = true});
  for (const Command& command : commands()) {
    std::istringstream lines(help_of(command, console));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(count_code_points(line), 100u) << command.path << ": " << line;
    }
  }
}

TEST(Help, EveryFlagIsExplained) {
  for (const Command& command : commands()) {
    Flags flags;
    const Action action = command.declare(flags);
    EXPECT_FALSE(command.summary.empty());
    std::set<std::string> names;
    for (const auto& info : flags.all()) {
      EXPECT_GT(info->help.size(), 3u) << command.path << " " << info->name;
      EXPECT_TRUE(names.insert(info->name).second) << command.path << " declares " << info->name << " twice";
      if (!info->argument) {
        EXPECT_EQ(fold_underscores(info->name), info->name);
      }
    }
  }
}

TEST(Documentation, IsMadeFromTheHelpTexts) {
  const std::string path = (test::source_dir() / "docs" / "cli.md").string();
  const std::string document = read_file(path, ErrorSubject::general);
  EXPECT_TRUE(document == help_markdown()) << "docs/cli.md is out of date: scripts/make_cli_docs.sh";
}

TEST(Documentation, EveryCodeInTheSourcesIsExplained) {
  std::set<std::string> known;
  for (const CodeText& text : code_texts()) known.emplace(text.code);
  const std::regex code("HAY-[WE][0-9]{3}");
  for (const char* folder : {"src", "engine", "tasks", "datasets", "metrics", "runs"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(test::source_dir() / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cc" && extension != ".h" && extension != ".cu") continue;
      const std::string text = read_file(entry.path(), ErrorSubject::general);
      for (std::sregex_iterator it(text.begin(), text.end(), code), end; it != end; ++it) {
        if (it->str() == "HAY-W014" && entry.path().filename() == "events.h") continue;  // an example in a comment
        EXPECT_TRUE(known.contains(it->str())) << it->str() << " in " << entry.path();
      }
    }
  }
}

}  // namespace
}  // namespace hayfork::cli
