// The hand-written scanners: the table of golden splits, and the same pieces as their regular expressions on random
// text.
#include "engine/text/splitter.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "engine/text/regex.h"
#include "engine/text/unicode.h"

namespace hayfork::engine {
namespace {

using Pieces = std::vector<std::string>;
constexpr SplitPattern kAll[] = {SplitPattern::gpt2,   SplitPattern::qwen2, SplitPattern::qwen3_5,
                                 SplitPattern::llama3, SplitPattern::o200k, SplitPattern::tekken};

Pieces split(SplitPattern pattern, const std::string& text) {
  Pieces out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(pattern, text, at);
    EXPECT_GT(end, at);
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

struct Row {
  std::string text;
  Pieces gpt2, qwen2, llama3, o200k, tekken;
};

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {"I'll pay $1234.50  for it!!\n\n  OK",
       {"I", "'ll", " pay", " $", "1234", ".", "50", " ", " for", " it", "!!", "\n\n ", " OK"},
       {"I", "'ll", " pay", " $", "1", "2", "3", "4", ".", "5", "0", " ", " for", " it", "!!\n\n", " ", " OK"},
       {"I", "'ll", " pay", " $", "123", "4", ".", "50", " ", " for", " it", "!!\n\n", " ", " OK"},
       {"I'll", " pay", " $", "123", "4", ".", "50", " ", " for", " it", "!!\n\n", " ", " OK"},
       {"I", "'ll", " pay", " $", "1", "2", "3", "4", ".", "5", "0", " ", " for", " it", "!!\n\n", " ", " OK"}},
      {"HelloWorld's eBay x1y  ",
       {"HelloWorld", "'s", " eBay", " x", "1", "y", "  "},
       {"HelloWorld", "'s", " eBay", " x", "1", "y", "  "},
       {"HelloWorld", "'s", " eBay", " x", "1", "y", "  "},
       {"Hello", "World's", " e", "Bay", " x", "1", "y", "  "},
       {"Hello", "World", "'s", " e", "Bay", " x", "1", "y", "  "}},
      {"a/b//\nc",
       {"a", "/", "b", "//", "\n", "c"},
       {"a", "/b", "//\n", "c"},
       {"a", "/b", "//\n", "c"},
       {"a", "/b", "//\n", "c"},
       {"a", "/b", "//\n", "c"}},
      {"it's IT'S \u017F\u2019s 'S",
       {"it", "'s", " IT", "'", "S", " \u017F", "\u2019", "s", " '", "S"},
       {"it", "'s", " IT", "'S", " \u017F", "\u2019s", " '", "S"},
       {"it", "'s", " IT", "'S", " \u017F", "\u2019s", " '", "S"},
       {"it's", " IT'S", " \u017F", "\u2019s", " '", "S"},
       {"it", "'s", " IT", "'S", " \u017F", "\u2019s", " '", "S"}},
      {"a\u00A0b\u3000c\tdef",
       {"a", "\u00A0", "b", "\u3000", "c", "\t", "def"},
       {"a", "\u00A0b", "\u3000c", "\tdef"},
       {"a", "\u00A0b", "\u3000c", "\tdef"},
       {"a", "\u00A0b", "\u3000c", "\tdef"},
       {"a", "\u00A0b", "\u3000c", "\tdef"}},
      {"\r\n\r\n x \n y",
       {"\r\n\r\n", " x", " \n", " y"},
       {"\r\n\r\n", " x", " \n", " y"},
       {"\r\n\r\n", " x", " \n", " y"},
       {"\r\n\r\n", " x", " \n", " y"},
       {"\r\n\r\n", " x", " \n", " y"}},
      {"12345 6\u00BD\u2167",
       {"12345", " 6\u00BD\u2167"},
       {"1", "2", "3", "4", "5", " ", "6", "\u00BD", "\u2167"},
       {"123", "45", " ", "6\u00BD\u2167"},
       {"123", "45", " ", "6\u00BD\u2167"},
       {"1", "2", "3", "4", "5", " ", "6", "\u00BD", "\u2167"}},
      {"e\u0301te\u0301 \u0928\u092E\u0938\u094D\u0924\u0947",
       {"e", "\u0301", "te", "\u0301", " \u0928\u092E\u0938", "\u094D", "\u0924", "\u0947"},
       {"e", "\u0301te", "\u0301", " \u0928\u092E\u0938", "\u094D\u0924", "\u0947"},
       {"e", "\u0301te", "\u0301", " \u0928\u092E\u0938", "\u094D\u0924", "\u0947"},
       {"e\u0301te\u0301", " \u0928\u092E\u0938\u094D\u0924\u0947"},
       {"e\u0301te\u0301", " \u0928\u092E\u0938\u094D\u0924\u0947"}},
  };
  return rows;
}

TEST(Splitter, CutsTheGoldenTable) {
  for (const Row& row : table()) {
    EXPECT_EQ(split(SplitPattern::gpt2, row.text), row.gpt2);
    EXPECT_EQ(split(SplitPattern::qwen2, row.text), row.qwen2);
    EXPECT_EQ(split(SplitPattern::llama3, row.text), row.llama3);
    EXPECT_EQ(split(SplitPattern::o200k, row.text), row.o200k);
    EXPECT_EQ(split(SplitPattern::tekken, row.text), row.tekken);
    // Marks count as letters: only the last row tells Qwen3.5 from Qwen2.
    const bool last = &row == &table().back();
    EXPECT_EQ(split(SplitPattern::qwen3_5, row.text), last ? row.o200k : row.qwen2);
  }
}

TEST(Splitter, KnowsCapitalsFromSmallLetters) {
  EXPECT_EQ(split(SplitPattern::o200k, "\u6F22ABC!"), (Pieces{"\u6F22", "ABC", "!"}));
  EXPECT_EQ(split(SplitPattern::o200k, "ABC\u6F22!"), (Pieces{"ABC\u6F22", "!"}));
  EXPECT_EQ(split(SplitPattern::o200k, "ABCdefGHI"), (Pieces{"ABCdef", "GHI"}));
  EXPECT_EQ(split(SplitPattern::o200k, "HTTPServer's"), (Pieces{"HTTPServer's"}));
}

TEST(Splitter, RecognisesItsExpressionsAndNoOthers) {
  for (const SplitPattern pattern : kAll) EXPECT_EQ(known_pattern(pattern_text(pattern)), pattern);
  EXPECT_EQ(known_pattern(pattern_text(SplitPattern::qwen2) + " "), std::nullopt);
}

std::string random_text(Rng& rng) {
  static const std::vector<std::string> kBits = {
      " ",      "  ",     "\n",      "\r\n",    "\t",         "\u00A0",     "\u3000", "\u0085", "\u200B", "'s",
      "'S",     "'LL",    "'\u017F", "'",       "s",          "A",          "b",      "Zz",     "\u01C5", "\u02B0",
      "\u6F22", "\u0301", "\u094D",  "\u0928",  "1",          "23",         "\u00BD", "\u2167", ".",      "/",
      "//",     "\u2019", "$",       "\u1F600", "\U0001F600", "\U00010D50", "\u0295", "\u180E"};
  std::string out;
  for (uint64_t n = 1 + rng.below(20); n > 0; --n) {
    if (rng.below(8) == 0) {
      append_utf8(out, static_cast<char32_t>(rng.below(rng.below(2) == 0 ? 0x3000 : 0x110000)));
    } else {
      out += kBits[rng.below(kBits.size())];
    }
  }
  return out;
}

TEST(Splitter, AgreesWithItsExpressionsOnRandomText) {
  std::vector<Regex> expressions;
  for (const SplitPattern pattern : kAll) expressions.emplace_back(pattern_text(pattern));
  Rng rng(1, "splitter");
  for (int round = 0; round < 400; ++round) {
    const std::string text = random_text(rng);
    for (size_t i = 0; i < std::size(kAll); ++i) {
      Pieces want;
      size_t covered = 0;
      for (const auto& [begin, end] : expressions[i].find_all(text)) {
        want.push_back(text.substr(begin, end - begin));
        covered += end - begin;
      }
      ASSERT_EQ(covered, text.size());
      EXPECT_EQ(split(kAll[i], text), want) << pattern_text(kAll[i]);
    }
  }
}

TEST(Regex, ReadsOnigurumasDialect) {
  const auto found = [](const std::string& pattern, const std::string& text) {
    Pieces out;
    for (const auto& [begin, end] : Regex(pattern).find_all(text)) out.push_back(text.substr(begin, end - begin));
    return out;
  };
  EXPECT_EQ(found("\\h+", "xfF9z"), (Pieces{"fF9"}));       // hexadecimal digits, not blanks
  EXPECT_EQ(found("^.", "a\nb"), (Pieces{"a", "b"}));       // line starts
  EXPECT_EQ(found("(?m)a.b", "a\nb"), (Pieces{"a\nb"}));    // the dot of (?m) takes line ends
  EXPECT_EQ(found("(?m).", "\r\n"), (Pieces{"\r", "\n"}));  // one character at a time, CR LF too
  EXPECT_EQ(found("(?m:a.)b.", "a\nb\na\nbc"), (Pieces{"a\nbc"}));
  EXPECT_EQ(found("\\s", "\x1C\u200B\u0085"), (Pieces{"\u0085"}));                    // White_Space alone
  EXPECT_EQ(found("\\p{L}+", "a\u1C89\U00010D50b"), (Pieces{"a\u1C89\U00010D50b"}));  // letters of Unicode 16
  EXPECT_EQ(found("[^\\p{L}\\s]+", "ab,; c"), (Pieces{",;"}));
  EXPECT_EQ(found("[[:punct:]]", "a$\u2581"), (Pieces{"$", "\u2581"}));
  EXPECT_EQ(found("[]a]+", "]a"), (Pieces{"]a"}));
}

TEST(Regex, RefusesWhatItCannotSayTheSameWay) {
  for (const char* pattern : {"a{1,3}+", "\\bword", "(", "a\\K", "\\p{Nonsense}", "\\p", "[a", "\\"}) {
    try {
      Regex regex{pattern};
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << pattern;
      EXPECT_NE(std::string(error.what()).find(pattern), std::string::npos) << error.what();
    }
  }
}

TEST(Regex, GivesUpOnEndlessBacktracking) {
  const std::string text = std::string(60, 'a') + "!";
  EXPECT_THROW(Regex("(a+a+)+b").find_all(text), Error);
}

TEST(Unicode, ClassesAreThoseOfUnicode16) {
  int letters = 0, marks = 0, numbers = 0, spaces = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const uint16_t bits = unicode::char_class(c);
    letters += (bits & unicode::kLetter) != 0;
    marks += (bits & unicode::kMark) != 0;
    numbers += (bits & unicode::kNumber) != 0;
    spaces += (bits & unicode::kSpace) != 0;
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(marks, 2501);
  EXPECT_EQ(numbers, 1911);
  EXPECT_EQ(spaces, 25);
  EXPECT_EQ(unicode::category(0x295), unicode::Ll);
  EXPECT_EQ(unicode::lower_case(0x410), 0x430u);
  EXPECT_EQ(unicode::lower_case('z'), static_cast<char32_t>('z'));
}

}  // namespace
}  // namespace hayfork::engine
