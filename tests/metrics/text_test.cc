// Reference numbers: rouge_score 0.1.2 and NLTK 3.10 for ROUGE-1 and the stemmer.
#include "metrics/text.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace hayfork::metrics {
namespace {

constexpr const char* kDolores =
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park on a sunny day.";

TEST(HoldsNumber, WantsNoDigitOnEitherSide) {
  EXPECT_TRUE(holds_number(" 48213.\n", "48213"));
  EXPECT_TRUE(holds_number("it is 48213, I think", "48213"));
  EXPECT_FALSE(holds_number("148213", "48213"));
  EXPECT_FALSE(holds_number("482130", "48213"));
  EXPECT_TRUE(holds_number("148213 48213", "48213"));
  EXPECT_FALSE(holds_number("", "48213"));
}

TEST(HoldsNumber, SeesThroughThousandsSeparatorsAndWideDigits) {
  EXPECT_TRUE(holds_number("The number is 1,234,567.", "1234567"));
  EXPECT_TRUE(holds_number("1'234'567", "1234567"));
  EXPECT_TRUE(holds_number("1\u202F234\u202F567", "1234567"));
  EXPECT_TRUE(holds_number("\uFF11\uFF12\uFF13\uFF14\uFF15", "12345"));
  EXPECT_FALSE(holds_number("12,34,567", "1234567"));
  EXPECT_FALSE(holds_number("1234 567", "1234567"));
  EXPECT_FALSE(holds_number("1,234,5678", "1234567"));
  EXPECT_TRUE(holds_number(std::string("\xFF"
                                       "77\0 12345",
                                       10),
                           "12345"));
}

TEST(FirstAnswerLine, StopsAfterTheFirstLineWithText) {
  EXPECT_EQ(first_answer_line(" 48213.\nNext"), " 48213.");
  EXPECT_EQ(first_answer_line("\n \n48213\nmore"), "\n \n48213");
  EXPECT_EQ(first_answer_line("no end"), "no end");
  EXPECT_EQ(first_answer_line("\n\n"), "\n\n");
}

TEST(StringMatch, IsRulersSubstringRuleInLowerCase) {
  EXPECT_DOUBLE_EQ(string_match_all("the Words are APPLE and pear", {"apple", "Pear", "plum"}), 2.0 / 3);
  EXPECT_EQ(string_match_part("Paris, of course", {"paris", "lyon"}), 1);
  EXPECT_EQ(string_match_part("", {"paris"}), 0);
}

TEST(WordRecall, GivesAPerfectAnswerOne) {
  EXPECT_EQ(word_recall("eat a sandwich and sit in Dolores Park on a sunny day",
                        "eat a sandwich and sit in dolores park on a sunny day."),
            1);
  // 4 of the 11 distinct words: a, and, in, on.
  EXPECT_DOUBLE_EQ(word_recall("on a hill and in a valley", "eat a sandwich and sit in dolores park on a sunny day."),
                   4.0 / 11);
  EXPECT_EQ(word_recall("", "eat"), 0);
}

TEST(Rouge1, MatchesRougeScore) {
  const Rouge a = rouge1("eat a sandwich and sit in Dolores Park on a sunny day.", kDolores);
  EXPECT_DOUBLE_EQ(a.precision, 1);
  EXPECT_DOUBLE_EQ(a.recall, 0.5714285714285714);
  EXPECT_DOUBLE_EQ(a.f, 0.7272727272727273);
  EXPECT_DOUBLE_EQ(rouge1("Eating sandwiches, sitting in parks on sunny days!", kDolores).f, 0.5517241379310345);
  EXPECT_DOUBLE_EQ(rouge1("the the the the", kDolores).f, 0.08);
  EXPECT_EQ(rouge1("", kDolores).f, 0);
  EXPECT_DOUBLE_EQ(rouge1("Visit the Golden Gate Bridge; flies and dying skies 1,234", kDolores).f, 0.125);
}

TEST(PorterStem, MatchesNltk) {
  std::istringstream words(
      "caresses ponies ties caress cats feed agreed plastered bled motoring sing conflated troubled sized hopping "
      "tanned "
      "falling hissing fizzed failing filing happy sky enjoy relational conditional rational valenci hesitanci "
      "digitizer "
      "conformabli radicalli differentli vileli analogousli vietnamization predication operator feudalism decisiveness "
      "hopefulness callousness formaliti sensitiviti sensibiliti triplicate formative formalize electriciti electrical "
      "hopeful goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement "
      "adjustment dependent adoption homologou communism activate angulariti homologous effective bowdlerize probate "
      "rate "
      "cease controll roll dies died spied flies dying news geology archaeology fully hopefully carefully yyyy by "
      "tried "
      "innings succeed generally possibly 1234s as");
  std::istringstream stems(
      "caress poni tie caress cat feed agre plaster bled motor sing conflat troubl size hop tan fall hiss fizz fail "
      "file "
      "happi sky enjoy relat condit ration valenc hesit digit conform radic differ vile analog vietnam predic oper "
      "feudal "
      "decis hope callous formal sensit sensibl triplic form formal electr electr hope good reviv allow infer airlin "
      "gyroscop adjust defens irrit replac adjust depend adopt homolog commun activ angular homolog effect bowdler "
      "probat "
      "rate ceas control roll die die spi fli die news geolog archaeolog fulli hope care yyyi by tri inning succeed "
      "gener "
      "possibl 1234 as");
  std::string word, stem;
  int n = 0;
  while (words >> word) {
    ASSERT_TRUE(stems >> stem);
    EXPECT_EQ(porter_stem(word), stem) << word;
    ++n;
  }
  EXPECT_EQ(n, 96);
}

}  // namespace
}  // namespace hayfork::metrics
