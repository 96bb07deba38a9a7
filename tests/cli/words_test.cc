// Small helpers of the command line: suggestions, durations, completion.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/complete.h"
#include "cli/suggest.h"
#include "cli/times.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::cli {
namespace {

TEST(EditDistance, CountsASwapOnce) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("rnu", "run"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
}

TEST(DidYouMean, IsSilentWhenNothingIsNear) {
  const std::vector<std::string> words = {"lengths", "depths", "limit"};
  EXPECT_EQ(did_you_mean("lenghts", words, "-"), "did you mean lengths?");
  EXPECT_EQ(did_you_mean("xyzzy", words, "-"), "-");
  EXPECT_EQ(did_you_mean("len", words, "-"), "did you mean lengths?");
}

TEST(Duration, ReadsUnits) {
  EXPECT_DOUBLE_EQ(parse_duration("50m", "--x"), 3000);
  EXPECT_DOUBLE_EQ(parse_duration("1h30m", "--x"), 5400);
  EXPECT_DOUBLE_EQ(parse_duration("1.5", "--x"), 1.5);
  EXPECT_THROW(parse_duration("soon", "--x"), Error);
  EXPECT_THROW(parse_duration("5 m", "--x"), Error);
  EXPECT_THROW(parse_duration("-5m", "--x"), Error);
}

std::vector<std::string> completed(const std::vector<std::string>& words) {
  std::vector<std::string> found;
  for (const Candidate& candidate : complete(words, "/no/such.db").candidates) found.push_back(candidate.word);
  return found;
}

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Complete, Verbs) {
  EXPECT_THAT(completed({"he"}), ElementsAre("heatmap", "help"));
  EXPECT_THAT(completed({""}), Contains("run"));
  EXPECT_THAT(completed({""}), Not(Contains("__complete")));
}

TEST(Complete, Parts) {
  EXPECT_THAT(completed({"probe", "log"}), ElementsAre("logits", "logprobs"));
}

TEST(Complete, FlagsAndTheirValues) {
  EXPECT_THAT(completed({"run", "--len"}), ElementsAre("--lengths"));
  EXPECT_THAT(completed({"run", "--num_f"}), ElementsAre("--num-fewshot"));
  EXPECT_THAT(completed({"run", "--dtype", ""}), ElementsAre("auto", "f32", "bf16"));
  EXPECT_THAT(completed({"run", "--dtype=b"}), ElementsAre("--dtype=bf16"));
  EXPECT_THAT(completed({"run", "--tasks", "ni"}), Contains("niah"));
  EXPECT_EQ(complete(std::vector<std::string>{"run", "--model", ""}, "").files, "dir");
}

TEST(Complete, Arguments) {
  EXPECT_THAT(completed({"completion", ""}), ElementsAre("bash", "zsh", "fish", "powershell"));
  EXPECT_THAT(completed({"explain", "HAY-W00"}), Contains("HAY-W003"));
  EXPECT_THAT(completed({"nonsense", ""}), IsEmpty());
}

TEST(Completion, ScriptsAreSoundAndAskTheProgram) {
  for (const char* shell : {"bash", "zsh", "fish", "powershell"}) {
    const test::ProcessResult script = test::hayfork({"completion", shell});
    EXPECT_EQ(script.status, 0);
    EXPECT_THAT(script.out, ::testing::HasSubstr("hayfork __complete"));
  }
  EXPECT_EQ(test::hayfork({"completion", "tcsh"}).status, 2);
  // The bash script, run by bash itself: the second word after "probe logp".
  const std::string program =
      "PATH=\"$(dirname \"$0\"):$PATH\"; source <(hayfork completion bash); COMP_WORDS=(hayfork probe logp); "
      "COMP_CWORD=2; _hayfork; echo \"${COMPREPLY[@]}\"";
  const test::ProcessResult bash = test::run_process("/bin/bash", {"-c", program, test::binary().string()});
  EXPECT_EQ(bash.out, "logprobs\n") << bash.err;
}

}  // namespace
}  // namespace hayfork::cli
