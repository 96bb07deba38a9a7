// Configs of hybrids, mixtures and recurrent models that are wrong: each ends with one error that names the key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_map.h"
#include "engine/model.h"
#include "engine/models/registry.h"
#include "tests/support/paths.h"

namespace hayfork::engine {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::filesystem::path folder(const std::string& name) {
  return test::source_dir() / "tests/golden/models" / name;
}

json config_of(const std::string& name) {
  return json::parse(read_file(folder(name) / "config.json", ErrorSubject::model));
}

std::string outcome(const json& config) {
  try {
    resolve_model(Config::parse(config.dump(), "config.json"), [](const std::string&) { return false; }, {});
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::internal) << error.render();
    return error.render();
  }
  return "accepted";
}

ModelSpec spec_of(const json& config) {
  return resolve_model(Config::parse(config.dump(), "config.json"), [](const auto&) { return false; }, {}).spec;
}

// The case's config with the value at a JSON pointer replaced.
std::string with(const std::string& name, const std::string& pointer, const json& value) {
  json config = config_of(name);
  config[json::json_pointer(pointer)] = value;
  return outcome(config);
}

// Where the values of a document are.
void add_pointers(const json& value, const std::string& at, std::vector<std::string>& found) {
  if (!at.empty()) found.push_back(at);
  if (!value.is_structured()) return;
  for (const auto& [key, child] : value.items()) add_pointers(child, at + '/' + key, found);
}

TEST(EveryFamily, TakesOrNamesKeysThatAreGoneOrOfAnyType) {
  const std::vector<json> values{nullptr,
                                 true,
                                 0,
                                 -1,
                                 3,
                                 1.5,
                                 INT64_MAX,
                                 INT64_MIN,
                                 1e300,
                                 "x",
                                 json::array(),
                                 json::object(),
                                 {1},
                                 json{{"a", 1}},
                                 json{{"__float__", "NaN"}}};
  int n_refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "tests/golden/models")) {
    const json config = config_of(entry.path().filename().string());
    std::vector<std::string> pointers;
    add_pointers(config, "", pointers);
    for (const std::string& pointer : pointers) {
      SCOPED_TRACE(entry.path().filename().string() + pointer);
      const json::json_pointer leaf(pointer);
      json changed = config;
      for (const json& value : values) {
        changed[leaf] = value;
        n_refused += outcome(changed) == "accepted" ? 0 : 1;
      }
      json& parent = changed[leaf.parent_pointer()];
      if (parent.is_array()) {
        parent.erase(static_cast<size_t>(std::stoi(leaf.back())));
      } else {
        parent.erase(leaf.back());
      }
      n_refused += outcome(changed) == "accepted" ? 0 : 1;
    }
  }
  EXPECT_GT(n_refused, 1000);
}

TEST(HybridConfig, IsStrict) {
  EXPECT_EQ(outcome(config_of("hybrid_mixed")), "accepted");
  EXPECT_THAT(with("hybrid_mixed", "/anything", nullptr), HasSubstr("anything"));
  EXPECT_THAT(with("hybrid_mixed", "/gdn/turbo", 1), HasSubstr("turbo"));
  EXPECT_THAT(with("hybrid_mixed", "/version", 2), HasSubstr("only version 1"));
}

TEST(HybridConfig, RefusesUnknownLayersAndWidths) {
  EXPECT_THAT(with("hybrid_mixed", "/layer_types/1", "spectral"), HasSubstr("unknown layer type \"spectral\""));
  EXPECT_THAT(with("hybrid_mixed", "/layer_types", {"mamba2"}), HasSubstr("want 6 entries, found 1"));
  EXPECT_THAT(with("hybrid_mixed", "/intermediate_size", {1, 2}), HasSubstr("intermediate_size"));
  EXPECT_THAT(with("hybrid_mixed", "/gdn/conv_size", 1), HasSubstr("conv_size"));
  EXPECT_THAT(with("hybrid_mixed", "/gdn/conv_size", 65), HasSubstr("conv_size"));
  EXPECT_THAT(with("hybrid_mixed", "/mamba2/conv_kernel", 1), HasSubstr("conv_kernel"));
  EXPECT_THAT(with("hybrid_mixed", "/mamba2/conv_kernel", 65), HasSubstr("conv_kernel"));
  EXPECT_THAT(with("hybrid_mixed", "/mamba2/head_dim", 48), HasSubstr("heads of 48"));
  EXPECT_THAT(with("hybrid_mixed", "/gdn/num_v_heads", 3), HasSubstr("do not divide"));
  EXPECT_THAT(with("hybrid_mixed", "/nope_layer_types", {"mamba2"}), HasSubstr("nope_layer_types"));
}

