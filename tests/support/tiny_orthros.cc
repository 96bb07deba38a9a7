#include "tests/support/tiny_orthros.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "engine/cache.h"
#include "engine/kernels/ops.h"
#include "tests/support/paths.h"

namespace hayfork::test {

using engine::Row;
using engine::RowKind;
using engine::Stream;

namespace {

constexpr int kHidden = 48, kFfn = 40, kVocab = 41;

void set_all(TinyCheckpoint& c, const std::string& name, int64_t n, float value) {
  c.tensors[name] = {{n}, std::vector<float>(static_cast<size_t>(n), value), engine::DType::f32};
}

}  // namespace

bool OrthrosShape::has_orthros(int layer) const {
  return layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end();
}

TinyCheckpoint tiny_orthros(const OrthrosShape& shape) {
  const int64_t q_width = int64_t{shape.n_heads} * shape.head_dim,
                kv_width = int64_t{shape.n_kv_heads} * shape.head_dim;
  TinyCheckpoint c;
  c.config = {{"model_type", "orthros"},
              {"architectures", {"OrthrosForCausalLM"}},
              {"vocab_size", kVocab},
              {"hidden_size", kHidden},
              {"intermediate_size", kFfn},
              {"num_hidden_layers", shape.n_layers},
              {"num_attention_heads", shape.n_heads},
              {"num_key_value_heads", shape.n_kv_heads},
              {"head_dim", shape.head_dim},
              {"rms_norm_eps", 1e-5},
              {"hidden_act", "silu"},
              {"max_position_embeddings", 512},
              {"rope_theta", 10000.0},
              {"tie_word_embeddings", false},
              {"attention_bias", false},
              {"eos_token_id", 2}};
  nlohmann::json block = {{"version", 1},
                          {"backbone_model_type", shape.backbone},
                          {"window_size", shape.window},
                          {"scale_offset", !shape.stage.empty()},
                          {"layers", nullptr}};
  if (!shape.stage.empty()) block["scale_offset_stage"] = shape.stage;
  if (!shape.layers.empty()) block["layers"] = shape.layers;
  c.config["orthros"] = block;
  c.set("model.embed_tokens.weight", {kVocab, kHidden});
  for (int i = 0; i < shape.n_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i), attention = layer + "self_attn.";
    c.set(layer + "input_layernorm.weight", {kHidden});
    c.set(layer + "post_attention_layernorm.weight", {kHidden});
    c.set(attention + "q_proj.weight", {q_width, kHidden});
    c.set(attention + "k_proj.weight", {kv_width, kHidden});
    c.set(attention + "v_proj.weight", {kv_width, kHidden});
    c.set(attention + "o_proj.weight", {kHidden, q_width});
    if (shape.backbone == "qwen3") {
      c.set(attention + "q_norm.weight", {shape.head_dim});
      c.set(attention + "k_norm.weight", {shape.head_dim});
    }
    for (const std::string stream : {"base", "output"}) {
      if (shape.stage.empty() || !shape.has_orthros(i)) continue;
      const std::string affine = attention + "q_affine." + stream;
      c.set(affine + ".scale", {q_width});
      for (float& scale : c.tensors[affine + ".scale"].values) scale += 1;
      c.set(affine + ".offset", {q_width});
      if (!shape.identity) continue;
      set_all(c, affine + ".scale", q_width, 1);
      set_all(c, affine + ".offset", q_width, 0);
    }
    c.set(layer + "mlp.gate_proj.weight", {kFfn, kHidden});
    c.set(layer + "mlp.up_proj.weight", {kFfn, kHidden});
    c.set(layer + "mlp.down_proj.weight", {kHidden, kFfn});
  }
  c.set("model.norm.weight", {kHidden});
  c.set("lm_head.weight", {kVocab, kHidden});
  // Norms near one, so that every layer matters; projections small enough that no softmax is a choice of one key, which
  // would let roundings grow.
  for (auto& [name, tensor] : c.tensors) {
    for (float& value : tensor.values) {
      if (name.ends_with("norm.weight")) value += 1;
      if (name.ends_with("_proj.weight")) value *= 0.4F;
    }
  }
  return c;
}

TinyCheckpoint backbone_of(const TinyCheckpoint& orthros) {
  TinyCheckpoint c = orthros;
  c.config["model_type"] = c.config["orthros"]["backbone_model_type"];
  c.config["architectures"] =
      c.config["model_type"] == "llama" ? nlohmann::json{"LlamaForCausalLM"} : nlohmann::json{"Qwen3ForCausalLM"};
  c.config.erase("orthros");
  std::erase_if(c.tensors, [](const auto& entry) { return entry.first.find("q_affine") != std::string::npos; });
  return c;
}

