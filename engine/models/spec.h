// A model as its layers' descriptors: what a family makes of config.json, and all that the transformer needs to load
// the tensors and run. Adding a family is writing these; adding a kind of layer is a mixer and a line in MixerSpec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/mixers/gdn.h"
#include "engine/mixers/gla.h"
#include "engine/mixers/lightning.h"
#include "engine/mixers/mamba2.h"
#include "engine/mixers/mixer.h"
#include "engine/mixers/mlp.h"
#include "engine/mixers/moe.h"
#include "engine/mixers/softmax.h"
#include "engine/rope.h"

namespace hayfork::engine {

using MixerSpec = std::variant<SoftmaxSpec, GdnSpec, LightningSpec, GlaSpec, Mamba2Spec>;
using FeedForwardSpec = std::variant<std::monostate, MlpSpec, MoeSpec, MoeBesideMlpSpec>;

// MiniMax: h = alpha · norm(h) + beta · block(norm(h)).
struct ResidualMix {
  float alpha = 1, beta = 1;
};

// Gemma 4's per-layer inputs, the layer's part: h += norm(projection(gelu(gate(h)) ⊙ input)).
struct LayerInputSpec {
  std::string gate, projection;  // without ".weight"
  NormSpec norm;
};
// And the model's part: input = (norm(projection(h₀) · hidden^-½) + table[token] · √width) / √2, [layers, width].
struct ModelInputSpec {
  int64_t width = 0, vocab = 0;
  std::string table, projection;  // tensor; without ".weight"
  NormSpec norm;
};

struct LayerSpec {
  MixerSpec mixer;
  NormSpec mixer_norm;
  std::optional<NormSpec> after_mixer_norm;  // on the mixer's output, before it is added (Gemma)
  FeedForwardSpec ffn;
  NormSpec ffn_norm;
  std::optional<NormSpec> after_ffn_norm;
  float residual_scale = 1;  // h += residual_scale · block(norm(h))
  std::optional<ResidualMix> mixer_mix, ffn_mix;
  std::optional<LayerInputSpec> layer_input;
  std::string scalar;  // tensor [1] that multiplies h at the end; empty: none
};

struct ModelSpec {
  std::string family;  // model_type; "orthros" for two streams
  int64_t hidden = 0, vocab = 0;
  int64_t max_length = 0;
  std::string embed, head;     // tensors; head empty: tied to embed
  float embed_multiplier = 1;  // rounded to the compute type before use, as transformers does
  NormSpec final_norm;
  float hidden_scale = 1;  // applied after the final norm
  float logit_softcap = 0;
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  std::optional<ModelInputSpec> layer_inputs;
  bool two_streams = false;
  std::vector<std::string> ignored_prefixes, ignored_suffixes;  // of tensors that do not matter here
};

// Blocks of a layer from their descriptors (spec.cc). Throws: as Loader.
std::unique_ptr<Mixer> make_mixer(Loader& loader, const MixerSpec& spec, int64_t hidden);
std::unique_ptr<Block> make_feed_forward(Loader& loader, const FeedForwardSpec& spec, int64_t hidden);  // may be null

}  // namespace hayfork::engine
