// Tokenizers, texts and request files that are broken or extreme: the file, line or part is named; texts of any bytes
// are encoded.
#include <functional>

#include <fmt/format.h>

#include "tests/support/cli_test.h"
#include "tests/support/sanitizer.h"

namespace hayfork::cli {
namespace {

class BadTextTest : public test::BadInputTest {
 protected:
  BadTextTest() : model_(copy_of_demo("demo")), good_(json::parse(read("demo/tokenizer.json"))) {}
  ProcessResult tokenize(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"probe", "tokenize", "--model", model_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  ProcessResult with_tokenizer(const std::string& text) const {
    write("demo/tokenizer.json", text);
    return tokenize({"--text", "The secret number"});
  }
  ProcessResult with(const std::function<void(json&)>& change) const {
    json changed = good_;
    change(changed);
    return with_tokenizer(changed.dump());
  }
  ProcessResult requests(const std::string& form, const std::string& lines,
                         const std::vector<std::string>& more = {}) const {
    write("requests.jsonl", lines);
    std::vector<std::string> arguments = {"probe",          form,        "--model", model_, "--requests",
                                          "requests.jsonl", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::string model_;
  json good_;
};

// ---- tokenizer.json ------------------------------------------------------------------------------------------------

TEST_F(BadTextTest, TokenizerFilesThatCannotBeRead) {
  const std::string whole = read("demo/tokenizer.json");
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string("null"), whole.substr(0, 10),
        whole.substr(0, whole.size() / 2), whole.substr(0, whole.size() - 1), whole + "x", std::string(1 << 20, '['),
        "{\"model\":" + std::string(1 << 20, '{'), std::string("{\"version\":\"\xFF\"}"), std::string("\0\0\0", 3)}) {
    SCOPED_TRACE(text.substr(0, 30));
    expect_error(with_tokenizer(text), 7, {"tokenizer.json"});
  }
  fs::remove(path("demo/tokenizer.json"));
  expect_error(tokenize({"--text", "x"}), 7, {"no tokenizer", "demo"});
  fs::create_directory(path("demo/tokenizer.json"));
  expect_error(tokenize({"--text", "x"}), 7, {"tokenizer.json"});
}

TEST_F(BadTextTest, PartsThatNobodyKnows) {
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "model"}) {
    SCOPED_TRACE(part);
    expect_error(with([&](json& t) { t[part]["type"] = "Mystery"; }), 7, {"Mystery", "tokenizer.json"});
    expect_error(with([&](json& t) { t[part] = {{"type", 7}}; }), 7, {"tokenizer.json"});
    expect_error(with([&](json& t) { t[part] = "text"; }), 7, {"tokenizer.json"});
    expect_error(with([&](json& t) { t[part] = json::array({1}); }), 7, {"tokenizer.json"});
  }
  std::string nested = R"({"pre_tokenizer":)";
  for (int i = 0; i < 3000; ++i) nested += R"({"type":"Sequence","pretokenizers":[)";
  for (int i = 0; i < 3000; ++i) nested += "]}";
  expect_error(with_tokenizer(nested + "," + good_.dump().substr(1)), 7, {"tokenizer.json"});
}

TEST_F(BadTextTest, PatternsThatAreNone) {
  const auto with_pattern = [&](const json& pattern) {
    return with([&](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"] = pattern; });
  };
  for (const char* regex : {"(", "[a", "a{99999999}", "(?<name", "\\p{Nonsense}", "*", "a**{2,1}", "\\"}) {
    SCOPED_TRACE(regex);
    expect_error(with_pattern({{"Regex", regex}}), 7, {"tokenizer.json"});
  }
  expect_error(with_pattern({{"Regex", std::string(100000, '(')}}), 7, {"tokenizer.json"});
  expect_error(with_pattern({{"Regex", 7}}), 7, {"tokenizer.json"});
  expect_error(with_pattern(json::object()), 7, {"tokenizer.json"});
  expect_error(with_pattern("a"), 7, {"tokenizer.json"});
}

TEST_F(BadTextTest, VocabulariesAndMergesThatDoNotFit) {
  const auto fails = [&](const char* what, const std::function<void(json&)>& change) {
    SCOPED_TRACE(what);
    expect_error(with(change), 7, {"tokenizer.json"});
  };
  fails("unknown left", [](json& t) { t["model"]["merges"].push_back({"nowhere", "e"}); });
  fails("unknown right", [](json& t) { t["model"]["merges"].push_back({"e", "nowhere"}); });
  fails("unknown whole", [](json& t) { t["model"]["merges"].push_back({"!", "zq"}); });
  fails("one part", [](json& t) { t["model"]["merges"].push_back({"e"}); });
  fails("three parts", [](json& t) { t["model"]["merges"].push_back({"e", "r", "s"}); });
  fails("no blank", [](json& t) { t["model"]["merges"] = json::array({"er"}); });
  fails("a number", [](json& t) { t["model"]["merges"].push_back(7); });
  fails("no list", [](json& t) { t["model"]["merges"] = "e r"; });
  fails("huge id", [](json& t) { t["model"]["vocab"]["!"] = 4'000'000'000; });
  fails("huger id", [](json& t) { t["model"]["vocab"]["!"] = 1e30; });
  fails("negative id", [](json& t) { t["model"]["vocab"]["!"] = -1; });
  fails("text id", [](json& t) { t["model"]["vocab"]["!"] = "1"; });
  fails("id twice", [](json& t) { t["model"]["vocab"]["!"] = 2; });
  fails("no vocabulary", [](json& t) { t["model"].erase("vocab"); });
  fails("a list", [](json& t) { t["model"]["vocab"] = json::array({"a", "b"}); });
  fails("added id", [](json& t) { t["added_tokens"][0]["id"] = 1'000'000'000'000; });
  fails("added negative", [](json& t) { t["added_tokens"][0]["id"] = -5; });
  fails("added text", [](json& t) { t["added_tokens"][0]["content"] = 7; });
  fails("added list", [](json& t) { t["added_tokens"] = {{"a", 1}}; });
  // One id far out costs no memory for those between.
  const ProcessResult far = with([](json& t) { t["model"]["vocab"]["far"] = 2'000'000'000; });
  if (far.status != 0) expect_error(far, 7, {"tokenizer.json"});
}

TEST_F(BadTextTest, MergesInCirclesAndLongChains) {
  write("text", std::string(200000, 'a'));
  const auto encode = [&](json& tokenizer) {
    write("demo/tokenizer.json", tokenizer.dump());
    const ProcessResult result = tokenize({"--file", "text"});
    if (result.status != 0) expect_error(result, 7, {"tokenizer.json"});
    return result.status;
  };
  json circle = good_;  // "a" + "" is "a" again, and again
  circle["model"]["vocab"][""] = 1500;
  circle["model"]["merges"] = json::array({json::array({"a", ""}), json::array({"", "a"})});
  encode(circle);
  json twice = good_;  // the same pair with two ranks
  const json merges = good_["model"]["merges"];
  for (const json& merge : merges) twice["model"]["merges"].push_back(merge);
  encode(twice);
  json chain = good_;  // one token for each run of up to 1,500 letters
  std::string run = "a";
  for (int i = 0; i < 1500; ++i) {
    chain["model"]["merges"].push_back({run, "a"});
    run += 'a';
    chain["model"]["vocab"].emplace(run, 10000 + i);
  }
  EXPECT_EQ(encode(chain), 0);
  json many = good_;  // three hundred thousand merges that nobody needs
  for (int i = 0; i < 300000; ++i) many["model"]["merges"].push_back(merges[static_cast<size_t>(i) % merges.size()]);
  encode(many);
}

TEST_F(BadTextTest, MoreTokensThanTheModelHasRows) {
  // The ids the text needs are past the model's vocabulary: refused where it would be read, by name.
  json changed = good_;
  changed["model"]["vocab"]["!"] = 5000;
  write("demo/tokenizer.json", changed.dump());
  const ProcessResult result = requests("nll", R"({"text":"a ! b ! c"})");
  EXPECT_EQ(result.status, 4) << result.err;
  EXPECT_THAT(result.out, HasSubstr("5000"));
}

TEST_F(BadTextTest, TokenizerConfigsThatAreBroken) {
  for (const char* text :
       {"", "{", "[]", "7", R"({"eos_token":7})", R"({"chat_template":7})", R"({"chat_template":[{"name":1}]})",
        R"({"chat_template":[{"name":"a"}]})", R"({"model_max_length":"x"})"}) {
    SCOPED_TRACE(text);
    write("demo/tokenizer_config.json", text);
    const ProcessResult result = tokenize({"--text", "x"});
    if (result.status != 0) expect_error(result, 7, {"tokenizer_config.json"});
  }
  write("demo/tokenizer_config.json", R"({"chat_template":"{% for m in messages %}"})");
  write("messages.json", R"([{"role":"user","content":"x"}])");
  expect_error(run({"probe", "chat", "--model", model_, "--messages", "messages.json"}), 7, {"template"});
  write("demo/tokenizer_config.json", R"({"chat_template":"{% for a in range(1000000000) %}{{ a }}{% endfor %}"})");
  expect_error(run({"probe", "chat", "--model", model_, "--messages", "messages.json"}), 11, {"template"});
  write("demo/tokenizer_config.json", R"({"chat_template":"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"})");
  expect_error(run({"probe", "chat", "--model", model_, "--messages", "messages.json"}), 7, {"template"});
  write("demo/tokenizer_config.json", R"({"chat_template":"{{ 'x' * 10000000000 }}"})");
  expect_error(run({"probe", "chat", "--model", model_, "--messages", "messages.json"}), 7, {"template"});
  write("demo/tokenizer_config.json", R"({"chat_template":"{{ raise_exception('roles must alternate') }}"})");
  expect_error(run({"probe", "chat", "--model", model_, "--messages", "messages.json"}), 11, {"roles must alternate"});
  for (const char* messages : {"", "[", "{}", "7", R"(["x"])", R"({"messages":7})"}) {
    SCOPED_TRACE(messages);
    write("messages.json", messages);
    expect_error(run({"probe", "chat", "--model", model_, "--messages", "messages.json"}), 11, {"messages.json"});
  }
}

TEST_F(BadTextTest, SentencePieceFilesThatAreNone) {
  fs::remove(path("demo/tokenizer.json"));
  for (const std::string& content : {std::string(), std::string("words"), std::string(1 << 16, '\xFF'),
                                     std::string("\x0A\xFF\xFF\xFF\xFF\x0F", 6), std::string(100000, '\x0A')}) {
    write("demo/tokenizer.model", content);
    expect_error(tokenize({"--text", "x"}), 7, {"tokenizer.model"});
  }
}

// ---- texts ---------------------------------------------------------------------------------------------------------

TEST_F(BadTextTest, BytesOfEveryKindAreEncoded) {
  const std::vector<std::string> texts = {std::string("a\0b", 3),
                                          "\xFF\xFE",
                                          "a\xC3",
                                          "\xED\xA0\x80",
                                          "\xF4\x90\x80\x80",
                                          std::string(1, '\0'),
                                          "\x1b[31m",
                                          "\xEF\xBB\xBF"
                                          "bom",
                                          "\xC0\x80",
                                          std::string(3, '\x80'),
                                          "\r\r\n\n",
                                          std::string(70000, ' ')};
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(i);
    write("text", texts[i]);
    const ProcessResult result = tokenize({"--file", "text"});
    ASSERT_EQ(result.status, 0) << result.err;
    const json ids = json::parse(result.out)["ids"];
    EXPECT_FALSE(ids.empty());
    write("ids", ids.dump());
    EXPECT_EQ(tokenize({"--decode", "--file", "ids"}).status, 0);
    EXPECT_EQ(tokenize({"--offsets", "--file", "text"}).status, 0);
  }
}

TEST_F(BadTextTest, OneWordOfFiveMegabytes) {
  const size_t megabytes = test::kSanitized ? 1 : 5;
  write("word", std::string(megabytes << 20, 'a'));
  const ProcessResult result = tokenize({"--file", "word"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_GT(json::parse(result.out)["ids"].size(), 1000u);
  std::string marks = "e";
  for (size_t i = 0; i < megabytes * 100000; ++i) marks += "\xCC\x81\xCC\xA3";  // combining marks in the wrong order
  write("marks", marks);
  EXPECT_EQ(tokenize({"--file", "marks"}).status, 0);
  std::string blanks(megabytes << 20, '\n');
  write("blanks", blanks);
  EXPECT_EQ(tokenize({"--file", "blanks"}).status, 0);
}

TEST_F(BadTextTest, TextFilesThatAreNotThere) {
  expect_error(tokenize({"--file", "nowhere.txt"}), 11, {"nowhere.txt"});
  expect_error(tokenize({"--file", path("")}), 11, {"directory"});
  expect_error(tokenize({"--jsonl", "nowhere.jsonl"}), 11, {"nowhere.jsonl"});
  write("lines", "\"good\"\n{\"txt\":\"bad\"}\n");
  expect_error(tokenize({"--jsonl", "lines"}), 11, {"lines:2", "text"});
  expect_error(tokenize({"--decode", "--text", "[1,"}), 11, {"--text"});
  expect_error(tokenize({"--decode", "--text", "[-1]"}), 11, {"--text", "-1"});
  EXPECT_EQ(tokenize({"--decode", "--text", "[2147483646]"}).status, 0);
  expect_error(tokenize({"--decode", "--text", "[4294967296]"}), 11, {"4294967296"});
}

// ---- requests ------------------------------------------------------------------------------------------------------

TEST_F(BadTextTest, RequestsThatAreNone) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> forms = {
      {"generate",
       {"{",
        "[]",
        "7",
        "\"x\"",
        "{}",
        R"({"prompt":"x"})",
        R"({"prompt":7,"max_new_tokens":1})",
        R"({"prompt":"","max_new_tokens":1})",
        R"({"prompt":[],"max_new_tokens":1})",
        R"({"prompt":"x","max_new_tokens":0})",
        R"({"prompt":"x","max_new_tokens":-1})",
        R"({"prompt":"x","max_new_tokens":1e18})",
        R"({"prompt":"x","max_new_tokens":18446744073709551615})",
        R"({"prompt":"x","max_new_tokens":1.5})",
        R"({"prompt":"x","max_new_tokens":"1"})",
        R"({"prompt":"x","max_new_tokens":null})",
        R"({"prompt":[1088],"max_new_tokens":1})",
        R"({"prompt":[-1],"max_new_tokens":1})",
        R"({"prompt":[1e3],"max_new_tokens":1})",
        R"({"prompt":["1"],"max_new_tokens":1})",
        R"({"prompt":[[1]],"max_new_tokens":1})",
        R"({"prompt":"x","max_new_tokens":1,"stop":7})",

        R"({"prompt":"x","max_new_tokens":1,"ignore_eos":1})",
        R"({"prompt":"x","max_new_tokens":1,"temperature":0})",
        R"({"prompt":"x","prompt":"y","max_new_tokens":1})",
        "{\"prompt\":\"\xFF\",\"max_new_tokens\":1}",
        std::string(300, '[')}},
      {"nll",
       {"{}", R"({"tokens":[]})", R"({"tokens":[7]})", R"({"text":""})", R"({"text":7})", R"({"tokens":"x"})",
        R"({"tokens":[7,8],"text":"x"})", R"({"tokens":[7,1088]})", R"({"tokens":[7,8],"positions":[0]})",
        R"({"tokens":[7,8],"positions":[2]})", R"({"tokens":[7,8,9],"positions":[2,1]})",
        R"({"tokens":[7,8,9],"positions":[1,1]})", R"({"tokens":[7,8],"positions":"all"})",
        R"({"tokens":[7,8],"positions":[1e300]})", R"({"tokens":[7,8],"positions":[9223372036854775807]})"}},
      {"logprobs",
       {"{}", R"({"context":[7]})", R"({"context":[7],"continuations":[]})", R"({"context":[7],"continuations":[[]]})",
        R"({"context":[7],"continuations":[""]})", R"({"context":"x","continuations":[""]})",
        R"({"context":7,"continuations":[[1]]})", R"({"context":[7],"continuations":[7]})",
        R"({"context":[7],"continuations":[[7],[1088]]})", R"({"context":[7],"continuations":"x"})",
        R"({"context":null,"continuations":["x"]})", R"({"context":"x","continuations":[null]})"}}};
  for (const auto& [form, lines] : forms) {
    for (const std::string& line : lines) {
      SCOPED_TRACE(std::string(form) + " " + line.substr(0, 60));
      const ProcessResult result = requests(form, "\n" + line + "\n");
      expect_error(result, 11, {"requests.jsonl:2"});
      EXPECT_EQ(result.out, "");
    }
  }
}

// One request that cannot be answered leaves the others alone: its line says why, and the exit status is 4.
TEST_F(BadTextTest, RequestsPastTheWindow) {
  const json ids(5000, 7);
  const auto partial = [&](const char* form, const json& bad, const char* good, const char* word) {
    const ProcessResult result = requests(form, bad.dump() + "\n" + good);
    EXPECT_EQ(result.status, 4) << result.err;
    const size_t end = result.out.find('\n');
    ASSERT_NE(end, std::string::npos);
    EXPECT_THAT(json::parse(result.out.substr(0, end))["error"].get<std::string>(), HasSubstr(word));
    EXPECT_FALSE(json::parse(result.out.substr(end + 1)).contains("error"));
  };
  partial("generate", {{"prompt", ids}, {"max_new_tokens", 1}}, R"({"prompt":[7],"max_new_tokens":1})", "4608");
  partial("generate", {{"prompt", {7}}, {"max_new_tokens", 100000000}}, R"({"prompt":[7],"max_new_tokens":1})", "4608");
  partial("nll", {{"tokens", ids}}, R"({"tokens":[7,8]})", "4608");
  partial("logprobs", {{"context", ids}, {"continuations", json::array({json::array({7})})}},
          R"({"context":[7],"continuations":[[7]]})", "4608");
  partial("logprobs", {{"context", json::array()}, {"continuations", json::array({json::array({7})})}},
          R"({"context":[7],"continuations":[[7]]})", "no context");
}

TEST_F(BadTextTest, RequestFilesThatHoldNothing) {
  for (const char* text : {"", "\n\n \n"}) expect_error(requests("nll", text), 11, {"requests.jsonl"});
  expect_error(run({"probe", "nll", "--model", model_, "--requests", "nowhere.jsonl"}), 11, {"nowhere.jsonl"});
  expect_error(run({"probe", "logits", "--model", model_, "--ids-file", "nowhere.json", "--out", "o"}), 11,
               {"nowhere.json"});
  for (const char* text :
       {"", "{}", "[]", R"({"ids":7})", R"({"ids":[]})", R"({"ids":[[]]})", R"({"ids":[[1088]]})", R"({"ids":[7]})"}) {
    SCOPED_TRACE(text);
    write("ids.json", text);
    expect_error(run({"probe", "logits", "--model", model_, "--ids-file", "ids.json", "--out", "o"}), 11, {"ids.json"});
  }
  write("ids.json", R"({"ids":[[7]]})");
  expect_error(run({"probe", "logits", "--model", model_, "--ids-file", "ids.json", "--out", "no/such/o"}), 6,
               {"no/such/o"});
}

TEST_F(BadTextTest, TextForAModelWithoutATokenizer) {
  fs::remove(path("demo/tokenizer.json"));
  expect_error(requests("nll", R"({"text":"a b"})"), 2, {"no tokenizer", "--tokenizer"});
  expect_error(requests("generate", R"({"prompt":"x","max_new_tokens":1})"), 2, {"no tokenizer", "requests.jsonl:1"});
  EXPECT_EQ(requests("nll", R"({"tokens":[7,8]})").status, 0);
  EXPECT_EQ(requests("generate", R"({"prompt":[7],"max_new_tokens":1})").status, 0);
  const ProcessResult stopped = requests("generate", R"({"prompt":[7],"max_new_tokens":1,"stop":["x"]})");
  EXPECT_EQ(stopped.status, 4) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("tokenizer"));
  expect_error(run_niah(model_), 7, {"tokenizer"});
  EXPECT_FALSE(fs::exists(path("runs.db-journal")));
}

}  // namespace
}  // namespace hayfork::cli
