// Attention tiles with mma.sync (compute capability 8.0 and later), bf16 in, float32 sums: prefill base rows, one block
// a (tile of up to 128 rows, head); online softmax over pages of 64 keys, ascending.
#include <mutex>

#include "engine/kernels/attention_mma.cuh"

namespace hayfork::engine::cuda {
namespace {

template <int D>
struct TileShape {
  static constexpr int kWarps = D > 128 ? 4 : 8;  // 16 rows each
  static constexpr int kRows = kWarps * 16;
  static constexpr int kStages = D > 128 ? 1 : 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr size_t kShared = (static_cast<size_t>(kRows) + 2 * kStages * kPage) * D * sizeof(bf);
};

template <int D>
__global__ void __launch_bounds__(TileShape<D>::kThreads) tiles_kernel(AttentionCall call) {
  using S = TileShape<D>;
  const int head = blockIdx.x % call.n_heads;
  const int tile_index = blockIdx.x / call.n_heads / (kTileRows / S::kRows);
  const int part = blockIdx.x / call.n_heads % (kTileRows / S::kRows);
  const RowTile tile = call.pass.tiles[tile_index];
  if (part * S::kRows >= tile.n) return;
  const int kv_head = head / call.group_size;
  const int window = window_of(call, kv_head, tile.stream);
  const int* table = block_table(call.pass, tile.seq, call.table_group);
  const int row0 = tile.first + part * S::kRows;
  const int n_rows = min(S::kRows, tile.n - part * S::kRows);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

  extern __shared__ __align__(128) unsigned char shared[];
  const uint32_t q_tile = shared_address(shared);
  const uint32_t k_tiles = q_tile + S::kRows * D * 2;
  const uint32_t v_tiles = k_tiles + S::kStages * kPage * D * 2;
  constexpr uint32_t kTileBytes = kPage * D * 2;

  // Rows of a tile ascend in position, so its first and last row bound what must be visited.
  const int min_pos = call.pass.rows[row0].pos, max_pos = call.pass.rows[row0 + n_rows - 1].pos;
  const int begin = first_key(min_pos, window) / kPage, end = max_pos / kPage + 1;
  const auto page = [&](const void* base, int at) {
    return static_cast<const bf*>(base) + (static_cast<int64_t>(table[at]) * call.n_kv + kv_head) * kPage * call.k_dim;
  };

  for (int e = threadIdx.x; e < S::kRows * (D / 8); e += S::kThreads) {
    const int row = e / (D / 8), chunk = e % (D / 8);
    const int left = row < n_rows ? call.k_dim - chunk * 8 : 0;
    const bf* from =
        static_cast<const bf*>(call.q) + (row0 + (row < n_rows ? row : 0)) * call.q_stride + head * call.k_dim;
    copy_async_16(q_tile + tile_offset<D>(row, chunk), left > 0 ? from + chunk * 8 : from, left > 0 ? 16 : 0);
  }
  copy_page<D>(k_tiles, page(call.k, begin), call.k_dim, max_pos + 1 - begin * kPage, threadIdx.x, S::kThreads);
  copy_async_commit();
  copy_page<D>(v_tiles, page(call.v, begin), call.k_dim, max_pos + 1 - begin * kPage, threadIdx.x, S::kThreads);
  copy_async_commit();

  const int warp_row = warp * 16;
  int pos[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = warp_row + g + i * 8;
    pos[i] = row < n_rows ? call.pass.rows[row0 + row].pos : -1;
  }
  float o[D / 8][4] = {};
  RowState state[2];

  for (int at = begin; at < end; ++at) {
    const int stage = S::kStages == 2 ? (at - begin) % 2 : 0;
    const uint32_t k_tile = k_tiles + stage * kTileBytes, v_tile = v_tiles + stage * kTileBytes;
    copy_async_wait<1>();  // this page's keys (its values may still be on the way)
    __syncthreads();
    float s[kPage / 8][4] = {};
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
      uint32_t a[4];
      load_matrix_x4(a, q_tile + tile_offset<D>(warp_row + lane % 16, kk * 2 + lane / 16));
#pragma unroll
      for (int n = 0; n < kPage / 16; ++n) {
        uint32_t b[4];  // keys n·16 … +15: two n8 tiles by two k8 halves
        load_matrix_x4(b, k_tile + tile_offset<D>(n * 16 + lane % 8 + (lane / 16) * 8, kk * 2 + lane / 8 % 2));
        mma_bf16(s[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_bf16(s[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
    if (S::kStages == 2 && at + 1 < end) {
      copy_page<D>(k_tiles + (stage ^ 1) * kTileBytes, page(call.k, at + 1), call.k_dim, max_pos + 1 - (at + 1) * kPage,
                   threadIdx.x, S::kThreads);
      copy_async_commit();
      copy_page<D>(v_tiles + (stage ^ 1) * kTileBytes, page(call.v, at + 1), call.k_dim, max_pos + 1 - (at + 1) * kPage,
                   threadIdx.x, S::kThreads);
      copy_async_commit();
    }
    // Mask, cap, online softmax. Row i of the two is accumulator elements 2i, 2i+1.
    const int key0 = at * kPage + 2 * t;
    const bool inside = at * kPage >= first_key(max_pos, window) && at * kPage + kPage - 1 <= min_pos;
    float scale_old[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int first = first_key(pos[i], window);
      float max = state[i].m;
#pragma unroll
      for (int n = 0; n < kPage / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& v = s[n][2 * i + j];
          v = capped(v * call.scale, call.softcap);
          const int key = key0 + n * 8 + j;
          if (!inside && (key > pos[i] || key < first)) v = -INFINITY;
          max = fmaxf(max, v);
        }
      }
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
      const float base = max == -INFINITY ? 0.f : max;
      scale_old[i] = power_of_two((state[i].m - base) * kLog2E);
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kPage / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& v = s[n][2 * i + j];
          v = power_of_two((v - base) * kLog2E);
          sum += v;
        }
      }
      state[i].m = max;
      state[i].l = state[i].l * scale_old[i] + sum;  // a lane's own columns; the four lanes are added at the end
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      o[n][0] *= scale_old[0];
      o[n][1] *= scale_old[0];
      o[n][2] *= scale_old[1];
      o[n][3] *= scale_old[1];
    }
    // This page's values; with two stages the next page's keys and values may still be on the way.
    if (S::kStages == 2 && at + 1 < end)
      copy_async_wait<2>();
    else
      copy_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < kPage / 16; ++kk) {
      const uint32_t a0 = pack_bf16(s[2 * kk][0], s[2 * kk][1]), a1 = pack_bf16(s[2 * kk][2], s[2 * kk][3]);
      const uint32_t a2 = pack_bf16(s[2 * kk + 1][0], s[2 * kk + 1][1]),
                     a3 = pack_bf16(s[2 * kk + 1][2], s[2 * kk + 1][3]);
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t b[4];
        load_matrix_x4_transposed(b, v_tile + tile_offset<D>(kk * 16 + lane % 16, n * 2 + lane / 16));
        mma_bf16(o[2 * n], a0, a1, a2, a3, b[0], b[1]);
        mma_bf16(o[2 * n + 1], a0, a1, a2, a3, b[2], b[3]);
      }
    }
    if (S::kStages == 1 && at + 1 < end) {
      __syncthreads();
      copy_page<D>(k_tiles, page(call.k, at + 1), call.k_dim, max_pos + 1 - (at + 1) * kPage, threadIdx.x, S::kThreads);
      copy_async_commit();
      copy_page<D>(v_tiles, page(call.v, at + 1), call.k_dim, max_pos + 1 - (at + 1) * kPage, threadIdx.x, S::kThreads);
      copy_async_commit();
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float l = state[i].l;
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    float factor = 1.f;
    if (call.sinks != nullptr) {
      const float sink = call.sinks[head];
      const float m = fmaxf(state[i].m, sink);
      factor = power_of_two((state[i].m - m) * kLog2E);
      l = l * factor + power_of_two((sink - m) * kLog2E);
    }
    const int row = warp_row + g + i * 8;
    if (row >= n_rows) continue;
    const float inverse = factor / l;
    bf* out = static_cast<bf*>(call.o) + (row0 + row) * call.o_stride + head * call.v_dim;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const int d = n * 8 + 2 * t;
      if (d < call.v_dim) {
        *reinterpret_cast<uint32_t*>(out + d) = pack_bf16(o[n][2 * i] * inverse, o[n][2 * i + 1] * inverse);
      }
    }
  }
}

template <int D>
void launch_tiles(CudaContext& context, const AttentionCall& call) {
  using S = TileShape<D>;
  static std::once_flag once;
  std::call_once(once, [] {
    HAY_CUDA(cudaFuncSetAttribute(tiles_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(S::kShared)));
  });
  const unsigned blocks =
      static_cast<unsigned>(call.pass.n_tiles) * (kTileRows / S::kRows) * static_cast<unsigned>(call.n_heads);
  tiles_kernel<D><<<blocks, S::kThreads, S::kShared, context.stream()>>>(call);
  HAY_LAUNCHED();
}

}  // namespace

void attention_tiles_mma(CudaContext& context, const AttentionCall& call) {
  if (call.pass.n_tiles == 0) return;
  if (call.k_dim <= 64)
    launch_tiles<64>(context, call);
  else if (call.k_dim <= 128)
    launch_tiles<128>(context, call);
  else
    launch_tiles<256>(context, call);
}

}  // namespace hayfork::engine::cuda
