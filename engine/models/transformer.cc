// The one Model: embedding, layers of mixer and feed-forward block around a residual stream, final norm, head. It reads
// in the order of the network; which blocks, norms and factors there are is the ModelSpec's.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/error.h"
#include "engine/kernels/mixing.h"
#include "engine/loader.h"
#include "engine/models/registry.h"
#include "engine/models/summary.h"

namespace hayfork::engine {
namespace {

struct Layer {
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<Block> ffn;  // null: none
  Norm mixer_norm, ffn_norm;
  std::optional<Norm> after_mixer_norm, after_ffn_norm;
  float residual_scale = 1;
  std::optional<ResidualMix> mixer_mix, ffn_mix;
  // Gemma 4.
  std::unique_ptr<LinearWeight> input_gate, input_projection;
  Norm input_norm;
  std::optional<float> scalar;
};

Layer load_layer(Loader& loader, const LayerSpec& spec, int64_t hidden, int64_t input_width) {
  Layer layer;
  layer.residual_scale = spec.residual_scale;
  layer.mixer_norm = make_norm(loader, spec.mixer_norm, hidden);
  layer.mixer = make_mixer(loader, spec.mixer, hidden);
  if (spec.after_mixer_norm) layer.after_mixer_norm = make_norm(loader, *spec.after_mixer_norm, hidden);
  layer.ffn = make_feed_forward(loader, spec.ffn, hidden);
  if (layer.ffn) layer.ffn_norm = make_norm(loader, spec.ffn_norm, hidden);
  if (spec.after_ffn_norm) layer.after_ffn_norm = make_norm(loader, *spec.after_ffn_norm, hidden);
  layer.mixer_mix = spec.mixer_mix;
  layer.ffn_mix = spec.ffn_mix;
  if (spec.layer_input) {
    layer.input_gate = loader.linear({{spec.layer_input->gate + ".weight", input_width, "", {}}}, hidden);
    layer.input_projection = loader.linear({{spec.layer_input->projection + ".weight", hidden, "", {}}}, input_width);
    layer.input_norm = make_norm(loader, spec.layer_input->norm, hidden);
  }
  if (!spec.scalar.empty()) layer.scalar = loader.host(spec.scalar, {1})[0];
  return layer;
}

class Transformer : public Model {
 public:
  Transformer(Context& context, Weights& weights, const ModelSpec& spec, ModelInfo info);

  const ModelInfo& info() const override { return info_; }
  bool two_streams() const override { return spec_.two_streams; }
  std::vector<StateSpec> state_specs() const override;
  ForwardResult forward(Context& context, const Pass& pass, Cache& cache) override;
  bool records() const override;
  QueuedPass queue(Context& context, const Pass& pass, Cache& cache, std::span<const HeadQuery> queries) override;
  std::vector<HeadResult> head(Context& context, Matrix hidden, std::span<const HeadQuery> queries) override;
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t scratch_bytes(int64_t n_rows, int64_t n_want) const override;
  int32_t rope_class(int32_t n_tokens) const override;
  std::vector<ExpertLoad> expert_load(Context& context) const override;

 private:
  // What a pass leaves in the arena.
  struct Output {
    Matrix hidden, marks, last_marks;
  };
  Output compute(Context& context, const Pass& pass, Cache& cache);
  static std::vector<HeadRow> head_rows(int64_t n, std::span<const HeadQuery> queries);
  std::vector<RopeAngles> rope_angles_of(Context& context, const Pass& pass);
  Matrix layer_inputs(LayerPass& pass, Matrix h) const;
  bool skips_unwanted(const Pass& pass) const;
  Matrix run_last_layer(LayerPass& pass, Matrix h, Matrix x, Matrix y) const;
  void run_layer(size_t index, LayerPass& pass, Matrix h, Matrix x, Matrix y, Matrix inputs, Matrix marks) const;
  void add_layer_input(const Layer& layer, LayerPass& pass, Matrix h, Matrix y, Matrix input) const;
  int64_t layer_scratch(int64_t n_rows) const;
  const LinearWeight& output() const { return head_ ? *head_ : *embed_; }