TEST(HybridConfig, RefusesHeadSplitsThatDoNotAddUp) {
  const json none = nullptr;
  EXPECT_THAT(with("hybrid_mixed", "/head_windows", {{-1, 4, 4}, none, none, none, none, none}),
              HasSubstr("want 2 windows"));
  EXPECT_THAT(with("hybrid_mixed", "/head_windows", {{-1, 4}}), HasSubstr("want 6 entries"));
  EXPECT_THAT(with("hybrid_mixed", "/head_windows", {{0, 4}, none, none, none, none, none}), HasSubstr("head_windows"));
  EXPECT_THAT(with("hybrid_mixed", "/head_rope", {{true}, none, none, none, none, none}), HasSubstr("head_rope"));
  EXPECT_THAT(with("hybrid_mixed", "/head_windows", json::array()), HasSubstr("want 6 entries, found 0"));
  EXPECT_THAT(with("hybrid_mixed", "/head_windows", {none, {-1, 4}, none, none, none, none}),
              HasSubstr("layer 1 has no softmax heads"));
  EXPECT_THAT(with("hybrid_mixed", "/head_rope", {none, none, none, {true, true}, none, none}),
              HasSubstr("layer 3 has no softmax heads"));
}

TEST(HybridConfig, HeadsOfAnotherSizeRotateByTheirOwnTable) {
  json config = config_of("hybrid_mixed");  // layers 0 (sliding) and 3 (Lightning) rotate, the full one does not
  config["lightning"].update({{"head_dim", 10}, {"rope", true}});
  const ModelSpec model = spec_of(config);
  ASSERT_EQ(model.ropes.size(), 2u);
  EXPECT_EQ(model.ropes[0].rotary_dim, 16);
  EXPECT_EQ(model.ropes[1].rotary_dim, 10);
  EXPECT_EQ(std::get<SoftmaxSpec>(model.layers[0].mixer).rope, 0);
  EXPECT_EQ(std::get<LightningSpec>(model.layers[3].mixer).rope, 1);
  EXPECT_EQ(std::get<SoftmaxSpec>(model.layers[4].mixer).rope, -1);
  config["lightning"]["head_dim"] = 9;
  EXPECT_THAT(outcome(config), HasSubstr("heads of 9 channels cannot rotate"));
}

