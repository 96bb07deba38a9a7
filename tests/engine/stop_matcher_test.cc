#include "engine/text/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace hayfork::engine {
namespace {

std::string feed_all(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) out += matcher.feed(piece);
  return out + matcher.finish();
}

TEST(StopMatcher, FindsAStopStringAcrossPieces) {
  StopMatcher matcher({"\n\nQ:"});
  EXPECT_EQ(feed_all(matcher, {"Paris.\n", "\n", "Q", ": what", " more"}), "Paris.");
  EXPECT_TRUE(matcher.hit());
  EXPECT_EQ(matcher.hit_text(), "\n\nQ:");
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldStillMatch) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.feed("the E"), "the ");
  EXPECT_EQ(matcher.feed("NE"), "EN");  // "EN" cannot be followed by a D any more, the last E can begin again
  EXPECT_EQ(matcher.finish(), "E");
  EXPECT_FALSE(matcher.hit());
}

TEST(StopMatcher, FirstCompleteWinsAndOfThoseTheLongest) {
  StopMatcher first({"abcdX", "bc"});
  EXPECT_EQ(feed_all(first, {"zabcdX"}), "za");
  EXPECT_EQ(first.hit_text(), "bc");
  StopMatcher longest({"c", "abc"});
  EXPECT_EQ(feed_all(longest, {"zab", "c"}), "z");
  EXPECT_EQ(longest.hit_text(), "abc");
}

TEST(StopMatcher, WithoutStopStringsPassesEverything) {
  StopMatcher matcher({"", ""});
  EXPECT_EQ(matcher.feed("anything"), "anything");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, DoesNotDependOnHowTheTextIsCut) {
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += static_cast<char>('a' + rng.below(3));
    const std::vector<std::string> stops = {"abca", "cab", "bbb", "aacc"};
    StopMatcher whole(stops);
    const std::string expected = feed_all(whole, {text});
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + rng.below(5);
      pieces.push_back(text.substr(at, n));
      at += n;
    }
    StopMatcher cut(stops);
    EXPECT_EQ(feed_all(cut, pieces), expected) << text;
    EXPECT_EQ(cut.hit(), whole.hit()) << text;
  }
}

}  // namespace
}  // namespace hayfork::engine
