// Checkpoints that are damaged or unusual: one clear error each, or the right model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "engine/model.h"
#include "engine/weights.h"
#include "tests/support/golden_model.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_checkpoint.h"

namespace hayfork::engine {
namespace {

using test::TinyCheckpoint;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<int32_t> kIds = {1, 5, 9, 2, 7};

// The message of loading it, or "loaded".
std::string outcome(const TinyCheckpoint& checkpoint, int n_shards = 1,
                    const std::function<void(const std::filesystem::path&)>& damage = {},
                    std::vector<std::string> ignored = {}) {
  const test::TempDir dir;
  checkpoint.write(dir.path(), n_shards);
  if (damage) damage(dir.path());
  try {
    const auto context = make_cpu_context(DType::f32);
    load_model(*context, dir.path(), {.ignored_config_keys = std::move(ignored), .events = {}});
  } catch (const Error& error) {
    EXPECT_EQ(error.subject(), ErrorSubject::model);
    return std::string(name(error.code())) + ": " + error.render();
  }
  return "loaded";
}

std::string with_config(const std::string& key, const nlohmann::json& value) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.config[key] = value;
  return outcome(c);
}

TEST(LoadModel, TheUndamagedCheckpointLoads) {
  EXPECT_EQ(outcome(TinyCheckpoint::llama()), "loaded");
}

TEST(LoadModel, AFolderWithoutAModelIsNotFound) {
  const auto context = make_cpu_context(DType::f32);
  EXPECT_THROW(load_model(*context, "/nonexistent/model", {}), Error);
  TinyCheckpoint c = TinyCheckpoint::llama();
  EXPECT_THAT(outcome(c, 1, [](const auto& dir) { std::filesystem::remove(dir / "model.safetensors"); }),
              AllOf(HasSubstr("not_found"), HasSubstr("holds no weights")));
}

TEST(LoadModel, MissingAndUnexpectedTensorsAreNamed) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.tensors.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_THAT(outcome(c), AllOf(HasSubstr("not_found"), HasSubstr("model.layers.1.mlp.up_proj.weight is missing")));
  c = TinyCheckpoint::llama();
  c.set("model.layers.0.self_attn.q_norm.weight", {4});
  EXPECT_THAT(outcome(c), AllOf(HasSubstr("corrupt"), HasSubstr("unexpected tensor model.layers.0.self_attn.q_norm")));
}

TEST(LoadModel, WrongShapeAndTypeSayWhatWasWantedAndFound) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.set("model.layers.0.self_attn.k_proj.weight", {8, 4});
  EXPECT_THAT(outcome(c), AllOf(HasSubstr("k_proj.weight"), HasSubstr("want F32, BF16 or F16 [4,8], found F32 [8,4]")));
  c = TinyCheckpoint::llama();
  c.tensors["model.norm.weight"].dtype = DType::i64;
  EXPECT_THAT(outcome(c), AllOf(HasSubstr("model.norm.weight"), HasSubstr("found I64 [8]")));
}

TEST(LoadModel, NanAndInfinityInWeightsAreNamed) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.tensors["model.layers.1.mlp.down_proj.weight"].values[13] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(outcome(c), AllOf(HasSubstr("down_proj.weight holds a NaN"), HasSubstr("[1,1]")));
  c = TinyCheckpoint::llama();
  c.tensors["model.norm.weight"].dtype = DType::bf16;
  c.tensors["model.norm.weight"].values[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(outcome(c), HasSubstr("model.norm.weight holds a NaN or an infinity"));
}

