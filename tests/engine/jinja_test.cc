#include <ctime>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/text/chat_template.h"
#include "tests/engine/jinja_cases.h"
#include "tests/support/sanitizer.h"

namespace hayfork::engine {
namespace {

using Json = nlohmann::ordered_json;

std::string render(const std::string& source, const std::string& variables = kVariables) {
  const ChatTemplate parsed = ChatTemplate::parse(source, "test.jinja");
  const Json kwargs = Json::parse(variables);
  const Json messages = Json::parse(R"([{"role": "user", "content": "hi"}])");
  ChatRequest request;
  request.messages = &messages;
  request.kwargs = &kwargs;
  std::tm clock{};
  clock.tm_year = 124;
  clock.tm_mon = 6;
  clock.tm_mday = 4;
  clock.tm_hour = 9;
  clock.tm_min = 5;
  request.clock = clock;
  return parsed.render(request);
}

Error error_of(const std::string& source, const std::string& variables = kVariables) {
  try {
    const std::string text = render(source, variables);
    ADD_FAILURE() << source << "\nrendered " << text;
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::internal, ErrorSubject::general, "no error");
}

TEST(Jinja, PrintsWhatJinja2Prints) {
  EXPECT_GE(std::size(kCases), 100u);
  for (const Case& item : kCases) {
    SCOPED_TRACE(item.source);
    try {
      EXPECT_EQ(render(item.source), item.expected);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(Jinja, RefusesWhatJinja2Refuses) {
  EXPECT_GE(std::size(kRefused), 60u);
  for (const char* source : kRefused) {
    const Error error = error_of(source);
    EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported) << source << "\n"
                                                                                              << error.what();
    EXPECT_NE(error.detail().where.find("test.jinja, line "), std::string::npos) << source << "\n" << error.what();
  }
}

TEST(Jinja, NamesAnUnknownConstructAndItsLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"x\n{{ a|urlize }}", "urlize"}, {"x\n{% autoescape %}", "autoescape"}, {"x\n{{ a is escapedly }}", "escapedly"},
      {"x\n{% trans %}", "trans"},     {"x\n{{ s.encode() }}", "encode"},     {"x\n{{ lipsum() }}", "lipsum"}};
  for (const auto& [source, name] : cases) {
    const Error error = error_of(source);
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << source;
    EXPECT_EQ(error.subject(), ErrorSubject::model) << source;
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_NE(error.detail().where.find("line 2"), std::string::npos) << error.what();
  }
}

// Jinja makes locals of a block's variables, so the first loop does not see the caller's variable.
TEST(Jinja, HidesANameThatTheTemplateAssignsLater) {
  EXPECT_EQ(render("{% for i in l %}[{{ a }}]{% endfor %}{% set a = 7 %}{{ a }}"), "[][][]7");
  EXPECT_EQ(render("{{ a }}{% for i in l %}[{{ a }}]{% endfor %}{% set a = 7 %}{{ a }}"), "1[1][1][1]7");
  EXPECT_EQ(render("{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% set a = 7 %}{{ m() }}"), "7");
  EXPECT_EQ(render("{% if f %}{% set a = 7 %}{% endif %}{% for i in [1] %}{{ a }}{% endfor %}"), "1");
}

TEST(Jinja, ClockIsTheCallers) {
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %% %f|%z|%Z|') }}"),
            "2024-07-04 09:05:00 Thursday July 186 AM % 000000|||");
  const ChatTemplate parsed = ChatTemplate::parse("{{ strftime_now('%Y') }}", "test.jinja");
  const Json messages = Json::parse(R"([{"role": "user", "content": "hi"}])");
  ChatRequest request;
  request.messages = &messages;
  EXPECT_THROW(parsed.render(request), Error);
}

// Each of these would otherwise run for hours, overflow the stack or fill the memory.
TEST(Jinja, HostileTemplatesEndSoon) {
  const std::string deep_call = "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}";
  const std::string long_loop = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  const std::string doubling =
      "{% set ns = namespace(x='xxxxxxxx') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
  const std::string lists =
      "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
  const std::string nested =
      "{% set ns = namespace(x=[]) %}{% for a in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  const std::string chain =
      "{% set ns = namespace(x=[1]) %}{% for a in range(100000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ "
      "ns.x|list }}";
  const std::string self = "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}";
  const std::string wide = "{{ 'x'.center(100000000000) }}";
  const std::string padded = "{{ '%99999999999d' % 1 }}";
  const std::string repeated = "{{ 'abc' * 9000000000000000000 }}";
  const std::string replaced = "{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}";
  for (const std::string& source :
       {deep_call, long_loop, doubling, lists, nested, chain, self, wide, padded, repeated, replaced}) {
    const std::clock_t start = std::clock();  // processor time: the machine may have other work
    const Error error = error_of(source);
    EXPECT_EQ(error.code(), ErrorCode::resource) << source << "\n" << error.what();
    EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, test::kSanitized ? 300 : 60) << source;
  }
}

