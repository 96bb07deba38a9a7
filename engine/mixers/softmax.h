// Softmax attention in all its forms: full or sliding window, grouped heads, q/k/v norms, biases, softcap, sinks,
// rotary or none, an output gate, windows per head, K/V of another layer, and the two streams of Orthros
// (arXiv 2610.13735): base rows see a window, output rows see every base key.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/mixers/mixer.h"

namespace hayfork::engine {

// The equations and switches are those of docs/orthros.md.
struct OrthrosSpec {
  enum class Affine : uint8_t { none, pre_norm, post_norm };
  int32_t window = 0;  // of base rows, current token included
  Affine affine = Affine::none;
  std::string tensors;  // "<…>.q_affine": + ".base.scale", ".output.offset", …
};

struct SoftmaxSpec {
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float scale = 0;
  int32_t window = 0;                    // 0: all keys
  std::vector<int32_t> kv_head_windows;  // per kv head (0: all keys); empty: `window` for all
  std::vector<bool> kv_head_rope;        // per kv head; empty: all of them rotate
  float softcap = 0;
  int32_t rope = -1;       // index of the model's rope kinds; −1: none
  std::string q, k, v, o;  // tensor names without ".weight"; v empty: v = k before its norm and rotation
  bool qkv_bias = false, o_bias = false;
  bool gated = false;                              // q_proj has [query | gate] per head; o ⊙ σ(gate)
  std::optional<NormSpec> q_norm, k_norm, v_norm;  // per head
  std::string sinks;                               // tensor [n_heads]; empty: none
  int32_t kv_layer = -1;                           // ≥ 0: reads the K/V of that layer and has none of its own
  std::optional<OrthrosSpec> orthros;
};

// Throws: as Loader.
std::unique_ptr<Mixer> make_softmax(Loader& loader, const SoftmaxSpec& spec, int64_t hidden);

}  // namespace hayfork::engine
