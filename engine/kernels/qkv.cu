// What stands between the projection and attention on CUDA, in one kernel: norms of heads, Orthros' affine map,
// rotation, cache write. Every rounding and every order of sums is that of the ops it replaces.
#include <algorithm>

#include "engine/kernels/fused.h"
#include "engine/kernels/rowwise.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 256;

struct HeadNorm {
  const float* w;  // null: no norm
  float eps;
  NormKind kind;
};

template <typename T, typename C>
struct QkvCall {
  T* q;
  const T* k;
  const T* v;
  int64_t q_stride, k_stride, v_stride;
  C* k_cache;
  C* v_cache;
  int n_heads, n_kv, dim, table_group;
  HeadNorm q_norm, k_norm;
  const float *base_scale, *base_offset, *output_scale, *output_offset;  // null: no affine map
  bool affine_first;
  const float *cosines, *sines;
  int half;
  DevicePass pass;
};

// A block a row (and a share of its heads): kLanes threads a head, eight columns each, then a further head. Heads of a
// row are q's, k's, v's.
template <typename T, typename C, int kLanes>
__global__ void __launch_bounds__(kThreads, 3) finish_kernel(const QkvCall<T, C> call) {
  constexpr int kTeams = kThreads / kLanes;
  constexpr int kTogether = 3;  // heads of a team whose loads are in flight together
  const int lane = threadIdx.x % kLanes, c = lane * 8;
  const int slots = call.n_heads + 2 * call.n_kv;
  const int64_t row_index = blockIdx.x;
  float q_weight[8], k_weight[8];
  if (c < call.dim) {
    if (call.q_norm.w != nullptr) load_parameters(q_weight, call.q_norm.w + c);
    if (call.k_norm.w != nullptr) load_parameters(k_weight, call.k_norm.w + c);
  }
  let_next_start();
  wait_for_previous();
  const Row row = call.pass.rows[row_index];
  const bool writes_cache = row.stream == Stream::base && row.pos >= 0;  // −1: a row without content
  // The rotation's partner holds the same columns of the other half.
  const int step = call.half / 8;
  const bool low = lane < step, rotated = lane < 2 * step;
  const int partner = static_cast<int>(threadIdx.x % 32) + (low ? step : rotated ? -step : 0);
  float cosine[8], sine[8];
  if (rotated) {
    const int64_t angle = row_index * call.half + (low ? c : c - call.half);
    load_parameters(cosine, call.cosines + angle);
    load_parameters(sine, call.sines + angle);
#pragma unroll
    for (int j = 0; j < 8; ++j) sine[j] = low ? -sine[j] : sine[j];
  }
  const bool base_stream = row.stream == Stream::base;
  const float* scale = base_stream ? call.base_scale : call.output_scale;
  const float* offset = base_stream ? call.base_offset : call.output_offset;
  const int64_t block =
      writes_cache ? block_table(call.pass, row.seq, call.table_group)[row.pos / kBlockTokens] * int64_t{call.n_kv} : 0;
  const int token = row.pos % kBlockTokens;

  const auto process = [&](const Eight<T>& from, int slot) {
    const bool is_q = slot < call.n_heads, is_v = slot >= call.n_heads + call.n_kv;
    const bool used = slot < slots && c < call.dim && (is_q || writes_cache);
    const int head = is_q ? slot : is_v ? slot - call.n_heads - call.n_kv : slot - call.n_heads;
    float x[8];
    unpack(x, from);
    const auto affine = [&] {
      if (!is_q || scale == nullptr || !used) return;
      float a[8], b[8];
      load_parameters(a, scale + head * call.dim + c);
      load_parameters(b, offset + head * call.dim + c);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] = mapped(x[j], a[j], b[j]);
      round_eight<T>(x);
    };
    if (call.affine_first) affine();
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = used ? fmaf(x[j], x[j], sum) : 0.f;
#pragma unroll
    for (int o = kLanes / 2; o > 0; o /= 2) sum += __shfl_xor_sync(~0u, sum, o);
    const HeadNorm norm = is_q ? call.q_norm : call.k_norm;
    if (!is_v && norm.w != nullptr) {
      const float r = 1.f / sqrtf(sum / static_cast<float>(call.dim) + norm.eps);
#pragma unroll
      for (int j = 0; j < 8; ++j) x[j] = normed<T>(x[j], r, is_q ? q_weight[j] : k_weight[j], norm.kind);
      round_eight<T>(x);
    }
    if (!call.affine_first) affine();
    if (call.half > 0) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float other = __shfl_sync(~0u, x[j], partner);
        if (!is_v && rotated) x[j] = turned<T>(x[j], other, cosine[j], sine[j]);
      }
    }
    if (!used) return;
    if (is_q) return store_eight(call.q + row_index * call.q_stride + head * call.dim + c, x);
    C* page = (is_v ? call.v_cache : call.k_cache) + (block + head) * kBlockTokens * call.dim + c;
    store_eight(page + token * call.dim, x);
    if (!is_v) return;
    // Slots behind the last written one of a page that this pass began hold zeros, see kv_write.
    const auto same = [&](int64_t other) {
      const Row& r = call.pass.rows[other];
      return r.seq == row.seq && r.kind == row.kind && r.stream == row.stream;
    };
    const bool last = row_index + 1 == call.pass.n_rows || !same(row_index + 1);
    if (!last || row_index < token || !same(row_index - token)) return;
    const float zeros[8] = {};
    for (int rest = token + 1; rest < kBlockTokens; ++rest) store_eight(page + rest * call.dim, zeros);
  };
  const auto read = [&](int slot) -> Eight<T> {
    if (slot >= slots || c >= call.dim) return {};
    const int k_slot = slot - call.n_heads, v_slot = k_slot - call.n_kv;
    const T* from = k_slot < 0   ? call.q + row_index * call.q_stride + slot * call.dim
                    : v_slot < 0 ? call.k + row_index * call.k_stride + k_slot * call.dim
                                 : call.v + row_index * call.v_stride + v_slot * call.dim;
    return read_eight(from + c);
  };
  const int first = blockIdx.y * kTeams + threadIdx.x / kLanes, stride = gridDim.y * kTeams;
  // All lanes of a warp go on while one of its teams has a head: they exchange values.
  const auto within = [&](int slot) { return slot - first % (32 / kLanes) < slots; };
  for (int slot = first; within(slot); slot += kTogether * stride) {
    Eight<T> heads[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) heads[i] = read(slot + i * stride);
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (within(slot + i * stride)) process(heads[i], slot + i * stride);
    }
  }
}

}  // namespace

