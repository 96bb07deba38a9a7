// hayfork_hybrid: one schema for mixtures of softmax, sliding-window, Lightning, Gated DeltaNet
// and Mamba-2 layers over a llama skeleton. Strict: unknown keys, layer types and tensors are errors.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/models/families.h"

namespace hayfork::engine {
namespace {

struct HybridInput {
  const Config& config;
  const Shape& shape;
  const std::vector<std::string>& types;
  std::vector<std::optional<std::vector<double>>> head_windows;
  std::vector<std::optional<std::vector<bool>>> head_rope;
  std::vector<RopeSpec>& ropes;  // of the model: one for each head size that rotates
};

bool is_softmax(const std::string& type) {
  return type == "full_attention" || type == "sliding_attention";
}

int32_t rope_of(const HybridInput& in, int32_t head_dim) {
  const auto it =
      std::find_if(in.ropes.begin(), in.ropes.end(), [&](const RopeSpec& rope) { return rope.head_dim == head_dim; });
  if (it != in.ropes.end()) return static_cast<int32_t>(it - in.ropes.begin());
  in.ropes.push_back(read_rope(in.config, "full_attention", head_dim, in.shape.max_positions, {}));
  return static_cast<int32_t>(in.ropes.size()) - 1;
}

std::vector<int64_t> read_widths(const Config& c, int32_t n_layers) {
  auto widths = c.integer_or_list("intermediate_size", 1, kMaxWidth);
  if (widths.size() == 1) widths.assign(static_cast<size_t>(n_layers), widths[0]);
  if (widths.size() != static_cast<size_t>(n_layers))
    c.fail("intermediate_size", fmt::format("want one integer or {}, found {}", n_layers, widths.size()));
  return widths;
}

// A list per layer of something per K/V head: null where a layer has none, as a recurrent one must.
template <typename Lists>
void check_head_lists(const Config& c, const std::vector<std::string>& types, std::string_view key,
                      const Lists& lists) {
  if (!c.has(key)) return;
  if (lists.size() != types.size()) c.fail(key, fmt::format("want {} entries, found {}", types.size(), lists.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    if (lists[i] && !is_softmax(types[i])) c.fail(key, fmt::format("layer {} has no softmax heads: want null", i));
  }
}

// Windows per kv head: −1 means full. Equal windows are the layer's.
void set_head_windows(const HybridInput& in, const std::vector<double>& windows, SoftmaxSpec& a) {
  if (windows.size() != static_cast<size_t>(a.n_kv_heads))
    in.config.fail("head_windows", fmt::format("want {} windows in a layer, found {}", a.n_kv_heads, windows.size()));
  for (const double w : windows) {
    if (w != std::floor(w) || w == 0) in.config.fail("head_windows", fmt::format("want −1 or a window, found {}", w));
    a.kv_head_windows.push_back(w < 0 ? 0 : static_cast<int32_t>(w));
  }
  a.window = a.kv_head_windows[0];
  const bool equal =
      std::all_of(a.kv_head_windows.begin(), a.kv_head_windows.end(), [&](int32_t w) { return w == a.window; });
  if (equal) a.kv_head_windows.clear();
}

SoftmaxSpec hybrid_softmax(const HybridInput& in, size_t i, const std::string& name) {
  const Config& c = in.config;
  SoftmaxSpec a = llama_attention(in.shape, name);
  const bool slides = in.types[i] == "sliding_attention";
  if (slides) {
    a.window = read_window(c);
    if (a.window == 0) c.fail("sliding_window", "layer_types names sliding layers, but there is no window");
  }
  if (c.boolean("attention_sinks", false)) a.sinks = name + "self_attn.sinks";
  if (c.boolean("qk_norm", false)) {
    a.q_norm = NormSpec{name + "self_attn.q_norm.weight", NormKind::llama, in.shape.eps};
    a.k_norm = NormSpec{name + "self_attn.k_norm.weight", NormKind::llama, in.shape.eps};
  }
  if (i < in.head_windows.size() && in.head_windows[i]) set_head_windows(in, *in.head_windows[i], a);
  const auto nope = c.texts("nope_layer_types");
  bool rotates = std::find(nope.begin(), nope.end(), in.types[i]) == nope.end();
  if (i < in.head_rope.size() && in.head_rope[i]) {  // replaces the layer's flag
    a.kv_head_rope = *in.head_rope[i];
    if (a.kv_head_rope.size() != static_cast<size_t>(a.n_kv_heads))
      c.fail("head_rope", fmt::format("want {} entries in a layer, found {}", a.n_kv_heads, a.kv_head_rope.size()));
    rotates = std::find(a.kv_head_rope.begin(), a.kv_head_rope.end(), true) != a.kv_head_rope.end();
    if (!rotates) a.kv_head_rope.clear();
  }
  a.rope = rotates ? rope_of(in, a.head_dim) : -1;
  return a;
}

std::vector<float> read_log_decay(const HybridInput& in, size_t i, int32_t n_heads) {
  const Config& c = in.config;
  constexpr std::string_view kKey = "lightning_log_decay";
  if (c.is_text(kKey)) {
    auto logs = log_decays(c.text(kKey), n_heads, static_cast<int32_t>(i), in.shape.layers);
    if (logs.empty()) c.fail(kKey, "want fla, minimax, retnet or a list");
    return logs;
  }
  const auto lists = c.number_lists(kKey, -1e9, 0);
  if (lists.size() != in.types.size())
    c.fail(kKey, fmt::format("want {} entries, found {}", in.types.size(), lists.size()));
  for (size_t layer = 0; layer < lists.size(); ++layer) {
    const size_t found = lists[layer] ? lists[layer]->size() : 0;
    if (found != static_cast<size_t>(n_heads) && (lists[layer] || layer == i))
      c.fail(kKey, fmt::format("want {} numbers for layer {}, found {}", n_heads, layer, found));
  }
  return {lists[i]->begin(), lists[i]->end()};
}

LightningSpec hybrid_lightning(const HybridInput& in, size_t i, const std::string& layer) {
  const Shape& s = in.shape;
  const std::string name = layer + "lightning.";
  Config c = in.config.has("lightning") ? in.config.object("lightning") : Config::parse("{}", "config.json: lightning");
  c.check_keys({.used = {"num_heads", "num_kv_heads", "head_dim", "qkv_act", "qk_norm", "rope", "scale", "output_norm",
                         "output_gate"},
                .inert = {},
                .must_be_default = {}},
               {.strict = true});
  const auto choice = [&](const char* key, const char* fallback, const std::vector<std::string>& allowed) {
    const std::string value = c.text(key, fallback);
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
      c.fail(key, fmt::format("\"{}\" is not known", value.substr(0, 80)));
    return value;
  };
  LightningSpec spec;
  spec.kind = "lightning";
  const auto n = static_cast<int32_t>(c.integer("num_heads", 1, kMaxHeads, s.heads));
  const auto kv = static_cast<int32_t>(c.integer("num_kv_heads", 1, kMaxHeads, s.kv_heads));
  const auto hd = static_cast<int32_t>(c.integer("head_dim", 1, kMaxHeadDim, s.head_dim));
  if (n % kv != 0) c.fail("num_kv_heads", fmt::format("{} heads do not divide among {}", n, kv));
  spec.heads = {.n = n, .n_q = n, .n_k = kv, .n_v = kv, .dk = hd, .dv = hd};
  const int64_t q = int64_t{n} * hd, k = int64_t{kv} * hd;
  spec.q = {{name + "q_proj.weight", q, "", {}}};
  spec.k = {{name + "k_proj.weight", k, "", {}}};
  spec.v = {{name + "v_proj.weight", k, "", {}}};
  if (choice("output_gate", "sigmoid", {"sigmoid", "none"}) == "sigmoid")
    spec.gate = {{name + "g_proj.weight", q, "", {}}};
  spec.silu = choice("qkv_act", "silu", {"silu", "none"}) == "silu";
  if (c.boolean("qk_norm", false)) {
    spec.q_norm = NormSpec{name + "q_norm.weight", NormKind::llama, s.eps};
    spec.k_norm = NormSpec{name + "k_norm.weight", NormKind::llama, s.eps};
  }
  if (c.boolean("rope", false)) {
    if (hd % 2 != 0) c.fail("rope", fmt::format("heads of {} channels cannot rotate", hd));
    spec.rope = rope_of(in, hd);
  }
  if (choice("scale", "none", {"none", "rsqrt_head_dim"}) != "none")
    spec.q_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hd)));
  spec.log_decay = read_log_decay(in, i, n);
  const std::string norm = choice("output_norm", "all", {"all", "head", "none"});
  if (norm != "none") spec.out_norm = NormSpec{name + "o_norm.weight", NormKind::llama, s.eps};
  spec.norm_all_heads = norm == "all";
  spec.o = name + "o_proj";
  return spec;
}

