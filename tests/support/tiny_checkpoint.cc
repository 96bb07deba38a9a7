#include "tests/support/tiny_checkpoint.h"

#include <deque>
#include <fstream>

#include <fmt/format.h>

#include "engine/safetensors.h"

namespace hayfork::test {

void TinyCheckpoint::set(const std::string& name, std::vector<int64_t> shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  Tensor& tensor = tensors[name];
  tensor.shape = std::move(shape);
  tensor.values.clear();
  for (int64_t i = 0; i < n; ++i) {
    state_ = state_ * 1664525u + 1013904223u;
    tensor.values.push_back(static_cast<float>(state_ >> 8) / 16777216.0F - 0.5F);
  }
}

TinyCheckpoint TinyCheckpoint::llama() {
  TinyCheckpoint c;
  c.config = {{"model_type", "llama"},
              {"architectures", {"LlamaForCausalLM"}},
              {"vocab_size", 16},
              {"hidden_size", 8},
              {"intermediate_size", 12},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 2},
              {"num_key_value_heads", 1},
              {"rms_norm_eps", 1e-5},
              {"hidden_act", "silu"},
              {"max_position_embeddings", 64},
              {"rope_theta", 10000.0},
              {"tie_word_embeddings", false},
              {"eos_token_id", 2}};
  c.set("model.embed_tokens.weight", {16, 8});
  for (int i = 0; i < 2; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    c.set(layer + "input_layernorm.weight", {8});
    c.set(layer + "post_attention_layernorm.weight", {8});
    c.set(layer + "self_attn.q_proj.weight", {8, 8});
    c.set(layer + "self_attn.k_proj.weight", {4, 8});
    c.set(layer + "self_attn.v_proj.weight", {4, 8});
    c.set(layer + "self_attn.o_proj.weight", {8, 8});
    c.set(layer + "mlp.gate_proj.weight", {12, 8});
    c.set(layer + "mlp.up_proj.weight", {12, 8});
    c.set(layer + "mlp.down_proj.weight", {8, 12});
  }
  c.set("model.norm.weight", {8});
  c.set("lm_head.weight", {16, 8});
  return c;
}

void TinyCheckpoint::write(const std::filesystem::path& folder, int n_shards) const {
  std::ofstream(folder / "config.json") << config.dump(1);
  std::deque<std::vector<bf16>> halves;
  std::deque<std::vector<int64_t>> integers;
  std::vector<std::vector<engine::TensorOut>> shards(static_cast<size_t>(n_shards));
  nlohmann::json map;
  size_t next = 0;
  for (const auto& [name, tensor] : tensors) {
    const void* data = tensor.values.data();
    if (tensor.dtype == engine::DType::bf16) {
      auto& values = halves.emplace_back();
      for (const float x : tensor.values) values.push_back(to_bf16(x));
      data = values.data();
    } else if (tensor.dtype == engine::DType::i64) {
      data = integers.emplace_back(tensor.values.size(), 1).data();
    }
    const size_t shard = next++ % shards.size();
    shards[shard].push_back({name, tensor.dtype, tensor.shape, data});
    map[name] = fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, n_shards);
  }
  if (n_shards == 1) return engine::write_safetensors(folder / "model.safetensors", shards[0]);
  for (size_t i = 0; i < shards.size(); ++i) {
    engine::write_safetensors(folder / fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, n_shards), shards[i]);
  }
  std::ofstream(folder / "model.safetensors.index.json")
      << nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump();
}

}  // namespace hayfork::test