TEST(HybridConfig, OddHeadsMayNotRotate) {
  json config = config_of("hybrid_mixed");
  config["head_dim"] = 15;
  EXPECT_THAT(outcome(config), HasSubstr("15 of 15 channels rotate"));
  config["nope_layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_TRUE(spec_of(config).ropes.empty());
  config["head_rope"] = {{true, false}, nullptr, nullptr, nullptr, nullptr, nullptr};
  EXPECT_THAT(outcome(config), HasSubstr("15 of 15 channels rotate"));
}

TEST(HybridConfig, RefusesDecaysOutOfRange) {
  EXPECT_THAT(with("hybrid_mixed", "/lightning_log_decay", "guess"), HasSubstr("lightning_log_decay"));
  const json none = nullptr;
  const auto lists = [&](const json& third) { return json{none, none, none, third, none, none}; };
  EXPECT_EQ(with("hybrid_mixed", "/lightning_log_decay", lists({-1, -1, -1, 0})), "accepted");
  EXPECT_THAT(with("hybrid_mixed", "/lightning_log_decay", lists({-1, -1, -1, 0.5})), HasSubstr("found 0.5"));
  EXPECT_THAT(with("hybrid_mixed", "/lightning_log_decay", lists({-1, -1})),
              HasSubstr("4 numbers for layer 3, found 2"));
  EXPECT_THAT(with("hybrid_mixed", "/lightning_log_decay", lists(none)), HasSubstr("4 numbers for layer 3, found 0"));
  EXPECT_THAT(with("hybrid_mixed", "/lightning_log_decay", json::array({none})), HasSubstr("want 6 entries, found 1"));
  EXPECT_THAT(with("hybrid_mixed", "/lightning_log_decay", {none, none, none, {-1, -1, -1, -1}, {-1}, none}),
              HasSubstr("4 numbers for layer 4, found 1"));
  EXPECT_THAT(with("hybrid_mixed", "/lightning_log_decay", lists({{{"__float__", "NaN"}}, -1, -1, 0})),
              HasSubstr("lightning_log_decay"));
}

TEST(Gemma4Config, FullLayersShareOneHeadSize) {
  EXPECT_EQ(outcome(config_of("gemma4_ple")), "accepted");
  json config = config_of("gemma4_ple");  // its full layers have an entry each in per_layer_config
  config["layer_types"][0] = "full_attention";
  EXPECT_THAT(outcome(config), HasSubstr("per_layer_config"));
  config["per_layer_config"]["0"] = config["per_layer_config"]["1"];
  EXPECT_EQ(outcome(config), "accepted");
}

TEST(MixtureConfig, EachFamilyTakesBothNamesOfTheCount) {
  for (const char* name : {"qwen3_moe", "qwen3_next"}) {
    json config = config_of(name);
    config.erase("num_local_experts");
    config.erase("num_experts");
    for (const char* key : {"num_experts", "num_local_experts"}) {
      json one = config;
      one[key] = 4;
      EXPECT_EQ(outcome(one), "accepted") << name << ' ' << key;
    }
    EXPECT_EQ(outcome(config), "accepted") << name;  // the class's default
  }
}

TEST(MixtureConfig, RefusesCountsThatDoNotFit) {
  EXPECT_THAT(with("qwen3_moe", "/num_experts_per_tok", 5), HasSubstr("5 experts a token, but there are 4"));
  EXPECT_THAT(with("qwen3_moe", "/num_local_experts", 0), HasSubstr("num_local_experts"));
  EXPECT_THAT(with("gpt_oss_mxfp4", "/num_experts_per_tok", 9), HasSubstr("num_experts_per_tok"));
  EXPECT_THAT(with("gpt_oss_mxfp4", "/quantization_config/quant_method", "awq"), HasSubstr("awq"));
}

TEST(RecurrentConfig, RefusesWhatIsNotComputed) {
  EXPECT_THAT(with("mamba2", "/num_heads", 7), HasSubstr("num_heads"));
  EXPECT_THAT(with("mamba2", "/time_step_limit", {0.5, 0.1}), HasSubstr("time_step_limit"));
  EXPECT_THAT(with("fla_gla", "/feature_map", "relu"), HasSubstr("feature_map"));
  EXPECT_THAT(with("fla_gla", "/attnres_block_size", 4), HasSubstr("attnres_block_size"));
  EXPECT_THAT(with("fla_gla", "/attn", {{"layers", {9}}, {"num_heads", 4}}), HasSubstr("layers"));
  EXPECT_THAT(with("fla_gla", "/attn", {{{"layers", {1}}, {"num_heads", 4}}, {{"layers", {1}}, {"num_heads", 4}}}),
              HasSubstr("layer 1 is named twice"));
  EXPECT_THAT(with("fla_gla", "/attn", {{"layers", {1}}}), HasSubstr("num_heads"));
  EXPECT_THAT(with("fla_gla", "/attn", {{"num_heads", 4}}), HasSubstr("\"layers\" is not usable"));
  EXPECT_THAT(with("fla_gla", "/elementwise_affine", false), HasSubstr("elementwise_affine"));
  EXPECT_THAT(with("mamba2", "/rmsnorm", false), HasSubstr("rmsnorm"));
  const json infinity = {{"__float__", "Infinity"}};
  EXPECT_EQ(with("mamba2", "/time_step_limit", {0.5, infinity}), "accepted");
  EXPECT_THAT(with("mamba2", "/time_step_limit", {infinity, infinity}), HasSubstr("time_step_limit"));
  EXPECT_THAT(with("qwen3_next", "/linear_num_value_heads", 3), HasSubstr("linear_num_value_heads"));
  for (const int taps : {1, 65}) {
    EXPECT_THAT(with("qwen3_next", "/linear_conv_kernel_dim", taps), HasSubstr("linear_conv_kernel_dim"));
    EXPECT_THAT(with("mamba2", "/conv_kernel", taps), HasSubstr("conv_kernel"));
  }
}

TEST(RecurrentConfig, AFloorOfZeroForgetsNothing) {
  json config = config_of("fla_gla");
  const auto floor = [&] { return std::get<GlaSpec>(spec_of(config).layers.at(0).mixer).floor; };
  EXPECT_EQ(floor(), -std::numeric_limits<float>::infinity());
  config["clamp_min"] = 0;
  EXPECT_EQ(floor(), 0);
  config["clamp_min"] = -0.5;
  EXPECT_EQ(floor(), -0.5F);
  EXPECT_THAT(with("fla_gla", "/clamp_min", 0.5), HasSubstr("clamp_min"));
}

// Keys that both libraries write and that only their own kernels or their start of training read.
TEST(RecurrentConfig, TakesTheKeysThatItsLibrariesWrite) {
  json config = config_of("mamba2");
  config.update({{"rms_norm", true}, {"norm_before_gate", true}, {"time_step_init_scheme", "random"}});
  EXPECT_EQ(outcome(config), "accepted");
  const auto gated_last = [](const json& c) {
    return std::get<Mamba2Spec>(spec_of(c).layers.at(0).mixer).norm_before_gate;
  };
  EXPECT_FALSE(gated_last(config));  // transformers never reads it
  for (const char* key : {"time_step_limit", "time_step_max", "time_step_min", "time_step_floor", "layer_norm_epsilon"})
    config.erase(key);
  config.update({{"norm_eps", 1e-5}, {"A_init_range", {1, 16}}, {"conv_init", nullptr}, {"dt_init_floor", 1e-4}});
  config.update({{"dt_min", 1e-3}, {"dt_max", 0.1}, {"dt_limit", {0.0, 1e30}}, {"rmsnorm", true}});
  EXPECT_EQ(outcome(config), "accepted");
  EXPECT_TRUE(gated_last(config));  // flash-linear-attention does
}

TEST(OrthrosConfig, RefusesBackbonesAndSwitchesItDoesNotKnow) {
  EXPECT_THAT(with("orthros_h_switches", "/orthros/gdn/read", "during"), HasSubstr("read"));
  EXPECT_THAT(with("orthros_h_switches", "/orthros/gdn/query_conv", "keep"), HasSubstr("query_conv"));
  EXPECT_THAT(with("orthros_h_switches", "/orthros/layers", {0}), HasSubstr("layer 0 is not a full-attention layer"));
  EXPECT_THAT(with("orthros_qwen3_pre", "/orthros/window_size", 0), HasSubstr("window_size"));
  EXPECT_THAT(with("orthros_qwen3_pre", "/orthros/scale_offset_stage", "mid"), HasSubstr("scale_offset_stage"));
  json config = config_of("hybrid_mixed");  // holds Mamba-2 and Lightning layers
  config["model_type"] = "orthros";
  config["orthros"] = {
      {"version", 1}, {"backbone_model_type", "hayfork_hybrid"}, {"window_size", 8}, {"scale_offset", false}};
  EXPECT_THAT(outcome(config), HasSubstr("cannot carry Orthros"));
}

TEST(OrthrosConfig, LayersAreASet) {
  json config = config_of("orthros_qwen3_pre");
  const auto taking_part = [&](const json& layers) {
    config["orthros"]["layers"] = layers;
    std::vector<size_t> found;
    const ModelSpec model = spec_of(config);
    for (size_t i = 0; i < model.layers.size(); ++i) {
      if (std::get<SoftmaxSpec>(model.layers[i].mixer).orthros) found.push_back(i);
    }
    return found;
  };
  EXPECT_EQ(taking_part({2, 0}), (std::vector<size_t>{0, 2}));
  EXPECT_EQ(taking_part(json::array()), std::vector<size_t>{});
  EXPECT_THAT(with("orthros_qwen3_pre", "/orthros/layers", {2, 0, 2}), HasSubstr("layer 2 is named twice"));
}

TEST(Mxfp4Checkpoint, WrongBlockShapesAndMissingBiasesNameTheTensor) {
  const auto load = [](const std::string& pointer, const json& value) -> std::string {
    const test::TempDir dir;
    for (const auto& entry : std::filesystem::directory_iterator(folder("gpt_oss_mxfp4"))) {
      std::filesystem::copy(entry.path(), dir.path() / entry.path().filename());
    }
    json config = config_of("gpt_oss_mxfp4");
    config[json::json_pointer(pointer)] = value;
    std::filesystem::permissions(dir.path() / "config.json", std::filesystem::perms::owner_all);
    write_file_atomically(dir.path() / "config.json", config.dump());
    try {
      const auto context = make_cpu_context(DType::f32);
      load_model(*context, dir.path(), {});
    } catch (const Error& error) {
      return error.render();
    }
    return "loaded";
  };
  EXPECT_EQ(load("/use_cache", true), "loaded");
  EXPECT_THAT(load("/intermediate_size", 64), HasSubstr("want"));
  EXPECT_THAT(load("/intermediate_size", 40), HasSubstr("want"));
  EXPECT_THAT(load("/num_local_experts", 3), HasSubstr("want"));
}

}  // namespace
}  // namespace hayfork::engine