TEST(LoadModel, AbsurdSizesAreRefusedBeforeAnythingIsAllocated) {
  EXPECT_THAT(with_config("num_hidden_layers", 0), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(with_config("num_attention_heads", 1'000'000'000), HasSubstr("num_attention_heads"));
  EXPECT_THAT(with_config("hidden_size", -8), HasSubstr("hidden_size"));
  EXPECT_THAT(with_config("vocab_size", nlohmann::json::parse("18446744073709551615")), HasSubstr("vocab_size"));
  EXPECT_THAT(with_config("hidden_size", "8"), HasSubstr("found \"8\""));
  EXPECT_THAT(with_config("rms_norm_eps", nullptr), "loaded");  // the class's default
  EXPECT_THAT(with_config("num_key_value_heads", 3), HasSubstr("do not divide"));
  EXPECT_THAT(with_config("head_dim", 16384), HasSubstr("want F32"));  // the file is what limits it
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.config.erase("hidden_size");
  EXPECT_THAT(outcome(c), AllOf(HasSubstr("hidden_size"), HasSubstr("missing")));
}

TEST(LoadModel, KeysThatWouldChangeTheModelAreRefused) {
  EXPECT_THAT(with_config("block_sparse_attention", 4),
              AllOf(HasSubstr("unsupported"), HasSubstr("block_sparse_attention")));
  EXPECT_THAT(with_config("quantization_config", {{"quant_method", "gptq"}}), HasSubstr("quantization_config"));
  EXPECT_THAT(with_config("hidden_act", "relu"), HasSubstr("activation \"relu\""));
  EXPECT_THAT(with_config("model_type", "bert"), AllOf(HasSubstr("model type \"bert\""), HasSubstr("known are llama")));
  EXPECT_THAT(with_config("rope_scaling", {{"type", "spiral"}}), HasSubstr("rope scaling \"spiral\""));
  EXPECT_THAT(with_config("rope_scaling", {{"type", "linear"}}), AllOf(HasSubstr("factor"), HasSubstr("missing")));
  EXPECT_THAT(with_config("rope_scaling", {{"type", "linear"}, {"factor", 2}, {"twist", 1}}), HasSubstr("twist"));
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.config["block_sparse_attention"] = 4;
  EXPECT_EQ(outcome(c, 1, {}, {"block_sparse_attention"}), "loaded");
}

TEST(LoadModel, ShardsAreReadThroughTheIndex) {
  const TinyCheckpoint c = TinyCheckpoint::llama();
  EXPECT_EQ(outcome(c, 3), "loaded");
  EXPECT_THAT(outcome(c, 3, [](const auto& dir) { std::filesystem::remove(dir / "model-00002-of-00003.safetensors"); }),
              AllOf(HasSubstr("not_found"), HasSubstr("shard model-00002-of-00003.safetensors is missing")));
  const auto index = [](const std::string& text) {
    return [text](const std::filesystem::path& dir) { std::ofstream(dir / "model.safetensors.index.json") << text; };
  };
  EXPECT_THAT(outcome(c, 2, index(R"({"weight_map":{"a":"../../etc/passwd"}})")), HasSubstr("not a plain file name"));
  EXPECT_THAT(outcome(c, 2, index(R"({"weight_map":{"a":".."}})")), HasSubstr("not a plain file name"));
  EXPECT_THAT(outcome(c, 2, index(R"({"weight_map":{"a":7}})")), HasSubstr("not a string"));
  EXPECT_THAT(outcome(c, 2, index(R"([])")), HasSubstr("weight_map"));
  EXPECT_THAT(outcome(c, 2, index(R"({"weight_map":{"ghost":"model-00001-of-00002.safetensors"}})")),
              HasSubstr("tensor ghost is not in its shard"));
}

TEST(LoadModel, ATruncatedFileIsCorrupt) {
  const auto cut = [](const std::filesystem::path& dir) {
    std::filesystem::resize_file(dir / "model.safetensors", std::filesystem::file_size(dir / "model.safetensors") - 5);
  };
  EXPECT_THAT(outcome(TinyCheckpoint::llama(), 1, cut), AllOf(HasSubstr("corrupt"), HasSubstr("cut short")));
}

TEST(LoadModel, ATiedModelUsesTheEmbeddingEvenWhenAHeadIsThere) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  const auto logits = [](const TinyCheckpoint& checkpoint) {
    const test::TempDir dir;
    checkpoint.write(dir.path());
    return test::GoldenModel(dir.path(), DType::f32).logits(kIds, 0);
  };
  c.config["tie_word_embeddings"] = true;
  const auto with_head = logits(c);
  c.tensors.erase("lm_head.weight");
  EXPECT_EQ(logits(c), with_head);
  c.config["tie_word_embeddings"] = false;
  c.set("lm_head.weight", {16, 8});
  c.tensors["lm_head.weight"].values = c.tensors["model.embed_tokens.weight"].values;
  EXPECT_EQ(logits(c), with_head);
}

TEST(LoadModel, InfoCountsParametersOnceAndNamesTheArchitecture) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.config["eos_token_id"] = {2, 3};
  const test::TempDir dir;
  c.write(dir.path());
  std::ofstream(dir.path() / "generation_config.json") << R"({"eos_token_id":[3,9]})";
  const auto context = make_cpu_context(DType::f32);
  const auto model = load_model(*context, dir.path(), {});
  int64_t n = 0;
  for (const auto& [name, tensor] : c.tensors) n += static_cast<int64_t>(tensor.values.size());
  EXPECT_EQ(model->info().n_params, n);
  EXPECT_EQ(model->info().n_params_no_embedding, n - 2 * 16 * 8);
  EXPECT_EQ(model->info().arch, "full");
  EXPECT_EQ(model->info().arch_label, "full ×2");
  EXPECT_EQ(model->info().kv_reach_tokens, 0);
  EXPECT_EQ(model->info().eos_ids, (std::vector<int32_t>{2, 3, 9}));
  EXPECT_EQ(model->info().layers[0].state_bytes_per_token, 2 * 4 * 4);
  EXPECT_EQ(model->info().config_sha256.size(), 64u);
}

TEST(LoadModel, AWindowOnEveryLayerGivesAReach) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.config["model_type"] = "mistral";
  c.config["sliding_window"] = 5;
  const test::TempDir dir;
  c.write(dir.path());
  const auto context = make_cpu_context(DType::f32);
  const auto model = load_model(*context, dir.path(), {});
  EXPECT_EQ(model->info().arch_label, "SWA-5 ×2");
  EXPECT_EQ(model->info().kv_reach_tokens, 5);
}

