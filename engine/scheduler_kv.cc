// The scheduler's K/V probe: one sequence, prefilled in pieces into a cache of its own.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/half.h"
#include "engine/pass_builder.h"
#include "engine/scheduler.h"

namespace hayfork::engine {
namespace {

// Positions [0, length) of one sequence from the blocks of one layer: [length, heads, dim] float32.
std::vector<float> gather(Context& context, const void* data, const KvLayer& layer, int32_t dim,
                          std::span<const int32_t> blocks, int32_t length) {
  const int64_t per_block = int64_t{layer.n_kv_heads} * kBlockTokens * dim;
  const auto block_bytes = static_cast<size_t>(per_block * size_of(layer.dtype));
  std::vector<std::byte> block(block_bytes);
  std::vector<float> out(static_cast<size_t>(int64_t{length} * layer.n_kv_heads * dim));
  for (int32_t p = 0; p < length; ++p) {
    if (p % kBlockTokens == 0) {
      const auto id = static_cast<size_t>(blocks[static_cast<size_t>(p / kBlockTokens)]);
      context.download(block.data(), static_cast<const std::byte*>(data) + id * block_bytes, block_bytes);
    }
    for (int32_t h = 0; h < layer.n_kv_heads; ++h) {
      const int64_t from = (int64_t{h} * kBlockTokens + p % kBlockTokens) * dim;
      float* to = out.data() + (int64_t{p} * layer.n_kv_heads + h) * dim;
      for (int32_t d = 0; d < dim; ++d) {
        to[d] = layer.dtype == DType::bf16 ? to_float(reinterpret_cast<const bf16*>(block.data())[from + d])
                                           : reinterpret_cast<const float*>(block.data())[from + d];
      }
    }
  }
  return out;
}

}  // namespace

void Scheduler::kv(std::span<const int32_t> ids, int32_t layer, std::vector<float>& k, std::vector<float>& v) {
  if (layer < 0 || layer >= static_cast<int32_t>(specs_.size()) || specs_[static_cast<size_t>(layer)].n_kv_heads == 0) {
    throw Error(ErrorCode::usage, ErrorSubject::model, fmt::format("layer {} keeps no keys and values", layer),
                {.where = {}, .why = fmt::format("the model has {} layers", specs_.size()), .next = {}});
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= model_.info().vocab_size) {
      throw Error(ErrorCode::usage, ErrorSubject::model, fmt::format("id {} is outside the model's vocabulary", id));
    }
  }
  std::vector<StateSpec> unwindowed = specs_;  // so that nothing is freed behind a window
  for (StateSpec& spec : unwindowed) spec.window = 0;
  const auto length = static_cast<int32_t>(ids.size());
  const int32_t n_blocks = (length + kBlockTokens - 1) / kBlockTokens;
  Cache cache(context_, unwindowed, options_.memory.kv_dtype, n_blocks, 1);
  const SeqId seq = cache.create();
  const int32_t chunk = plan_passes(model_, context_, options_.memory).chunk;
  PassBuilder rows;
  for (int32_t pos = 0; pos < length; pos += chunk) {
    const int32_t end = std::min(pos + chunk, length);
    HAY_CHECK(cache.extend(seq, end));
    rows.clear();
    const int32_t index = rows.add_sequence(cache.view(seq, length));
    for (int32_t p = pos; p < end; ++p) {
      rows.add({ids[static_cast<size_t>(p)], p, index, Stream::base, RowKind::prefill, -1});
    }
    context_.arena().reset();
    const Pass pass = rows.pass();
    context_.begin_pass(pass);
    model_.forward(context_, pass, cache);
  }
  const KvLayer kv = cache.kv(layer);
  const SeqView view = cache.view(seq, length);
  const std::span blocks(view.blocks[kv.group], static_cast<size_t>(n_blocks));
  k = gather(context_, kv.k, kv, kv.k_dim, blocks, length);
  v = gather(context_, kv.v, kv, kv.v_dim, blocks, length);
}

}  // namespace hayfork::engine