GdnSpec hybrid_gdn(const HybridInput& in, const std::string& layer) {
  const Shape& s = in.shape;
  const std::string name = layer + "gdn.";
  Config c = in.config.object("gdn");
  c.check_keys({.used = {"num_heads", "num_k_heads", "num_v_heads", "head_k_dim", "head_v_dim", "conv_size", "use_gate",
                         "allow_neg_eigval"},
                .inert = {},
                .must_be_default = {}},
               {.strict = true});
  const auto size = [&](const char* key, int64_t low, int64_t high, std::optional<int64_t> fallback) {
    return static_cast<int32_t>(c.integer(key, low, high, fallback));
  };
  GdnSpec spec;
  GatedDeltaParams& h = spec.heads;
  h.n_q = size("num_heads", 1, kMaxHeads, s.heads);
  h.n_k = size("num_k_heads", 1, kMaxHeads, h.n_q);
  h.n_v = size("num_v_heads", 1, kMaxHeads, h.n_k);
  h.dk = size("head_k_dim", 1, kMaxHeadDim, {});
  h.dv = size("head_v_dim", 1, kMaxHeadDim, h.dk);
  h.negative_eigenvalues = c.boolean("allow_neg_eigval", false);
  if (h.n_v % h.n_k != 0 || h.n_out() % h.n_q != 0 || h.n_out() % h.n_v != 0)
    c.fail("num_v_heads", fmt::format("{} query, {} key heads and {} states do not divide", h.n_q, h.n_k, h.n_v));
  spec.taps = size("conv_size", 0, 64, 0);
  if (spec.taps == 1) c.fail("conv_size", "a width of 1 is not supported");
  const int64_t q = int64_t{h.n_q} * h.dk, k = int64_t{h.n_k} * h.dk, v = int64_t{h.n_v} * h.dv;
  spec.q = {{name + "q_proj.weight", q, "", {}}};
  spec.k = {{name + "k_proj.weight", k, "", {}}};
  spec.v = {{name + "v_proj.weight", v, "", {}}};
  spec.a = {{name + "a_proj.weight", h.n_v, "", {}}};
  spec.b = {{name + "b_proj.weight", h.n_v, "", {}}};
  if (c.boolean("use_gate", true)) spec.gate = {{name + "g_proj.weight", int64_t{h.n_out()} * h.dv, "", {}}};
  if (spec.taps > 0)
    spec.conv = {{name + "q_conv1d.weight", q}, {name + "k_conv1d.weight", k}, {name + "v_conv1d.weight", v}};
  spec.a_log = name + "A_log";
  spec.dt_bias = name + "dt_bias";
  spec.out_norm = {name + "o_norm.weight", NormKind::llama, s.eps};
  spec.o = name + "o_proj";
  return spec;
}