TEST(LoadModel, OrthrosNeedsItsAffineTensorsAndAVersion) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  c.config["model_type"] = "orthros";
  c.config["orthros"] = {{"version", 1}, {"backbone_model_type", "llama"}, {"window_size", 4}, {"scale_offset", true}};
  EXPECT_THAT(outcome(c), HasSubstr("model.layers.0.self_attn.q_affine.base.scale is missing"));
  c.config["orthros"]["scale_offset"] = false;
  EXPECT_EQ(outcome(c), "loaded");
  c.set("model.layers.0.self_attn.q_affine.base.scale", {8});
  EXPECT_THAT(outcome(c), HasSubstr("unexpected tensor"));
  c = TinyCheckpoint::llama();
  c.config["model_type"] = "orthros";
  c.config["orthros"] = {{"version", 2}, {"backbone_model_type", "llama"}, {"window_size", 4}, {"scale_offset", false}};
  EXPECT_THAT(outcome(c), HasSubstr("only version 1"));
  c.config["orthros"]["version"] = 1;
  c.config["orthros"]["layers"] = {0, 2};
  EXPECT_THAT(outcome(c), HasSubstr("layers"));
  c.config["orthros"]["layers"] = {1};
  EXPECT_EQ(outcome(c), "loaded");
  c.config["orthros"]["surprise"] = nullptr;
  EXPECT_THAT(outcome(c), HasSubstr("surprise"));
}

TEST(Forward, NamesTheFirstLayerWhoseOutputIsNotFinite) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  // Every weight is finite, the products are not.
  for (float& x : c.tensors["model.layers.1.mlp.up_proj.weight"].values) x = x < 0 ? -1e25F : 1e25F;
  for (float& x : c.tensors["model.layers.1.mlp.down_proj.weight"].values) x *= 1e30F;
  const test::TempDir dir;
  c.write(dir.path());
  const auto context = make_cpu_context(DType::f32);
  const auto model = load_model(*context, dir.path(), {});
  Cache cache(*context, model->state_specs(), DType::f32, 2, 1);
  const SeqId seq = cache.create();
  ASSERT_TRUE(cache.extend(seq, 2));
  const SeqView view = cache.view(seq, 2);
  const std::vector<Row> rows = {{1, 0, 0, Stream::base, RowKind::prefill, -1},
                                 {2, 1, 0, Stream::base, RowKind::prefill, 0}};
  const auto result = model->forward(*context, {rows, std::span(&view, 1), 1}, cache);
  EXPECT_EQ(result.nonfinite_layer, (std::vector<int32_t>{1, 1}));
}

TEST(WeightsDigest, IsTheSameForAnyShardingAndFollowsTheBytes) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  const test::TempDir one, three, other;
  c.write(one.path());
  c.write(three.path(), 3);
  const std::string digest = weights_digest(one.path(), {});
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(weights_digest(three.path(), {}), digest);
  c.tensors["model.norm.weight"].values[0] += 1;
  c.write(other.path());
  EXPECT_NE(weights_digest(other.path(), {}), digest);
}

TEST(WeightsDigest, IsTakenFromTheCacheOnlyForTheSameFile) {
  TinyCheckpoint c = TinyCheckpoint::llama();
  const test::TempDir dir;
  c.write(dir.path());
  const auto cache = dir.path() / "digests";
  std::ofstream(cache) << "not a cache line\n";
  const std::string digest = weights_digest(dir.path(), cache);
  EXPECT_EQ(weights_digest(dir.path(), cache), digest);
  // A cache that says something else is believed, which shows that it is read …
  std::string text = read_file(cache, ErrorSubject::disk);
  text.replace(text.size() - 65, 64, std::string(64, 'a'));
  std::ofstream(cache) << text;
  EXPECT_EQ(weights_digest(dir.path(), cache), std::string(64, 'a'));
  // … but not for a file that was written again.
  c.tensors["model.norm.weight"].values[0] += 1;
  c.write(dir.path());
  const std::string changed = weights_digest(dir.path(), cache);
  EXPECT_NE(changed, std::string(64, 'a'));
  EXPECT_NE(changed, digest);
}

}  // namespace
}  // namespace hayfork::engine