TEST(Jinja, DeepSyntaxIsAnErrorNotACrash) {
  for (const char* piece : {"(", "[", "-", "not ", "{'a':", "a if a else ", "{% if a %}"}) {
    std::string source = "{{ ";
    if (piece[0] == '{' && piece[1] == '%') source.clear();
    for (int i = 0; i < 100000; ++i) source += piece;
    EXPECT_EQ(error_of(source).code(), ErrorCode::corrupt) << piece;
  }
  for (const char* piece : {" + a", ".x", "[0]", "|upper", " and a", "(1)"}) {
    std::string source = "{{ a";
    for (int i = 0; i < 100000; ++i) source += piece;
    EXPECT_EQ(error_of(source + " }}").code(), ErrorCode::corrupt) << piece;
  }
  std::string flat = "{{ 'a'";
  for (int i = 0; i < 10000; ++i) flat += " ~ 'a'";
  EXPECT_EQ(render(flat + " }}").size(), 10001u);
}

std::string continued(const std::string& source, const std::string& messages_text) {
  const Json messages = Json::parse(messages_text);
  ChatRequest request;
  request.messages = &messages;
  request.continue_final_message = true;
  return ChatTemplate::parse(source, "test.jinja").render(request);
}

TEST(ChatTemplate, ContinuesTheFinalMessage) {
  const std::string chat = R"([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "The answer "}])";
  EXPECT_EQ(continued("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}", chat),
            "<user>hi</s><assistant>The answer ");
  // A template that trims: the result is trimmed too.
  EXPECT_EQ(continued("{% for m in messages %}<{{ m.role }}>\n{{ m.content|trim }}</s>{% endfor %}", chat),
            "<user>\nhi</s><assistant>\nThe answer");
  const std::string parts =
      R"([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "image"}]}])";
  EXPECT_EQ(continued("{% for p in messages[0].content %}{{ p.text }};{% endfor %}", parts), "a;b");
  EXPECT_THROW(continued("{{ messages[0].content }}", chat), Error);  // the last message does not appear
  EXPECT_THROW(continued("{{ messages[0].role }}", chat), Error);     // the template reads no content
  EXPECT_THROW(continued("{{ messages[0].content }}", R"([{"role": "assistant", "content": null}])"), Error);
}

TEST(ChatTemplate, MessagesAreNormalized) {
  const ChatTemplate parsed = ChatTemplate::parse(
      "{{ messages|tojson }}{{ tools is none }}{{ tools is defined }}{{ documents is none }}{{ bos_token is defined "
      "}}{{ x }}",
      "test.jinja");
  const Json messages =
      Json::parse(R"([{"role": "assistant", "content": null, "reasoning": "why", "tool_calls": null}])");
  const Json kwargs = Json::parse(R"({"x": "from kwargs"})");
  ChatRequest request;
  request.messages = &messages;
  request.kwargs = &kwargs;
  request.special_tokens = {{"x", "from tokens"}};
  EXPECT_EQ(parsed.render(request),
            R"([{"thinking": "why", "role": "assistant", "reasoning": "why", "reasoning_content": "why"}])"
            "TrueTrueTrueFalsefrom kwargs");
}

TEST(ChatTemplate, RefusesWhatIsNoChat) {
  const ChatTemplate parsed = ChatTemplate::parse("{{ messages }}", "test.jinja");
  ChatRequest request;
  EXPECT_THROW(parsed.render(request), Error);
  for (const char* text : {"[]", "{}", "\"x\"", "[1]", "[[{}]]"}) {
    const Json messages = Json::parse(text);
    request.messages = &messages;
    EXPECT_THROW(parsed.render(request), Error) << text;
  }
  const Json messages = Json::parse(R"([{"role": "user", "content": "x"}])");
  request.messages = &messages;
  request.add_generation_prompt = request.continue_final_message = true;
  EXPECT_THROW(parsed.render(request), Error);
  request.continue_final_message = false;
  const Json not_tools = Json::parse("[1]");
  request.tools = &not_tools;
  EXPECT_THROW(parsed.render(request), Error);
  EXPECT_THROW(ChatTemplate::parse("{{ '\xff' }}", "test.jinja"), Error);
}

}  // namespace
}  // namespace hayfork::engine
