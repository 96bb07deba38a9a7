// Attention on CUDA: the op, and the plain kernel for every shape and type. bf16 rows of common head widths go to the
// tensor-core kernels (attention_sm90.cu, attention_tiles_mma.cu, attention_split_mma.cu); which one is a matter of
// shape and row kind, never of counts.
#include "engine/kernels/attention.cuh"

#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kMaxPerThread = 4;  // columns of values
constexpr int kMaxValueDim = kThreads * kMaxPerThread;

// A query in shared memory, rounded up: what stands behind it is written while it is read, and shares no 16 bytes.
__host__ __device__ constexpr int shared_columns(int dim) {
  return (dim + 3) / 4 * 4;
}

// One block a (row, head): keys in tiles of kBlockTokens by absolute position, online softmax in float32.
template <typename T, typename C>
__global__ void __launch_bounds__(kThreads) plain_kernel(AttentionCall call) {
  const int row_index = blockIdx.x, head = blockIdx.y;
  const Row row = call.pass.rows[row_index];
  const int kv_head = head / call.group_size;
  if (row.pos < 0) {
    for (int d = threadIdx.x; d < call.v_dim; d += kThreads) {
      store(static_cast<T*>(call.o) + row_index * call.o_stride + head * call.v_dim + d, 0.f);
    }
    return;
  }
  const int* table = block_table(call.pass, row.seq, call.table_group);
  const int first = first_key(row.pos, window_of(call, kv_head, row.stream));
  const T* q = static_cast<const T*>(call.q) + row_index * call.q_stride + head * call.k_dim;
  extern __shared__ float shared[];
  float* query = shared;                                // [k_dim]
  float* scores = shared + shared_columns(call.k_dim);  // [kBlockTokens]
  __shared__ float tile_max;
  for (int d = threadIdx.x; d < call.k_dim; d += kThreads) query[d] = load(q + d);
  float acc[kMaxPerThread] = {};
  float m = -INFINITY, l = 0;
  for (int tile = first / kBlockTokens; tile <= row.pos / kBlockTokens; ++tile) {
    const int64_t block = static_cast<int64_t>(table[tile]) * call.n_kv + kv_head;
    const C* k = static_cast<const C*>(call.k) + block * kBlockTokens * call.k_dim;
    const C* v = static_cast<const C*>(call.v) + block * kBlockTokens * call.v_dim;
    __syncthreads();
    if (threadIdx.x < kBlockTokens) {
      const int key = tile * kBlockTokens + static_cast<int>(threadIdx.x);
      float s = -INFINITY;
      if (key >= first && key <= row.pos) {
        s = 0;
        for (int d = 0; d < call.k_dim; ++d) s = fmaf(query[d], load(k + threadIdx.x * call.k_dim + d), s);
        s = capped(s * call.scale, call.softcap);
      }
      scores[threadIdx.x] = s;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      float max = fmaxf(scores[threadIdx.x], scores[threadIdx.x + 32]);
      for (int offset = 16; offset > 0; offset /= 2) max = fmaxf(max, __shfl_xor_sync(~0u, max, offset));
      if (threadIdx.x == 0) tile_max = max;
    }
    __syncthreads();
    const float next = fmaxf(m, tile_max);
    const float old = m == -INFINITY ? 0.f : expf(m - next);
    float sum = 0;
    for (int i = 0; i < kMaxPerThread; ++i) acc[i] *= old;
    for (int j = 0; j < kBlockTokens; ++j) {
      const float p = next == -INFINITY ? 0.f : expf(scores[j] - next);
      if (p == 0.f) continue;
      sum += p;
      for (int i = 0; i < kMaxPerThread; ++i) {
        const int d = static_cast<int>(threadIdx.x) + i * kThreads;
        if (d < call.v_dim) acc[i] = fmaf(p, load(v + j * call.v_dim + d), acc[i]);
      }
    }
    l = l * old + sum;
    m = next;
  }
  if (call.sinks != nullptr) {
    const float sink = call.sinks[head];
    const float next = fmaxf(m, sink);
    const float old = expf(m - next);
    l = l * old + expf(sink - next);
    for (int i = 0; i < kMaxPerThread; ++i) acc[i] *= old;
  }
  T* o = static_cast<T*>(call.o) + row_index * call.o_stride + head * call.v_dim;
  for (int i = 0; i < kMaxPerThread; ++i) {
    const int d = static_cast<int>(threadIdx.x) + i * kThreads;
    if (d < call.v_dim) store(o + d, acc[i] / l);
  }
}

}  // namespace

void require_attention(const Context& /*context*/, int32_t v_dim, int32_t n_kv_head_windows) {
  if (v_dim > kMaxValueDim) {
    throw Error(
        ErrorCode::unsupported, ErrorSubject::model, "attention heads are too wide for the CUDA backend",
        {.why = std::to_string(v_dim) + " columns, at most " + std::to_string(kMaxValueDim), .next = "--device cpu"});
  }
  if (n_kv_head_windows > kMaxKvHeadWindows) {
    throw Error(ErrorCode::unsupported, ErrorSubject::model,
                "too many kv heads with windows of their own for the CUDA backend",
                {.why = std::to_string(n_kv_head_windows) + ", at most " + std::to_string(kMaxKvHeadWindows),
                 .next = "--device cpu"});
  }
}

void attention(Context& base, const Pass& pass, Matrix o, Matrix q, const KvLayer& layer,
               const AttentionParams& params) {
  if (pass.rows.empty()) return;
  CudaContext& context = of(base);
  HAY_CHECK(q.rows == static_cast<int64_t>(pass.rows.size()));
  HAY_CHECK(layer.v_dim <= kMaxValueDim && params.kv_head_windows.size() <= kMaxKvHeadWindows);
  AttentionCall call{};
  call.q = q.data;
  call.o = o.data;
  call.q_stride = q.stride;
  call.o_stride = o.stride;
  call.k = layer.k;
  call.v = layer.v;
  call.n_heads = params.n_heads;
  call.n_kv = layer.n_kv_heads;
  call.group_size = params.n_heads / layer.n_kv_heads;
  call.k_dim = layer.k_dim;
  call.v_dim = layer.v_dim;
  call.table_group = layer.group;
  call.scale = params.scale;
  call.softcap = params.softcap;
  call.sinks = params.sinks.data;
  call.window_base = params.window_base;
  call.window_output = params.window_output;
  call.n_windows = static_cast<int>(params.kv_head_windows.size());
  for (int i = 0; i < call.n_windows; ++i) call.windows[i] = params.kv_head_windows[static_cast<size_t>(i)];
  call.pass = context.pass();
  if (q.dtype == DType::bf16 && layer.dtype == DType::bf16 && supports_mma(call)) {
    if (supports_sm90(context, call)) {
      attention_tiles_sm90(context, call);
    } else {
      attention_tiles_mma(context, call);
    }
    attention_split_mma(context, call);
    return;
  }
  const dim3 grid(static_cast<unsigned>(pass.rows.size()), static_cast<unsigned>(params.n_heads));
  const size_t shared = static_cast<size_t>(shared_columns(layer.k_dim) + kBlockTokens) * sizeof(float);
  with_type(q.dtype, [&](auto t) {
    with_type(layer.dtype, [&](auto c) {
      plain_kernel<decltype(t), decltype(c)><<<grid, kThreads, shared, context.stream()>>>(call);
    });
  });
  HAY_LAUNCHED();
}

}  // namespace hayfork::engine::cuda
