// What every family file gives: its model_type, its key lists and a function from config.json to a
// ModelSpec. The helpers read what families share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config.h"
#include "engine/models/spec.h"

namespace hayfork::engine {

struct FamilyInput {
  const Config& config;  // keys checked
  std::string prefix;    // of tensor names: "model.", "model.language_model.", …
  std::string head;      // name of the output matrix' tensor when it is not tied
  bool tied_outside;     // tie_word_embeddings of a multimodal wrapper, for configs that leave it to the wrapper
  std::function<bool(const std::string&)> has_tensor;  // older files name some tensors otherwise
};

struct Family {
  std::string_view model_type;
  ConfigKeys (*keys)();
  ModelSpec (*build)(const FamilyInput& input);
  bool strict = false;
};

// The explicit table (registry.cc). Null: unknown.
const Family* find_family(std::string_view model_type);
std::vector<std::string_view> family_names();

// Keys of every transformers config: what each family adds its own to.
ConfigKeys common_keys();
ConfigKeys with(ConfigKeys keys, const std::vector<std::string_view>& used,
                const std::vector<std::string_view>& inert = {}, const std::vector<DefaultKey>& fixed = {});

// The sizes all softmax families share, bounded. Throws: corrupt.
struct Shape {
  int64_t hidden = 0, ffn = 0, vocab = 0, max_positions = 0;
  int32_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float eps = 1e-6F;
  Activation act = Activation::silu;
  bool tied = false;
};
struct ShapeDefaults {
  double eps = 1e-6;
  bool tied = false;
  std::string_view act = "silu";
  std::string_view act_key = "hidden_act";
  bool needs_ffn = true;  // intermediate_size must be there
};
Shape read_shape(const FamilyInput& input, const ShapeDefaults& defaults);
Activation read_activation(const Config& config, std::string_view key, std::string_view fallback);

// Bounds for sizes in config files: far above any model, far below what overflows.
constexpr int64_t kMaxWidth = int64_t{1} << 22;  // hidden, ffn, heads · head_dim
constexpr int64_t kMaxHeads = 1 << 14;
constexpr int64_t kMaxHeadDim = 1 << 14;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr int64_t kUnlimitedPositions = int64_t{1} << 20;  // what a model without position limit is taken to bear

struct RopeDefaults {
  double base = 10000;
  double partial_factor = 1;
  std::string_view base_key = "rope_theta";       // v4 files
  std::string_view scaling_key = "rope_scaling";  // v4 files; empty: no scaling here
};
// The rope of a layer type, from rope_parameters (plain, or keyed by layer type) or from the v4 keys.
RopeSpec read_rope(const Config& config, std::string_view layer_type, int32_t head_dim, int64_t max_positions,
                   const RopeDefaults& defaults);

// layer_types, checked against the number of layers and the names allowed; empty when the key is absent.
std::vector<std::string> read_layer_types(const Config& config, int32_t n_layers,
                                          const std::vector<std::string_view>& allowed);
int32_t read_window(const Config& config, std::string_view key = "sliding_window");

// Llama's names: <prefix>layers.N.self_attn.q_proj and so on.
std::string layer_prefix(const FamilyInput& input, int32_t layer);
SoftmaxSpec llama_attention(const Shape& shape, const std::string& layer);
MlpSpec llama_mlp(const Shape& shape, const std::string& layer);
// A model with embedding, head and final norm named as llama's, layers still empty.
ModelSpec llama_frame(const FamilyInput& input, const Shape& shape, std::string_view family, NormKind norm);
// A layer with llama's two norms.
LayerSpec llama_layer(const Shape& shape, const std::string& layer, NormKind norm);

}  // namespace hayfork::engine
