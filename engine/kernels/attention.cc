#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
float dot(const float* q, const T* k, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += q[i] * to_float(k[i]);
  return sum;
}

// One row and head: online softmax (Milakov & Gimelshein 2018) over tiles of kBlockTokens keys by absolute position.
template <typename T>
void attend(float* o, const float* q, const int32_t* blocks, const KvLayer& layer, int64_t kv_head, int64_t first,
            int64_t last, const AttentionParams& params, const float* sink) {
  const int64_t v_dim = layer.v_dim;
  std::fill_n(o, v_dim, 0.0F);
  float max = -kInfinity, sum = 0;
  for (int64_t tile = first / kBlockTokens; tile <= last / kBlockTokens; ++tile) {
    const int64_t at = (blocks[tile] * layer.n_kv_heads + kv_head) * kBlockTokens;
    const T* k = static_cast<const T*>(layer.k) + at * layer.k_dim;
    const T* v = static_cast<const T*>(layer.v) + at * v_dim;
    const int64_t begin = std::max<int64_t>(first - tile * kBlockTokens, 0);
    const int64_t end = std::min<int64_t>(last - tile * kBlockTokens + 1, kBlockTokens);
    float s[kBlockTokens];
    float tile_max = max;
    for (int64_t j = begin; j < end; ++j) {
      s[j] = params.scale * dot(q, k + j * layer.k_dim, layer.k_dim);
      if (params.softcap > 0) s[j] = params.softcap * std::tanh(s[j] / params.softcap);
      tile_max = std::max(tile_max, s[j]);
    }
    const float rescale = max == -kInfinity ? 0.0F : std::exp(max - tile_max);
    max = tile_max;
    sum *= rescale;
    for (int64_t c = 0; c < v_dim; ++c) o[c] *= rescale;
    for (int64_t j = begin; j < end; ++j) {
      const float p = std::exp(s[j] - max);
      sum += p;
      for (int64_t c = 0; c < v_dim; ++c) o[c] += p * to_float(v[j * v_dim + c]);
    }
  }
  if (sink != nullptr) {
    const float m = std::max(max, *sink);
    const float rescale = std::exp(max - m);
    sum = sum * rescale + std::exp(*sink - m);
    for (int64_t c = 0; c < v_dim; ++c) o[c] *= rescale;
  }
  for (int64_t c = 0; c < v_dim; ++c) o[c] /= sum;
}

}  // namespace

void attention(Context&, const Pass& pass, Matrix o, Matrix q, const KvLayer& layer, const AttentionParams& params) {
  const int64_t heads = params.n_heads;
  HAY_CHECK(heads >= 1 && heads % layer.n_kv_heads == 0);
  HAY_CHECK(q.rows == static_cast<int64_t>(pass.rows.size()) && o.rows == q.rows);
  HAY_CHECK(q.cols == heads * layer.k_dim && o.cols == heads * layer.v_dim);
  HAY_CHECK(!params.sinks || params.sinks.size == heads);
  const int64_t per_kv_head = heads / layer.n_kv_heads;
  parallel_for(q.rows * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t m = i / heads, h = i % heads, kv_head = h / per_kv_head;
      const Row& row = pass.rows[static_cast<size_t>(m)];
      int64_t window = row.stream == Stream::base ? params.window_base : params.window_output;
      if (!params.kv_head_windows.empty()) window = params.kv_head_windows[static_cast<size_t>(kv_head)];
      const int64_t first = window > 0 ? std::max<int64_t>(0, row.pos - window + 1) : 0;
      const int32_t* blocks = pass.seqs[static_cast<size_t>(row.seq)].blocks[layer.group];
      const float* sink = params.sinks ? params.sinks.data + h : nullptr;
      float* out = o.f32(m) + h * layer.v_dim;
      const float* in = q.f32(m) + h * layer.k_dim;
      if (layer.dtype == DType::f32) {
        attend<float>(out, in, blocks, layer, kv_head, first, row.pos, params, sink);
      } else {
        attend<bf16>(out, in, blocks, layer, kv_head, first, row.pos, params, sink);
      }
    }
  });
}

}  // namespace hayfork::engine::cpu
