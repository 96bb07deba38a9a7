// Mixtures of experts whose config and weights disagree: one error that names the key or the tensor, and no result.
#include <cstring>
#include <filesystem>
#include <functional>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_map.h"
#include "engine/model.h"
#include "tests/support/paths.h"

namespace hayfork::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A copy of a golden checkpoint with its config and the header of its weights changed; the error of loading it.
std::string damaged(const std::string& golden, const std::function<void(json& config, json& tensors)>& damage) {
  const fs::path from = test::source_dir() / "tests/golden/models" / golden;
  json config = json::parse(read_file(from / "config.json", ErrorSubject::model));
  const std::string file = read_file(from / "model.safetensors", ErrorSubject::model);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  json tensors = json::parse(file.substr(8, length));
  damage(config, tensors);
  const std::string header = tensors.dump();
  const uint64_t new_length = header.size();
  std::string whole(8, '\0');
  std::memcpy(whole.data(), &new_length, 8);
  const test::TempDir folder;
  write_file_atomically(folder.path() / "config.json", config.dump());
  write_file_atomically(folder.path() / "model.safetensors", whole + header + file.substr(8 + length));
  try {
    load_model(*make_cpu_context(DType::f32), folder.path(), {});
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error), 7) << error.render();
    return error.render();
  }
  return "loaded";
}
void rename(json& tensors, const std::string& from, const std::string& to) {
  tensors[to] = tensors.at(from);
  tensors.erase(from);
}
void expect_words(const std::string& error, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_THAT(error, testing::HasSubstr(word));
}

const std::string kLayer = "model.layers.1.mlp.";

TEST(BadExperts, UndamagedOnesLoad) {
  for (const char* golden : {"gpt_oss_mxfp4", "qwen3_moe"}) {
    EXPECT_EQ(damaged(golden, [](json&, json&) {}), "loaded");
  }
}

TEST(BadExperts, CountsOfExperts) {
  const auto with = [](const char* key, int value) { return [=](json& config, json&) { config[key] = value; }; };
  expect_words(damaged("gpt_oss_mxfp4", with("num_experts_per_tok", 5)), {"num_experts_per_tok"});
  expect_words(damaged("gpt_oss_mxfp4", with("num_experts_per_tok", 0)), {"num_experts_per_tok"});
  expect_words(damaged("gpt_oss_mxfp4", with("num_local_experts", 3)), {"model.layers.0.mlp", "want", "found", "[4"});
  expect_words(damaged("gpt_oss_mxfp4", with("num_local_experts", 1 << 20)), {"num_local_experts"});
  expect_words(damaged("qwen3_moe", with("num_experts_per_tok", 5)), {"num_experts_per_tok", "5", "4"});
  // The router's rows are read first: they tell how many experts the weights have.
  expect_words(damaged("qwen3_moe", with("num_local_experts", 5)),
               {"model.layers.0.mlp.gate.weight", "[5,64]", "[4,64]"});
  expect_words(damaged("qwen3_moe", with("num_local_experts", 3)),
               {"model.layers.0.mlp.gate.weight", "[3,64]", "[4,64]"});
  expect_words(damaged("qwen3_moe", with("moe_intermediate_size", 32)), {"model.layers.0.mlp.experts.0", "[32,64]"});
}

TEST(BadExperts, ExpertsThatAreMissing) {
  expect_words(damaged("qwen3_moe",
                       [](json&, json& tensors) {
                         rename(tensors, "model.layers.2.mlp.experts.3.down_proj.weight",
                                "model.layers.2.mlp.experts.4.down_proj.weight");
                       }),
               {"model.layers.2.mlp.experts.3.down_proj.weight", "missing"});
}

TEST(BadExperts, RoutersWithoutABias) {
  expect_words(
      damaged("gpt_oss_mxfp4", [](json&, json& tensors) { rename(tensors, kLayer + "router.bias", "unused"); }),
      {kLayer + "router.bias", "missing"});
  expect_words(damaged("gpt_oss_mxfp4",
                       [](json&, json& tensors) { rename(tensors, kLayer + "experts.down_proj_bias", "unused"); }),
               {kLayer + "experts.down_proj_bias", "missing"});
  expect_words(damaged("gpt_oss_mxfp4",
                       [](json&, json& tensors) {
                         tensors.at(kLayer + "router.bias")["shape"] = {2, 2};
                       }),
               {kLayer + "router.bias", "[4]", "[2,2]"});
}

TEST(BadExperts, BlocksOfAnotherShape) {
  const std::string blocks = kLayer + "experts.gate_up_proj_blocks", scales = kLayer + "experts.gate_up_proj_scales";
  const auto shaped = [](const std::string& name, const json& shape) {
    return [=](json&, json& tensors) { tensors.at(name)["shape"] = shape; };
  };
  expect_words(damaged("gpt_oss_mxfp4", shaped(blocks, {4, 64, 1, 32})), {blocks, "[4,64,2,16]", "[4,64,1,32]"});
  expect_words(damaged("gpt_oss_mxfp4", shaped(blocks, {4, 64, 32})), {blocks, "[4,64,2,16]", "[4,64,32]"});
  expect_words(damaged("gpt_oss_mxfp4", shaped(scales, {4, 128})), {scales, "[4,64,2]", "[4,128]"});
  expect_words(damaged("gpt_oss_mxfp4", [&](json&, json& tensors) { tensors.at(blocks)["dtype"] = "I8"; }),
               {blocks, "U8", "I8"});
  expect_words(damaged("gpt_oss_mxfp4", [&](json&, json& tensors) { rename(tensors, scales, "unused"); }),
               {scales, "missing"});
  // Plain weights are asked for where the config says nothing of MXFP4.
  expect_words(damaged("gpt_oss_mxfp4", [](json& config, json&) { config.erase("quantization_config"); }),
               {"model.layers.0.mlp.experts.gate_up_proj", "missing"});
}

}  // namespace
}  // namespace hayfork::engine
