// The scheduler's K/V probe: one sequence, prefilled in pieces into a cache of its own.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/kernels/ops.h"
#include "engine/pass_builder.h"
#include "engine/scheduler.h"

namespace hayfork::engine {

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
    model_.forward(context_, rows.pass(), cache);
  }
  const KvLayer kv = cache.kv(layer);
  context_.arena().reset();
  const Matrix keys = context_.matrix(length, int64_t{kv.n_kv_heads} * kv.k_dim, DType::f32);
  const Matrix values = context_.matrix(length, int64_t{kv.n_kv_heads} * kv.v_dim, DType::f32);
  kv_read(context_, cache.view(seq, length), keys, values, kv);
  k.resize(static_cast<size_t>(keys.rows * keys.cols));
  v.resize(static_cast<size_t>(values.rows * values.cols));
  context_.download(k.data(), keys.data, k.size() * sizeof(float));
  context_.download(v.data(), values.data, v.size() * sizeof(float));
}

}  // namespace hayfork::engine