Mamba2Spec hybrid_mamba2(const HybridInput& in, const std::string& layer) {
  Config c = in.config.object("mamba2");
  c.check_keys({.used = {"expand", "head_dim", "state_size", "n_groups", "conv_kernel", "use_conv_bias", "use_bias",
                         "norm_before_gate", "dt_limit"},
                .inert = {},
                .must_be_default = {}},
               {.strict = true});
  Mamba2Spec spec = read_mamba2(c, in.shape.hidden, {.expand = 2, .n_groups = 1, .limit_key = "dt_limit"});
  spec.eps = in.shape.eps;
  spec.tensors = layer + "mamba2.";
  return spec;
}

MixerSpec hybrid_mixer(const HybridInput& in, size_t i, const std::string& layer) {
  const std::string& type = in.types[i];
  if (type == "lightning_attention") return hybrid_lightning(in, i, layer);
  if (type == "gated_deltanet") return hybrid_gdn(in, layer);
  if (type == "mamba2") return hybrid_mamba2(in, layer);
  return hybrid_softmax(in, i, layer);
}

}  // namespace

ConfigKeys hayfork_hybrid_keys() {
  return with(common_keys(),
              {"version", "layer_types", "sliding_window", "attention_sinks", "qk_norm", "nope_layer_types",
               "head_windows", "head_rope", "lightning_log_decay", "lightning", "gdn", "mamba2"},
              {}, {{"attention_bias", "false"}, {"mlp_bias", "false"}});
}

ModelSpec build_hayfork_hybrid(const FamilyInput& input) {
  const Config& c = input.config;
  if (c.integer("version", 0, 1000) != 1) c.fail("version", "only version 1 is known");
  const Shape shape = read_shape(input, {.needs_ffn = false});
  const auto types = read_layer_types(
      c, shape.layers, {"full_attention", "sliding_attention", "lightning_attention", "gated_deltanet", "mamba2"});
  if (types.empty()) c.fail("layer_types", "it is missing");
  const auto widths = read_widths(c, shape.layers);
  ModelSpec model = llama_frame(input, shape, "hayfork_hybrid", NormKind::llama);
  const HybridInput in{
      c, shape, types, c.number_lists("head_windows", -1, kMaxPositions), c.boolean_lists("head_rope"), model.ropes};
  check_head_lists(c, types, "head_windows", in.head_windows);
  check_head_lists(c, types, "head_rope", in.head_rope);
  for (const std::string& type : c.texts("nope_layer_types")) {
    if (!is_softmax(type)) c.fail("nope_layer_types", "want softmax layer types");
  }
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = layer_prefix(input, i);
    LayerSpec layer = llama_layer(shape, name, NormKind::llama);
    layer.mixer = hybrid_mixer(in, static_cast<size_t>(i), name);
    MlpSpec mlp = llama_mlp(shape, name);
    mlp.width = widths[static_cast<size_t>(i)];
    layer.ffn = mlp;
    model.layers.push_back(layer);
  }
  return model;
}

}  // namespace hayfork::engine