std::vector<int32_t> all_positions(int32_t n) {
  std::vector<int32_t> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

// A sequence and its cache.
struct OrthrosRunner::Timeline {
  Timeline(engine::Context& context, const engine::Model& model, engine::DType type, const Ids& ids_)
      : ids(ids_),
        cache(context, model.state_specs(), type, static_cast<int32_t>(ids.size()) / engine::kBlockTokens + 2, 1),
        seq(cache.create()) {}
  const Ids& ids;
  engine::Cache cache;
  engine::SeqId seq;
};

OrthrosRunner::OrthrosRunner(const TinyCheckpoint& checkpoint, const MakeContext& make_context, engine::DType type)
    : type_(type), context_(make_context(type)) {
  const TempDir folder;
  checkpoint.write(folder.path());
  model_ = engine::load_model(*context_, folder.path(), {});
}

OrthrosRunner::OrthrosRunner(const std::filesystem::path& folder, const MakeContext& make_context, engine::DType type)
    : type_(type), context_(make_context(type)), model_(engine::load_model(*context_, folder, {})) {}

// Base rows of [begin, end) and the rows of asked positions there.
void OrthrosRunner::pass(Timeline& line, int32_t begin, int32_t end, const Ids& positions, RowKind kind, bool base,
                         Logits* logits) {
  const bool two = model_->two_streams();
  std::vector<Row> rows;
  int32_t n_want = 0;
  const auto asked = [&](int32_t t) { return std::binary_search(positions.begin(), positions.end(), t); };
  if (base && !line.cache.extend(line.seq, end)) throw std::runtime_error("the test's cache is too small");
  for (int32_t t = begin; base && t < end; ++t) {
    const bool wanted = !two && asked(t);
    rows.push_back({line.ids[static_cast<size_t>(t)], t, 0, Stream::base, kind, wanted ? n_want++ : -1});
  }
  for (int32_t t = begin; two && t < end; ++t) {
    if (asked(t)) rows.push_back({line.ids[static_cast<size_t>(t)], t, 0, Stream::output, kind, n_want++});
  }
  const engine::SeqView view = line.cache.view(line.seq, static_cast<int32_t>(line.ids.size()));
  const engine::ForwardResult result = model_->forward(*context_, {rows, std::span(&view, 1), n_want}, line.cache);
  if (!result.nonfinite_layer.empty()) throw std::runtime_error("the model gave a value that is not finite");
  if (logits == nullptr || n_want == 0) return;
  std::vector<engine::HeadQuery> queries;
  const size_t first = logits->size();
  logits->resize(first + static_cast<size_t>(n_want),
                 std::vector<float>(static_cast<size_t>(model_->info().vocab_size)));
  for (int32_t i = 0; i < n_want; ++i) queries.push_back({i, {}, (*logits)[first + static_cast<size_t>(i)].data()});
  model_->head(*context_, result.hidden, queries);
}

OrthrosRunner::Logits OrthrosRunner::scores(const Ids& ids, const Ids& positions, int32_t chunk) {
  Timeline line(*context_, *model_, type_, ids);
  const auto n = static_cast<int32_t>(ids.size());
  Logits logits;
  for (int32_t at = 0; at < n; at += chunk) {
    pass(line, at, std::min(at + chunk, n), positions, RowKind::prefill, true, &logits);
  }
  return logits;
}

OrthrosRunner::Logits OrthrosRunner::late_scores(const Ids& ids, const Ids& positions) {
  Timeline line(*context_, *model_, type_, ids);
  const auto n = static_cast<int32_t>(ids.size());
  Logits logits;
  pass(line, 0, n, {}, RowKind::prefill, true, nullptr);
  pass(line, 0, n, positions, RowKind::prefill, false, &logits);
  return logits;
}

OrthrosRunner::Logits OrthrosRunner::decode_scores(const Ids& ids, int32_t n_prompt) {
  Timeline line(*context_, *model_, type_, ids);
  const auto n = static_cast<int32_t>(ids.size());
  Logits logits;
  pass(line, 0, n_prompt, {n_prompt - 1}, RowKind::prefill, true, &logits);
  for (int32_t t = n_prompt; t < n; ++t) pass(line, t, t + 1, {t}, RowKind::decode, true, &logits);
  return logits;
}

std::vector<float> OrthrosRunner::kv(const Ids& ids, int32_t layer, int32_t chunk, const Ids& positions) {
  Timeline line(*context_, *model_, type_, ids);
  const auto n = static_cast<int32_t>(ids.size());
  for (int32_t at = 0; at < n; at += chunk) {
    pass(line, at, std::min(at + chunk, n), positions, RowKind::prefill, true, nullptr);
  }
  const engine::KvLayer kv = line.cache.kv(layer);
  context_->arena().reset();
  const engine::Matrix k = context_->matrix(n, int64_t{kv.n_kv_heads} * kv.k_dim, engine::DType::f32);
  const engine::Matrix v = context_->matrix(n, int64_t{kv.n_kv_heads} * kv.v_dim, engine::DType::f32);
  engine::kv_read(*context_, line.cache.view(line.seq, n), k, v, kv);
  const auto k_size = static_cast<size_t>(k.rows * k.cols), v_size = static_cast<size_t>(v.rows * v.cols);
  std::vector<float> values(k_size + v_size);
  context_->download(values.data(), k.data, k_size * sizeof(float));
  context_->download(values.data() + k_size, v.data, v_size * sizeof(float));
  return values;
}

}  // namespace hayfork::test