void finish_qkv(Context& base, const Pass& pass, Matrix q, Matrix k, Matrix v, const KvLayer& layer,
                const QkvFinish& finish) {
  if (q.rows == 0) return;
  CudaContext& context = of(base);
  const int32_t dim = finish.head_dim;
  const auto aligned = [](const QkvFinish::Affine& map) {
    return by_sixteen_bytes(map.scale.data) && by_sixteen_bytes(map.offset.data);
  };
  const bool takes = dim % 8 == 0 && dim <= 256 && layer.k_dim == dim && layer.v_dim == dim &&
                     finish.angles.half % 8 == 0 && by_eight({q, k, v}, dim) && by_sixteen_bytes(finish.q_norm.data) &&
                     by_sixteen_bytes(finish.k_norm.data) && aligned(finish.base) && aligned(finish.output);
  if (!takes) return finish_qkv_in_steps(base, pass, q, k, v, layer, finish);
  HAY_CHECK(q.rows == static_cast<int64_t>(pass.rows.size()));
  with_type(q.dtype, [&](auto t) {
    using T = decltype(t);
    with_type(layer.dtype, [&](auto type) {
      using C = decltype(type);
      const QkvCall<T, C> call{static_cast<T*>(q.data),
                               static_cast<const T*>(k.data),
                               static_cast<const T*>(v.data),
                               q.stride,
                               k.stride,
                               v.stride,
                               static_cast<C*>(layer.k),
                               static_cast<C*>(layer.v),
                               static_cast<int>(q.cols / dim),
                               layer.n_kv_heads,
                               dim,
                               layer.group,
                               {finish.q_norm.data, finish.q_eps, finish.q_kind},
                               {finish.k_norm.data, finish.k_eps, finish.k_kind},
                               finish.base.scale.data,
                               finish.base.offset.data,
                               finish.output.scale.data,
                               finish.output.offset.data,
                               finish.affine_first,
                               finish.angles.cos,
                               finish.angles.sin,
                               finish.angles.half,
                               context.pass()};
      const int lanes = dim <= 128 ? 16 : 32;
      // Few rows: heads are dealt to more blocks.
      const int teams = kThreads / lanes, slots = call.n_heads + 2 * call.n_kv;
      const bool few = q.rows < context.properties().multiProcessorCount;
      const dim3 blocks(static_cast<unsigned>(q.rows), few ? static_cast<unsigned>((slots + teams - 1) / teams) : 1);
      if (lanes == 16)
        launch_early(context, finish_kernel<T, C, 16>, blocks, kThreads, 0, call);
      else
        launch_early(context, finish_kernel<T, C, 32>, blocks, kThreads, 0, call);
    });
  });
}

}  // namespace hayfork::engine::cuda
