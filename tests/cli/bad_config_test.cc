// config.json and its companions with keys that are unknown, missing, of another type or absurd: the key is named.
#include <fmt/format.h>

#include "tests/support/cli_test.h"
#include "tests/support/tiny_checkpoint.h"

namespace hayfork::cli {
namespace {

class BadConfigTest : public test::BadInputTest {
 protected:
  BadConfigTest() {
    fs::create_directories(path("m"));
    checkpoint_.write(path("m"));
  }
  // The tiny model with this text as its config.json.
  ProcessResult with_config(const std::string& text, const std::vector<std::string>& more = {}) const {
    write("m/config.json", text);
    return nll("m", more);
  }
  ProcessResult with(const std::string& key, const json& value, const std::vector<std::string>& more = {}) const {
    json config = checkpoint_.config;
    config[key] = value;
    return with_config(config.dump(), more);
  }
  test::TinyCheckpoint checkpoint_ = test::TinyCheckpoint::llama();
};

TEST_F(BadConfigTest, ValuesOutOfTypeOrRange) {
  const json huge = int64_t{1'000'000'000'000'000'000};
  const std::vector<std::pair<std::string, std::vector<json>>> cases = {
      {"hidden_size", {-1, 0, huge, 7, 8.5, "8", json::array(), json::object(), 1e300}},
      {"num_hidden_layers", {-1, 0, huge, 100000, "two", nullptr}},
      {"num_attention_heads", {0, -2, huge, 3}},
      {"num_key_value_heads", {0, -2, huge, 3}},
      {"head_dim", {-1, huge, 3, "4"}},
      {"intermediate_size", {0, -1, huge}},
      {"vocab_size", {0, -1, huge, "16", 2000000000}},
      {"max_position_embeddings", {0, -1, huge, "64"}},
      {"rms_norm_eps", {-1, "1e-5", 5}},
      {"rope_theta", {0, -1, "10000", 1e300}},
      {"tie_word_embeddings", {"yes", 2}},
      {"eos_token_id", {-1, "2", json::array({-1}), json::array({"a"}), huge}},
      {"model_type", {3, json::array()}},
      {"rope_scaling",
       {"yarn",
        4,
        {{"rope_type", "linear"}, {"factor", -1}},
        {{"rope_type", "linear"}, {"factor", "2"}},
        {{"rope_type", "linear"}},
        {{"factor", 2}, {"type", 3}},
        {{"rope_type", "longrope"}, {"short_factor", {1, 1, 1}}, {"long_factor", {1, 1, 1}}},
        {{"rope_type", "llama3"}, {"factor", 8}}}},
  };
  for (const auto& [key, values] : cases) {
    for (const json& value : values) {
      SCOPED_TRACE(key + " = " + value.dump());
      const bool missing = value.is_null();
      const ProcessResult result = with(key, value);
      expect_error(result, 7, {key == "rope_scaling" || missing ? "config.json" : key, "config.json"});
    }
  }
}

TEST_F(BadConfigTest, KeysThatAreMissing) {
  for (const char* key :
       {"model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}) {
    SCOPED_TRACE(key);
    json config = checkpoint_.config;
    config.erase(key);
    expect_error(with_config(config.dump()), 7, {key, "missing"});
  }
}

TEST_F(BadConfigTest, KeysThatNobodyKnows) {
  for (const json& value : std::vector<json>{1, true, "x", json::array({1}), {{"a", 1}}}) {
    expect_error(with("use_new_attention", value), 7, {"\"use_new_attention\"", "--ignore-config-key"});
    const ProcessResult ignored = with("use_new_attention", value, {"--ignore-config-key", "use_new_attention"});
    EXPECT_EQ(ignored.status, 0) << ignored.err;
    EXPECT_THAT(ignored.err, HasSubstr("use_new_attention"));
  }
  for (const json& value : std::vector<json>{nullptr, false, "", json::array(), json::object()}) {
    const ProcessResult result = with("use_new_attention", value);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("warning: "));
  }
  expect_error(with("quantization_config", {{"quant_method", "awq"}}), 7, {"quantization_config"});
  expect_error(with("attention_dropout_" + std::string(100000, 'x'), 1), 7, {"attention_dropout_xxx"});
  expect_error(with("line\nbreak\x1b[31m", 1), 7, {"line"});
}

TEST_F(BadConfigTest, FamiliesThatAreUnknownAreToldWhichAreKnown) {
  expect_error(with("model_type", "bert"), 7, {"\"bert\"", "llama", "qwen3", "gemma3", "mistral"});
  expect_error(with("model_type", ""), 7, {"llama"});
  expect_error(with("model_type", "llama "), 7, {"\"llama \""});
  expect_error(with("model_type", std::string(100000, 'b')), 7, {"bbb"});
}

TEST_F(BadConfigTest, TextsThatAreNoConfig) {
  const std::string good = checkpoint_.config.dump();
  std::string twice = good;
  twice.insert(1, R"("hidden_size":8,)");
  for (const std::string& text :
       {std::string(), std::string(" "), std::string("{"), std::string("null"), std::string("[]"), std::string("3"),
        std::string("\"text\""), good.substr(0, good.size() / 2), good + "x", twice, std::string("\xEF\xBB\xBF{"),
        std::string("{\"a\":\"\xFF\"}"), std::string("{'model_type':'llama'}"), std::string(1 << 20, '['),
        "{\"model_type\":" + std::string(1 << 20, '['), std::string("{\"a\":") + std::string(5 << 20, '1') + "}",
        std::string("{\"model_type\":\"") + std::string(5 << 20, 'y') + "\""}) {
    SCOPED_TRACE(text.substr(0, 40));
    expect_error(with_config(text), 7, {"config.json"});
  }
}

TEST_F(BadConfigTest, CompanionsThatAreBroken) {
  for (const char* text : {"", "{", "[]", R"({"eos_token_id":"x"})", R"({"eos_token_id":[-1]})",
                           R"({"eos_token_id":1e99})", R"({"eos_token_id":{"a":1}})"}) {
    SCOPED_TRACE(text);
    write("m/generation_config.json", text);
    expect_error(with_config(checkpoint_.config.dump()), 7, {"generation_config.json"});
  }
  write("m/generation_config.json", R"({"eos_token_id":2,"anything":{"goes":1}})");
  EXPECT_EQ(with_config(checkpoint_.config.dump()).status, 0);
  write("m/hayfork.json", "{");
  expect_error(with_config(checkpoint_.config.dump()), 7, {"hayfork.json"});
  write("m/hayfork.json", R"({"train_tokens":"many"})");
  expect_error(with_config(checkpoint_.config.dump()), 7, {"hayfork.json", "train_tokens"});
  write("m/hayfork.json", R"({"weights_provenance":7})");
  expect_error(with_config(checkpoint_.config.dump()), 7, {"hayfork.json"});
}

TEST_F(BadConfigTest, HintsThatAreBroken) {
  const std::string model = copy_of_demo("demo");
  for (const char* text : {R"({"niah":{"kind":"nonsense"}})", R"({"niah":{"kind":7}})", R"({"niah":7})", "[]", "{"}) {
    SCOPED_TRACE(text);
    write("demo/hayfork.json", text);
    const ProcessResult result = run_niah(model);
    expect_error(result, result.status == 2 ? 2 : 7, {"hayfork.json"});
  }
}

TEST_F(BadConfigTest, ADepthOrAConfigThatIsNoFile) {
  fs::remove(path("m/config.json"));
  fs::create_directory(path("m/config.json"));
  expect_error(run({"show", "model", path("m")}), 7, {"config.json"});
  fs::remove(path("m/config.json"));
  fs::create_symlink("config.json", path("m/config.json"));
  expect_error(run({"show", "model", path("m")}), 7, {"config.json"});
}

}  // namespace
}  // namespace hayfork::cli
