#include "engine/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace hayfork::engine {
namespace {

using testing::HasSubstr;

template <typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.subject(), ErrorSubject::model);
    return std::string(name(error.code())) + ": " + error.render();
  }
  return "accepted";
}

const ConfigKeys kKeys = {
    .used = {"a", "b"}, .inert = {"note"}, .must_be_default = {{"mode", "\"plain\""}, {"flag", "true"}}};

std::string check(const std::string& text, std::vector<std::string> ignored = {}, bool strict = false,
                  std::vector<Event>* events = nullptr) {
  const EventSink sink = [&](const Event& event) {
    if (events != nullptr) events->push_back(event);
  };
  return refusal([&] {
    Config config = Config::parse(text, "config.json");
    config.check_keys(kKeys, {.strict = strict, .ignored = ignored, .events = &sink});
  });
}

TEST(ConfigKeysTest, UsedAndInertKeysPass) {
  EXPECT_EQ(check(R"({"a":1,"note":[1,2]})"), "accepted");
}

TEST(ConfigKeysTest, AnUnknownKeyIsAnErrorThatNamesIt) {
  const std::string message = check(R"({"a":1,"attention_sparsity":0.5})");
  EXPECT_THAT(message, HasSubstr("unsupported"));
  EXPECT_THAT(message, HasSubstr("attention_sparsity"));
  EXPECT_THAT(message, HasSubstr("--ignore-config-key attention_sparsity"));
}

TEST(ConfigKeysTest, AnUnknownKeyThatIsEmptyIsAWarning) {
  for (const char* value : {"null", "false", "[]", "{}", "\"\""}) {
    std::vector<Event> events;
    EXPECT_EQ(check(std::string(R"({"x":)") + value + "}", {}, false, &events), "accepted") << value;
    ASSERT_EQ(events.size(), 1u) << value;
    EXPECT_EQ(events[0].level, Event::Level::warn);
    EXPECT_THAT(events[0].message, HasSubstr("\"x\""));
  }
}

TEST(ConfigKeysTest, IgnoringAKeyLoadsAndWarns) {
  std::vector<Event> events;
  EXPECT_EQ(check(R"({"x":7})", {"x"}, false, &events), "accepted");
  EXPECT_EQ(events.size(), 1u);
}

TEST(ConfigKeysTest, AMustBeDefaultKeyWithAnotherValueIsRefused) {
  EXPECT_EQ(check(R"({"mode":"plain","flag":true})"), "accepted");
  EXPECT_EQ(check(R"({"mode":null,"flag":null})"), "accepted");
  EXPECT_EQ(check(R"({"mode":false})"), "accepted");  // not used
  EXPECT_THAT(check(R"({"flag":false})"), HasSubstr("only its default true"));
  EXPECT_THAT(check(R"({"mode":"other"})"), HasSubstr("only its default \"plain\""));
  EXPECT_EQ(check(R"({"mode":"other"})", {"mode"}), "accepted");
}

TEST(ConfigKeysTest, AStrictObjectTakesNoUnknownKeyAtAll) {
  EXPECT_THAT(check(R"({"x":null})", {}, true), HasSubstr("unknown config key \"x\""));
  EXPECT_THAT(check(R"({"x":1})", {"x"}, true), HasSubstr("unknown config key \"x\""));
}

TEST(ConfigValues, AreCheckedForTypeAndRange) {
  const Config c = Config::parse(R"({"n":5,"big":1000000000000,"neg":-3,"text":"x","f":0.5,"whole":8.0,"list":[1,"a"],
                                     "huge":18446744073709551615,"flag":1})",
                                 "config.json");
  EXPECT_EQ(c.integer("n", 1, 10), 5);
  EXPECT_EQ(c.integer("whole", 1, 10), 8);
  EXPECT_EQ(c.integer("absent", 1, 10, 7), 7);
  EXPECT_THAT(refusal([&] { c.integer("absent", 1, 10); }), HasSubstr("missing"));
  EXPECT_THAT(refusal([&] { c.integer("big", 1, 1000); }), HasSubstr("found 1000000000000"));
  EXPECT_THAT(refusal([&] { c.integer("huge", 1, 1000); }), HasSubstr("corrupt"));
  EXPECT_THAT(refusal([&] { c.integer("neg", 1, 1000); }), HasSubstr("1 … 1000"));
  EXPECT_THAT(refusal([&] { c.integer("text", 1, 1000); }), HasSubstr("found \"x\""));
  EXPECT_THAT(refusal([&] { c.integer("f", 0, 1000); }), HasSubstr("found 0.5"));
  EXPECT_THAT(refusal([&] { c.boolean("flag"); }), HasSubstr("true or false"));
  EXPECT_THAT(refusal([&] { c.integers("list", 0, 9); }), HasSubstr("found \"a\""));
  EXPECT_THAT(refusal([&] { c.text("n"); }), HasSubstr("want a string"));
  EXPECT_THAT(refusal([&] { c.object("n"); }), HasSubstr("want an object"));
}

TEST(ConfigValues, InfinityComesInBothSpellings) {
  const double infinity = HUGE_VAL;
  EXPECT_EQ(Config::parse(R"({"x":[0.0,Infinity]})", "c").numbers("x", 0, infinity)[1], infinity);
  EXPECT_EQ(Config::parse(R"({"x":[0.0,{"__float__":"Infinity"}]})", "c").numbers("x", 0, infinity)[1], infinity);
  EXPECT_THAT(refusal([] { Config::parse(R"({"x":NaN})", "c").number("x", 0, 1); }), HasSubstr("want a number"));
}

TEST(ConfigValues, NullIsAbsent) {
  const Config c = Config::parse(R"({"x":null})", "c");
  EXPECT_FALSE(c.has("x"));
  EXPECT_TRUE(c.given("x"));
  EXPECT_EQ(c.integer("x", 0, 9, 4), 4);
}

TEST(ConfigValues, TextThatIsNoObjectIsCorrupt) {
  EXPECT_THAT(refusal([] { Config::parse("[1]", "config.json"); }), HasSubstr("not an object"));
  EXPECT_THAT(refusal([] { Config::parse("{\"a\":", "config.json"); }), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal([] { Config::parse(R"({"a":1,"a":2})", "config.json"); }), HasSubstr("stands twice"));
}

TEST(ConfigDigest, DependsOnUsedKeysAlone) {
  const auto digest = [](const std::string& text) {
    Config c = Config::parse(text, "config.json");
    c.check_keys(kKeys, {});
    return c.digest("family");
  };
  EXPECT_EQ(digest(R"({"a":1,"note":"x"})"), digest(R"({"note":"y","a":1,"b":null})"));
  EXPECT_NE(digest(R"({"a":1})"), digest(R"({"a":2})"));
}

}  // namespace
}  // namespace hayfork::engine
