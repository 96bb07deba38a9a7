// hayfork probe on a shipped checkpoint: shapes of the answers, equality whatever the batch, bad requests.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/safetensors.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"

namespace hayfork::cli {
namespace {

using nlohmann::json;
using test::hayfork;
using test::ProcessResult;
using ::testing::HasSubstr;

class ProbeTest : public ::testing::Test {
 protected:
  std::string model() const { return (test::source_dir() / "demo" / "full").string(); }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
  ProcessResult probe(const std::string& form, std::vector<std::string> more, const std::string& input = "") {
    std::vector<std::string> arguments = {"probe", form, "--model", model()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return hayfork(arguments, {.input = input});
  }
  std::vector<json> lines(const ProcessResult& result) {
    EXPECT_EQ(result.status, 0) << result.err;
    std::istringstream stream(result.out);
    std::vector<json> all;
    for (std::string line; std::getline(stream, line);) all.push_back(json::parse(line));
    return all;
  }
  test::TempDir folder_;
};

TEST_F(ProbeTest, TokenizesAndBack) {
  const json ids = lines(probe("tokenize", {"--text", "The secret number of Lisbon"})).at(0)["ids"];
  EXPECT_GT(ids.size(), 2u);
  EXPECT_EQ(lines(probe("tokenize", {"--decode", "--text", ids.dump()})).at(0)["text"], "The secret number of Lisbon");
  const auto two = lines(probe("tokenize", {"--jsonl", "-"}, "\"a\"\n{\"text\":\"b c\"}\n"));
  EXPECT_EQ(two.size(), 2u);
  EXPECT_EQ(probe("tokenize", {}).status, 2);
  EXPECT_EQ(probe("tokenize", {"--text", "a", "--file", "b"}).status, 2);
  EXPECT_EQ(lines(probe("tokenize", {"--text", ""})).at(0)["ids"].size(), 0u);
}

TEST_F(ProbeTest, LogitsAreTheSameWhateverTheChunk) {
  std::ofstream(file("ids.json")) << R"({"ids":[[5],[7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24]]})";
  std::string first;
  for (const char* chunk : {"1", "16", "512"}) {
    ASSERT_EQ(probe("logits", {"--ids-file", file("ids.json"), "--out", file("out"), "--dtype", "f32", "--chunk", chunk,
                               "--stats", file("stats.json")})
                  .status,
              0);
    const engine::SafetensorsFile out(file("out"));
    ASSERT_EQ(out.tensors().size(), 2u);
    const engine::TensorInfo* tensor = out.find("logits.1");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape[0], 18);
    const auto bytes = out.bytes(*tensor);
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (first.empty()) first = text;
    EXPECT_TRUE(text == first) << "chunk " << chunk;
  }
  std::ifstream stats(file("stats.json"));
  EXPECT_EQ(json::parse(stats)["rows"]["base"], 19);
}

TEST_F(ProbeTest, StatisticsTellTheRowsOfEachExpert) {
  const std::string mixture = (test::source_dir() / "tests/golden/models/qwen3_moe").string();
  std::ofstream(file("ids.json")) << R"({"ids":[[7,8,9,10,11,12,13],[7,8,9,20,21]]})";
  const auto result = hayfork({"probe", "logits", "--model", mixture, "--ids-file", file("ids.json"), "--out",
                               file("out"), "--device", "cpu", "--stats", file("stats.json")});
  ASSERT_EQ(result.status, 0) << result.err;
  std::ifstream stream(file("stats.json"));
  const json stats = json::parse(stream);
  ASSERT_EQ(stats["experts"].size(), 2u);  // layer 1 is dense
  EXPECT_EQ(stats["experts"][0]["layer"], 0);
  EXPECT_EQ(stats["experts"][1]["layer"], 2);
  for (const json& layer : stats["experts"]) {
    EXPECT_EQ(layer["top_k"], 2);
    ASSERT_EQ(layer["rows"].size(), 4u);
    int64_t rows = 0;
    for (const json& n : layer["rows"]) rows += n.get<int64_t>();
    EXPECT_EQ(rows, 2 * stats["rows"]["base"].get<int64_t>());
    EXPECT_GE(layer["busiest_over_mean"].get<double>(), 1.0);
  }
  const auto shown = hayfork({"show", "model", mixture, "--device", "cpu"});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, ::testing::HasSubstr("2 layers of 4 experts, 2 a token"));
}

TEST_F(ProbeTest, KeysAndValuesOfALayer) {
  std::ofstream(file("ids.json")) << R"({"ids":[[7,8,9]]})";
  ASSERT_EQ(probe("kv", {"--ids-file", file("ids.json"), "--layer", "last", "--out", file("kv")}).status, 0);
  const engine::SafetensorsFile out(file("kv"));
  ASSERT_NE(out.find("k.0"), nullptr);
  EXPECT_EQ(out.find("k.0")->shape, (std::vector<int64_t>{3, 2, 64}));
  EXPECT_EQ(out.find("v.0")->shape, (std::vector<int64_t>{3, 2, 64}));
  EXPECT_EQ(probe("kv", {"--ids-file", file("ids.json"), "--layer", "4", "--out", file("kv")}).status, 2);
}

TEST_F(ProbeTest, LogprobsOfTextAndOfIdsAgree) {
  const auto text = lines(probe("logprobs", {"--requests", "-"},
                                R"({"context":"The secret number of Lisbon is ","continuations":["48213.","7"]})"));
  ASSERT_EQ(text.size(), 1u);
  EXPECT_EQ(text[0]["logprob"].size(), 2u);
  const json context = lines(probe("tokenize", {"--text", "The secret number of Lisbon is"})).at(0)["ids"];
  const json request = {{"context", context}, {"continuations", text[0]["tokens"]}};
  const auto ids = lines(probe("logprobs", {"--requests", "-", "--batch-size", "1"}, request.dump()));
  EXPECT_EQ(ids[0], text[0]);
  double sum = 0;
  for (const json& value : text[0]["token_logprobs"][0]) sum += value.get<double>();
  EXPECT_DOUBLE_EQ(sum, text[0]["logprob"][0].get<double>());
}

TEST_F(ProbeTest, NllAgreesWithLogprobs) {
  const auto nll = lines(probe("nll", {"--requests", "-"},
                               R"({"tokens":[7,8,9,10]})"
                               "\n"
                               R"({"tokens":[7,8,9,10],"positions":[3]})"));
  ASSERT_EQ(nll.size(), 2u);
  ASSERT_EQ(nll[0]["nll"].size(), 3u);
  ASSERT_EQ(nll[1]["nll"].size(), 1u);
  EXPECT_EQ(nll[0]["nll"][2], nll[1]["nll"][0]);
  const auto scored = lines(probe("logprobs", {"--requests", "-"}, R"({"context":[7,8,9],"continuations":[[10]]})"));
  EXPECT_EQ(-scored[0]["token_logprobs"][0][0].get<double>(), nll[1]["nll"][0].get<double>());
}

TEST_F(ProbeTest, GeneratesTheSameWhateverTheBatch) {
  const std::string requests =
      "{\"prompt\":\"The secret number of Lisbon is\",\"max_new_tokens\":6,\"ignore_eos\":true}\n"
      "{\"prompt\":[7,8,9],\"max_new_tokens\":3,\"ignore_eos\":true}\n";
  const ProcessResult many = probe("generate", {"--requests", "-"}, requests);
  const ProcessResult one = probe(
      "generate", {"--requests", "-", "--batch-size", "1", "--order", "reverse", "--prefix-reuse", "off"}, requests);
  EXPECT_EQ(many.out, one.out);
  const auto answers = lines(many);
  EXPECT_EQ(answers[0]["ids"].size(), 6u);
  EXPECT_EQ(answers[0]["finish"], "length");
}

TEST_F(ProbeTest, BadRequestsNameTheLine) {
  const std::vector<std::string> bad = {"{",
                                        "[]",
                                        R"({"prompt":"x"})",
                                        R"({"prompt":"x","max_new_tokens":0})",
                                        R"({"prompt":[],"max_new_tokens":1})",
                                        R"({"prompt":[99999999],"max_new_tokens":1})",
                                        R"({"prompt":[-1],"max_new_tokens":1})",
                                        R"({"prompt":[1.5],"max_new_tokens":1})",
                                        R"({"prompt":"x","max_new_tokens":1,"stop":[1]})",
                                        R"({"prompt":"x","max_new_tokens":1,"ignore_eos":"yes"})",
                                        R"({"prompt":"x","max_new_tokens":1,"temprature":1})"};
  for (const std::string& request : bad) {
    const ProcessResult result = probe("generate", {"--requests", "-"}, "\n" + request);
    EXPECT_EQ(result.status, 11) << request << result.err;
    EXPECT_THAT(result.err, HasSubstr("-:2")) << request;
    EXPECT_EQ(result.out, "") << request;
  }
  EXPECT_EQ(probe("nll", {"--requests", "-"}, R"({"tokens":[7]})").status, 11);
  EXPECT_EQ(probe("nll", {"--requests", "-"}, R"({"tokens":[7,8],"positions":[0]})").status, 11);
  EXPECT_EQ(probe("logprobs", {"--requests", "-"}, R"({"context":[7],"continuations":[]})").status, 11);
}

TEST_F(ProbeTest, WhatFitsNoMemoryIsEightAndSaysWhatWould) {
  const std::string request = "{\"prompt\":[5,6,7],\"max_new_tokens\":2}\n";
  const ProcessResult result = probe("generate", {"--requests", "-", "--memory-limit", "1"}, request);
  EXPECT_EQ(result.status, 8);
  EXPECT_THAT(result.out, HasSubstr("the longest that fits has 0 tokens"));
  EXPECT_EQ(probe("generate", {"--requests", "-"}, request).status, 0);
  const ProcessResult refused =
      probe("logits", {"--ids-file", "-", "--out", file("out"), "--memory-limit", "1"}, R"({"ids":[[5,6,7]]})");
  EXPECT_EQ(refused.status, 8);
  EXPECT_THAT(refused.err, HasSubstr("the longest that fits has 0 tokens"));
}

TEST_F(ProbeTest, AModelWithoutATokenizerTakesIds) {
  std::filesystem::create_directories(folder_.path() / "bare");
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(std::filesystem::path(model()) / name, folder_.path() / "bare" / name);
  }
  const std::string bare = (folder_.path() / "bare").string();
  EXPECT_EQ(hayfork({"probe", "nll", "--model", bare, "--requests", "-"}, {.input = R"({"tokens":[7,8]})"}).status, 0);
  EXPECT_EQ(hayfork({"probe", "nll", "--model", bare, "--requests", "-"}, {.input = R"({"text":"ab"})"}).status, 2);
  EXPECT_EQ(hayfork({"probe", "nll", "--model", bare, "--tokenizer", model(), "--requests", "-"},
                    {.input = R"({"text":"a b c"})"})
                .status,
            0);
}

TEST_F(ProbeTest, ChatRendersTheTemplate) {
  std::ofstream(file("template")) << "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor "
                                     "%}{% if add_generation_prompt %}>{% endif %}";
  const std::string messages = R"([{"role":"user","content":"hi"}])";
  EXPECT_THAT(probe("chat", {"--messages", "-", "--template", file("template")}, messages).out,
              HasSubstr("[user] hi\n>"));
  EXPECT_THAT(
      probe("chat", {"--messages", "-", "--template", file("template"), "--no-generation-prompt"}, messages).out,
      ::testing::EndsWith("[user] hi\n"));
  EXPECT_EQ(probe("chat", {"--messages", "-"}, messages).status, 2);  // the demo checkpoints have no template
}

}  // namespace
}  // namespace hayfork::cli