  ModelSpec spec_;
  ModelInfo info_;
  DType activation_;
  bool queues_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::unique_ptr<LinearWeight> embed_, head_;                    // head_ null: tied
  std::unique_ptr<LinearWeight> input_table_, input_projection_;  // of per-layer inputs
  Norm input_norm_;
  std::vector<Layer> layers_;
  Norm final_norm_;
  std::vector<RopeTable> fixed_tables_;  // per rope kind; kinds that depend on the length are made per pass
  int64_t weight_bytes_ = 0;
  float embed_multiplier_ = 1;
};

Transformer::Transformer(Context& context, Weights& weights, const ModelSpec& spec, ModelInfo info)
    : spec_(spec), info_(std::move(info)), activation_(context.activation()), queues_(context.queues()) {
  for (const std::string& prefix : spec.ignored_prefixes) weights.ignore_prefix(prefix);
  for (const std::string& suffix : spec.ignored_suffixes) weights.ignore_suffix(suffix);
  Loader loader(context, weights);
  embed_ = loader.linear({{spec.embed, spec.vocab, "", {}}}, spec.hidden);
  int64_t embedding_params = loader.n_params();
  if (spec.layer_inputs) {
    const ModelInputSpec& inputs = *spec.layer_inputs;
    const auto n = static_cast<int64_t>(spec.layers.size()) * inputs.width;
    input_table_ = loader.linear({{inputs.table, inputs.vocab, "", {}}}, n);
    input_projection_ = loader.linear({{inputs.projection + ".weight", n, "", {}}}, spec.hidden);
    input_norm_ = make_norm(loader, inputs.norm, inputs.width);
  }
  const int64_t input_width = spec.layer_inputs ? spec.layer_inputs->width : 0;
  for (const LayerSpec& layer : spec.layers) layers_.push_back(load_layer(loader, layer, spec.hidden, input_width));
  final_norm_ = make_norm(loader, spec.final_norm, spec.hidden);
  const int64_t before_head = loader.n_params();
  if (!spec.head.empty()) head_ = loader.linear({{spec.head, spec.vocab, "", {}}}, spec.hidden);
  embedding_params += loader.n_params() - before_head;
  weights.refuse_unused();

  for (const RopeSpec& rope : spec.ropes) fixed_tables_.push_back(make_rope_table(rope, rope.max_positions));
  // The multiplier is a number of the model's type in transformers: √3584 becomes 59.75 in bfloat16.
  embed_multiplier_ = context.weights() == DType::bf16 ? round_to_bf16(spec.embed_multiplier) : spec.embed_multiplier;
  buffers_ = loader.take_buffers();
  weight_bytes_ = loader.bytes();
  info_.n_params = loader.n_params();
  info_.n_params_no_embedding = loader.n_params() - embedding_params;
  for (const Layer& layer : layers_) info_.layers.push_back(layer.mixer->info());
  summarize(spec, state_specs(), size_of(context.weights()), info_);
}

std::vector<StateSpec> Transformer::state_specs() const {
  std::vector<StateSpec> specs;
  for (const Layer& layer : layers_) specs.push_back(layer.mixer->state());
  return specs;
}

std::vector<ExpertLoad> Transformer::expert_load(Context& context) const {
  std::vector<ExpertLoad> all;
  for (size_t i = 0; i < layers_.size(); ++i) {
    auto load = layers_[i].ffn ? layers_[i].ffn->expert_load(context) : std::nullopt;
    if (!load) continue;
    load->layer = static_cast<int32_t>(i);
    all.push_back(std::move(*load));
  }
  return all;
}

int64_t Transformer::layer_scratch(int64_t n_rows) const {
  int64_t most = 0;
  for (const Layer& layer : layers_) {
    most = std::max(most, layer.mixer->scratch_bytes(n_rows, activation_));
    if (layer.ffn) most = std::max(most, layer.ffn->scratch_bytes(n_rows, activation_));
  }
  if (spec_.layer_inputs) most = std::max(most, Scratch::bytes(n_rows, spec_.layer_inputs->width, activation_));
  return most;
}

int64_t Transformer::scratch_bytes(int64_t n_rows, int64_t n_want) const {
  int64_t bytes = 3 * Scratch::bytes(n_rows, spec_.hidden, activation_) + layer_scratch(n_rows) +
                  2 * Scratch::bytes(n_want, spec_.hidden, activation_);
  if (input_projection_) bytes += 2 * Scratch::bytes(n_rows, input_projection_->n, activation_);
  for (const RopeSpec& rope : spec_.ropes) bytes += 2 * Scratch::bytes(n_rows, rope.rotary_dim / 2, DType::f32);
  if (queues_) {  // the pass's rows and tables, attention's partial sums, a slab of the head's logits
    constexpr int64_t kTables = int64_t{16} << 20, kPartials = int64_t{272} << 20, kRowBytes = 128;
    bytes += kTables + kPartials + kRowBytes * (n_rows + n_want) +
             Scratch::bytes(std::min<int64_t>(n_want, 1024), std::min<int64_t>(spec_.vocab, 8192), DType::f32);
  }
  return bytes;
}

// One table a rope kind, or one for each planned length in the pass where the kind depends on it.
std::vector<RopeAngles> Transformer::rope_angles_of(Context& context, const Pass& pass) {
  std::vector<RopeAngles> all;
  std::vector<int32_t> table_of_seq(pass.seqs.size(), 0);
  for (size_t i = 0; i < spec_.ropes.size(); ++i) {
    if (!spec_.ropes[i].depends_on_length()) {
      std::fill(table_of_seq.begin(), table_of_seq.end(), 0);
      all.push_back(rope_angles(context, pass.rows, std::span(&fixed_tables_[i], 1), table_of_seq));
      continue;
    }
    std::vector<RopeTable> tables;
    std::map<int32_t, int32_t> table_of_length;
    for (size_t s = 0; s < pass.seqs.size(); ++s) {
      const int32_t n = pass.seqs[s].rope_tokens;
      const auto [it, is_new] = table_of_length.try_emplace(n, static_cast<int32_t>(tables.size()));
      if (is_new) tables.push_back(make_rope_table(spec_.ropes[i], n));
      table_of_seq[s] = it->second;
    }
    all.push_back(rope_angles(context, pass.rows, tables, table_of_seq));
  }
  return all;
}

int32_t Transformer::rope_class(int32_t n_tokens) const {
  for (const RopeSpec& rope : spec_.ropes) {
    if (rope.kind == RopeSpec::Kind::longrope) return n_tokens > rope.original_positions ? 1 : 0;
    if (rope.kind == RopeSpec::Kind::dynamic) return n_tokens > rope.max_positions ? n_tokens : 0;
  }
  return 0;
}

// h ← h + scale · y, or MiniMax's mix of the normed input and y.
void add_block(Context& ctx, Matrix h, Matrix x, Matrix y, float scale, const std::optional<ResidualMix>& mix) {
  if (mix) {
    combine(ctx, h, x, mix->alpha, y, mix->beta);
  } else {
    add(ctx, h, y, scale);
  }
}

// The same, and x ← norm of the new h.
void add_block_and_norm(Context& ctx, Matrix h, Matrix x, Matrix y, float scale, const std::optional<ResidualMix>& mix,
                        const Norm& norm, NonfiniteCheck check) {
  if (!mix && norm.group == h.cols) {
    add_rmsnorm(ctx, x, h, y, scale, norm.weight, norm.eps, norm.kind, check);
    return;
  }
  add_block(ctx, h, x, y, scale, mix);
  if (check.marks.data != nullptr) mark_nonfinite(ctx, check.marks, h, check.layer);
  norm(ctx, x, h);
}

// Requires: x holds the layer's first norm of h. Leaves the next layer's there.
void Transformer::run_layer(size_t index, LayerPass& pass, Matrix h, Matrix x, Matrix y, Matrix inputs,
                            Matrix marks) const {
  Context& ctx = pass.context;
  const Layer& layer = layers_[index];
  const NonfiniteCheck check{marks, static_cast<int32_t>(index)};
  const Norm* next = index + 1 < layers_.size() ? &layers_[index + 1].mixer_norm : nullptr;
  // What ends the layer: the addition, what Gemma 4 does behind it, the check, the next layer's norm.
  const auto end_layer = [&](const std::optional<ResidualMix>& mix) {
    if (next != nullptr && !layer.input_gate && !layer.scalar) {
      return add_block_and_norm(ctx, h, x, y, layer.residual_scale, mix, *next, check);
    }
    add_block(ctx, h, x, y, layer.residual_scale, mix);
    if (layer.input_gate) {
      const int64_t width = spec_.layer_inputs->width;
      add_layer_input(layer, pass, h, y, inputs.columns(static_cast<int64_t>(index) * width, width));
    }
    if (layer.scalar) combine(ctx, h, h, *layer.scalar, h, 0);
    mark_nonfinite(ctx, marks, h, check.layer);
    if (next != nullptr) (*next)(ctx, x, h);
  };
  pass.scratch.rewind(0);
  layer.mixer->forward(pass, y, x);
  if (layer.after_mixer_norm) (*layer.after_mixer_norm)(ctx, y, y);
  if (!layer.ffn) return end_layer(layer.mixer_mix);
  add_block_and_norm(ctx, h, x, y, layer.residual_scale, layer.mixer_mix, layer.ffn_norm, {});
  pass.scratch.rewind(0);
  layer.ffn->forward(pass, y, x);
  if (layer.after_ffn_norm) (*layer.after_ffn_norm)(ctx, y, y);
  end_layer(layer.ffn_mix);
}

// The last layer's output is needed for wanted rows alone. Worth the gathering when these are few; slots in row order
// keep the rows sorted.
bool Transformer::skips_unwanted(const Pass& pass) const {
  const Layer& last = layers_.back();
  if (layers_.size() < 2 || !last.mixer->gives_wanted_rows() || !last.ffn || last.mixer_mix || last.ffn_mix ||
      last.input_gate)
    return false;
  if (3 * int64_t{pass.n_want} > static_cast<int64_t>(pass.rows.size())) return false;
  int32_t next = 0;
  for (const Row& row : pass.rows) {
    if (row.want >= 0 && row.want != next++) return false;
  }
  return true;
}

// Gives h of the wanted rows, in slot order. Requires: x holds the layer's first norm of h.
Matrix Transformer::run_last_layer(LayerPass& pass, Matrix h, Matrix x, Matrix y) const {
  Context& ctx = pass.context;
  const Layer& layer = layers_.back();
  std::vector<Row> rows;
  for (const Row& row : pass.pass.rows) {
    if (row.want >= 0) rows.push_back(row);
  }
  const Pass wanted{rows, pass.pass.seqs, pass.pass.n_want};
  Matrix out = ctx.matrix(wanted.n_want, spec_.hidden);
  gather_wanted(ctx, out, h, pass.pass.rows);
  pass.wanted = &wanted;
  pass.scratch.rewind(0);
  Matrix few_x = x.row_range(0, wanted.n_want), few_y = y.row_range(0, wanted.n_want);
  layer.mixer->forward(pass, few_y, x);
  if (wanted.n_want == 0) return out;
  if (layer.after_mixer_norm) (*layer.after_mixer_norm)(ctx, few_y, few_y);
  add_block_and_norm(ctx, out, few_x, few_y, layer.residual_scale, {}, layer.ffn_norm, {});
  LayerPass rest{ctx, wanted, row_groups(rows), pass.cache, pass.layer, {}, pass.scratch, out};
  rest.scratch.rewind(0);
  layer.ffn->forward(rest, few_y, few_x);
  if (layer.after_ffn_norm) (*layer.after_ffn_norm)(ctx, few_y, few_y);
  add(ctx, out, few_y, layer.residual_scale);
  if (layer.scalar) combine(ctx, out, out, *layer.scalar, out, 0);
  return out;
}

Matrix Transformer::layer_inputs(LayerPass& pass, Matrix h) const {
  Context& ctx = pass.context;
  const auto width = static_cast<float>(spec_.layer_inputs->width);
  Matrix inputs = ctx.matrix(h.rows, input_projection_->n), table = ctx.matrix(h.rows, input_projection_->n);
  linear_rows(pass, inputs, h, *input_projection_);
  combine(ctx, inputs, inputs, 1.0F / std::sqrt(static_cast<float>(spec_.hidden)), inputs, 0);
  input_norm_(ctx, inputs, inputs);
  const float root = std::sqrt(width);
  embed(ctx, table, pass.pass.rows, *input_table_, ctx.weights() == DType::bf16 ? round_to_bf16(root) : root);
  const float half = std::sqrt(0.5F);
  combine(ctx, inputs, inputs, half, table, half);
  return inputs;
}

void Transformer::add_layer_input(const Layer& layer, LayerPass& pass, Matrix h, Matrix y, Matrix input) const {
  Context& ctx = pass.context;
  pass.scratch.rewind(0);
  Matrix gate = pass.scratch.matrix(h.rows, input.cols, ctx.activation());
  linear_rows(pass, gate, h, *layer.input_gate);
  act_mul(ctx, gate, gate, input, Activation::gelu_tanh);
  linear_rows(pass, y, gate, *layer.input_projection);
  layer.input_norm(ctx, y, y);
  add(ctx, h, y, 1);
}

Transformer::Output Transformer::compute(Context& context, const Pass& pass, Cache& cache) {
  const auto n_rows = static_cast<int64_t>(pass.rows.size());
  for (const Row& row : pass.rows) {
    HAY_CHECK(row.token < spec_.vocab && (row.token >= 0 || context.queues()), "token id outside the vocabulary");
    HAY_CHECK(row.stream == Stream::base || spec_.two_streams, "an output row for a model with one stream");
  }
  context.arena().reset();
  context.begin_pass(pass);
  const std::vector<RopeAngles> angles = rope_angles_of(context, pass);
  Matrix h = context.matrix(n_rows, spec_.hidden);
  Matrix x = context.matrix(n_rows, spec_.hidden);
  Matrix y = context.matrix(n_rows, spec_.hidden);
  const int64_t scratch_bytes = layer_scratch(n_rows);
  Scratch scratch(context.arena().allocate(static_cast<size_t>(scratch_bytes)), scratch_bytes);

  embed(context, h, pass.rows, *embed_, embed_multiplier_);
  LayerPass layer_pass{context, pass, row_groups(pass.rows), cache, 0, angles, scratch, h};
  Matrix inputs;
  if (spec_.layer_inputs) inputs = layer_inputs(layer_pass, h);
  Matrix marks = context.matrix(n_rows, 1, DType::i32);
  const bool skips = skips_unwanted(pass);
  layers_.front().mixer_norm(context, x, h);
  for (size_t i = 0; i + (skips ? 1 : 0) < layers_.size(); ++i) {
    layer_pass.layer = static_cast<int32_t>(i);
    run_layer(i, layer_pass, h, x, y, inputs, marks);
  }
  Output out;
  out.marks = marks;
  Matrix wanted;
  if (skips) {
    layer_pass.layer = static_cast<int32_t>(layers_.size()) - 1;
    wanted = run_last_layer(layer_pass, h, x, y);
    out.last_marks = context.matrix(pass.n_want, 1, DType::i32);
    mark_nonfinite(context, out.last_marks, wanted, 0);
  } else {
    wanted = context.matrix(pass.n_want, spec_.hidden);
    gather_wanted(context, wanted, h, pass.rows);
  }
  out.hidden = context.matrix(pass.n_want, spec_.hidden);
  final_norm_(context, out.hidden, wanted);
  if (spec_.hidden_scale != 1) combine(context, out.hidden, out.hidden, spec_.hidden_scale, out.hidden, 0);
  return out;
}

ForwardResult Transformer::forward(Context& context, const Pass& pass, Cache& cache) {
  const Output out = compute(context, pass, cache);
  ForwardResult result{out.hidden, read_marks(context, out.marks)};
  if (out.last_marks.rows > 0) {
    std::vector<int32_t> wants;
    for (const Row& row : pass.rows) wants.push_back(row.want);
    merge_marks(wants, read_marks(context, out.last_marks), static_cast<int32_t>(layers_.size()) - 1,
                result.nonfinite_layer);
  }
  return result;
}

// Tables of a length's own are where the sequence's are; recurrent states are at slots, which kernels read of the pass.
bool Transformer::records() const {
  return std::none_of(spec_.ropes.begin(), spec_.ropes.end(),
                      [](const auto& rope) { return rope.depends_on_length(); });
}

QueuedPass Transformer::queue(Context& context, const Pass& pass, Cache& cache, std::span<const HeadQuery> queries) {
  const Output out = compute(context, pass, cache);
  QueuedPass queued{out.marks, out.last_marks, {}};
  if (pass.n_want > 0) {
    std::vector<HeadRow> rows = head_rows(pass.n_want, queries);
    for (const Row& row : pass.rows) {
      if (row.want >= 0) rows[static_cast<size_t>(row.want)].kind = row.kind;
    }
    queued.head = head_queue(context, out.hidden, output(), spec_.logit_softcap, rows);
  }
  return queued;
}

std::vector<HeadRow> Transformer::head_rows(int64_t n, std::span<const HeadQuery> queries) {
  std::vector<HeadRow> rows(static_cast<size_t>(n));
  for (const HeadQuery& query : queries) {
    HAY_CHECK(query.slot >= 0 && query.slot < n);
    rows[static_cast<size_t>(query.slot)] = {query.targets, query.logits, query.kind};
  }
  return rows;
}

std::vector<HeadResult> Transformer::head(Context& context, Matrix hidden, std::span<const HeadQuery> queries) {
  const auto found = engine::head(context, hidden, output(), spec_.logit_softcap, head_rows(hidden.rows, queries));
  std::vector<HeadResult> results;
  for (const HeadQuery& query : queries) results.push_back(head_result(found[static_cast<size_t>(query.slot)]));
  return results;
}

}  // namespace

std::unique_ptr<Model> make_transformer(Context& context, Weights& weights, const ModelSpec& spec, ModelInfo info) {
  return std::make_unique<Transformer>(context, weights, spec, std::move(info));
}

}  // namespace hayfork::engine
