#include "engine/models/summary.h"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace hayfork::engine {
namespace {

std::string layer_label(const LayerInfo& layer) {
  const std::string nope = layer.position == "nope" && (layer.kind == "full" || layer.kind == "swa") ? "-NoPE" : "";
  if (layer.kind == "swa") return fmt::format("SWA-{}{}", layer.window, nope);
  if (layer.kind == "orthros") return fmt::format("Orthros-{}", layer.window);
  if (layer.kind == "gdn") return "GDN";
  if (layer.kind == "gla") return "GLA";
  if (layer.kind == "mamba2") return "Mamba-2";
  if (layer.kind == "lightning") return "Lightning";
  if (layer.kind == "retnet") return "RetNet";
  return layer.kind + nope;
}

// "SWA-64 ×3 + full": kinds in order of first appearance, with their counts.
std::string arch_label(const std::vector<LayerInfo>& layers) {
  std::vector<std::pair<std::string, int>> counts;
  for (const LayerInfo& layer : layers) {
    const std::string label = layer_label(layer);
    const auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& entry) { return entry.first == label; });
    if (it == counts.end()) {
      counts.emplace_back(label, 1);
    } else {
      ++it->second;
    }
  }
  std::string text;
  for (const auto& [label, n] : counts) {
    if (!text.empty()) text += " + ";
    text += n == 1 ? label : fmt::format("{} ×{}", label, n);
  }
  return text;
}

std::string arch_word(const ModelSpec& spec, const std::vector<LayerInfo>& layers) {
  std::set<std::string> kinds;
  for (const LayerInfo& layer : layers) kinds.insert(layer.kind);
  const bool only_softmax = std::all_of(kinds.begin(), kinds.end(), [](const std::string& kind) {
    return kind == "full" || kind == "swa" || kind == "orthros" || kind == "headwise";
  });
  if (spec.two_streams) return only_softmax ? "orthros" : "orthros-h";
  return kinds.size() == 1 && *kinds.begin() != "headwise" ? *kinds.begin() : "hybrid";
}

// Each window moves information by w − 1 positions at most, and K/V of a layer depend on the layers before it; one
// unwindowed or recurrent reader of the base stream makes the reach everything (docs/orthros.md, Reach).
void set_reach(ModelInfo& info) {
  int64_t kv = 1, hidden = 1;
  for (const LayerInfo& layer : info.layers) {
    const bool windowed = (layer.kind == "swa" || layer.kind == "orthros") && layer.window > 0;
    if (!windowed) return;
    kv = hidden;
    hidden += layer.window - 1;
  }
  info.kv_reach_tokens = kv;
  info.hidden_reach_tokens = hidden;
}

}  // namespace

void summarize(const ModelSpec& spec, const std::vector<StateSpec>& states, int64_t kv_bytes, ModelInfo& info) {
  info.family = spec.family;
  info.vocab_size = static_cast<int32_t>(spec.vocab);
  info.hidden_size = static_cast<int32_t>(spec.hidden);
  info.max_length = static_cast<int32_t>(std::min<int64_t>(spec.max_length, std::numeric_limits<int32_t>::max()));
  for (size_t i = 0; i < states.size(); ++i) {
    const StateSpec& state = states[i];
    info.layers[i].state_bytes_per_token = int64_t{state.n_kv_heads} * (state.k_dim + state.v_dim) * kv_bytes;
    info.layers[i].state_bytes_fixed = state.state_bytes;
  }
  info.arch = arch_word(spec, info.layers);
  info.arch_label = arch_label(info.layers);
  set_reach(info);
}

}  // namespace hayfork::engine
