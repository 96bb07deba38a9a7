// Prefill attention on Hopper: wgmma on tiles that the copy engine brings, one producer and two consumer warpgroups
// (Shah et al. 2024, FlashAttention-3, sections 3.1 and 3.2: warp specialisation, softmax of one key tile under the
// matrix products of its neighbours). A block is 128 rows of one sequence and head; keys come in tiles of kKeys by
// absolute position, ascending, so a row's bits depend on itself alone. Needs a V page without NaN behind the last
// written slot: kv_write leaves zeros there.
#include <cudaTypedefs.h>

#include <map>
#include <mutex>
#include <tuple>

#include "engine/kernels/attention.cuh"
#include "engine/kernels/hopper.cuh"
#include "engine/kernels/mma.cuh"

namespace hayfork::engine::cuda {
namespace {

using bf = __nv_bfloat16;
constexpr int kPage = kBlockTokens;
constexpr int kRows = kTileRows;  // 128
constexpr int kConsumers = 2;     // warpgroups of 64 rows
constexpr int kThreads = (kConsumers + 1) * 128;

template <int D>
struct Shape {
  static constexpr int kKeys = D > 128 ? 64 : 128;  // keys a tile
  static constexpr int kStages = 2;
  static constexpr int kPanels = D / 64;  // of 64 columns, 128 bytes
  static constexpr uint32_t kTileBytes = kKeys * D * 2;
  static constexpr uint32_t kPanelBytes = kKeys * 128;
  static constexpr uint32_t kQBytes = kRows * D * 2;
  static constexpr size_t kShared = kQBytes + 2 * kStages * kTileBytes + 1024 + 256;  // alignment slack and barriers
};

// One key tile against one warpgroup's 64 rows.
template <int D>
struct Consumer {
  using S = Shape<D>;
  static constexpr int kScores = S::kKeys / 2;  // accumulator elements a thread

  float o[D / 2] = {};
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};

  __device__ static void scores(float (&s)[kScores], uint32_t q, uint32_t k) {
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
      const uint32_t panel = kk / 4, within = kk % 4 * 32;
      wgmma_ss(s, matrix_descriptor(q + panel * (kRows * 128) + within, 16, 1024),
               matrix_descriptor(k + panel * S::kPanelBytes + within, 16, 1024), kk > 0);
    }
    wgmma_commit();
  }

  __device__ void values(const uint32_t (&p)[S::kKeys / 16][4], uint32_t v) {
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < S::kKeys / 16; ++kk)
      wgmma_rs(o, p[kk], matrix_descriptor(v + kk * 2048, S::kPanelBytes, 1024));
    wgmma_commit();
  }

  // Masks and caps s, folds it into m and l, leaves probabilities in s and the factor for older sums in `old`.
  template <bool kCap>
  __device__ void softmax(float (&s)[kScores], float (&old)[2], const AttentionCall& call, const int (&pos)[2],
                          const int (&first)[2], int key0, bool masked) {
    // With a cap, s becomes the capped score and c the change of base alone; without, the scale goes into c.
    const float c = kCap ? kLog2E : call.scale * kLog2E;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float max = m[i];
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& v = s[n * 4 + 2 * i + j];
          if (kCap) v = call.softcap * tanhf(v * call.scale / call.softcap);
          if (masked) {
            const int key = key0 + n * 8 + j;
            if (key > pos[i] || key < first[i]) v = -INFINITY;
          }
          max = fmaxf(max, v);
        }
      }
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
      const float base = max == -INFINITY ? 0.f : max * c;
      old[i] = power_of_two(fmaf(m[i], c, -base));
      float sum = 0;
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& v = s[n * 4 + 2 * i + j];
          v = power_of_two(fmaf(v, c, -base));
          sum += v;
        }
      }
      m[i] = max;
      l[i] = fmaf(l[i], old[i], sum);
    }
  }

  __device__ void rescale(const float (&old)[2]) {
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      o[n * 4] *= old[0];
      o[n * 4 + 1] *= old[0];
      o[n * 4 + 2] *= old[1];
      o[n * 4 + 3] *= old[1];
    }
  }

  __device__ static void pack(uint32_t (&p)[S::kKeys / 16][4], const float (&s)[kScores]) {
#pragma unroll
    for (int kk = 0; kk < S::kKeys / 16; ++kk) {
#pragma unroll
      for (int i = 0; i < 4; ++i) p[kk][i] = pack_bf16(s[kk * 8 + i * 2], s[kk * 8 + i * 2 + 1]);
    }
  }
};

template <int D, bool kCap>
__global__ void __launch_bounds__(kThreads, 1)
    tiles_kernel(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                 const AttentionCall call) {
  using S = Shape<D>;
  const RowTile tile = call.pass.tiles[blockIdx.x / call.n_heads];
  const int head = blockIdx.x % call.n_heads, kv_head = head / call.group_size;
  const int window = window_of(call, kv_head, tile.stream);
  const int begin = first_key(tile.min_pos, window) / S::kKeys;
  const int end = tile.max_pos / S::kKeys + 1;

  extern __shared__ unsigned char raw[];
  const uint32_t base = (shared_address(raw) + 1023) / 1024 * 1024;  // swizzle atoms are 1,024 bytes
  const uint32_t q_tile = base;
  const uint32_t k_tiles = q_tile + S::kQBytes, v_tiles = k_tiles + S::kStages * S::kTileBytes;
  const uint32_t barriers = v_tiles + S::kStages * S::kTileBytes;
  const auto k_full = [&](int s) { return barriers + s * 8; };
  const auto v_full = [&](int s) { return barriers + 16 + s * 8; };
  const auto k_empty = [&](int s) { return barriers + 32 + s * 8; };
  const auto v_empty = [&](int s) { return barriers + 48 + s * 8; };
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; ++s) {
      barrier_init(k_full(s), 1);
      barrier_init(v_full(s), 1);
      barrier_init(k_empty(s), kConsumers);
      barrier_init(v_empty(s), kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();

  const int group = threadIdx.x / 128;
  if (group == kConsumers) {
    registers_lower<24>();
    if (threadIdx.x != kConsumers * 128) return;
    const int* table = block_table(call.pass, tile.seq, call.table_group);
    const int last_page = tile.max_pos / kPage;
    const auto fetch = [&](const CUtensorMap* map, uint32_t to, uint32_t full, int at) {
      barrier_expect(full, S::kTileBytes);
#pragma unroll
      for (int p = 0; p < S::kKeys / kPage; ++p) {
        // A page behind the last, or before the window, is masked altogether: any page that is there will do.
        int block = table[min(at * (S::kKeys / kPage) + p, last_page)];
        if (block < 0) block = table[last_page];
        const int row = (block * call.n_kv + kv_head) * kPage;
#pragma unroll
        for (int panel = 0; panel < S::kPanels; ++panel) {
          tensor_copy(to + panel * S::kPanelBytes + p * (kPage * 128), map, panel * 64, row, full);
        }
      }
    };
    for (int at = begin; at < end; ++at) {
      const int stage = (at - begin) % S::kStages, round = (at - begin) / S::kStages;
      if (round > 0) barrier_wait(k_empty(stage), (round - 1) & 1);
      fetch(&k_map, k_tiles + stage * S::kTileBytes, k_full(stage), at);
      if (round > 0) barrier_wait(v_empty(stage), (round - 1) & 1);
      fetch(&v_map, v_tiles + stage * S::kTileBytes, v_full(stage), at);
    }
    return;
  }

  registers_raise<240>();
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const int first_row = group * 64;  // of the tile
  // This warpgroup's queries, swizzled as the copy engine would.
  for (int e = thread; e < 64 * (D / 8); e += 128) {
    const int row = first_row + e / (D / 8), chunk = e % (D / 8);
    uint4 value{};
    if (row < tile.n && chunk * 8 < call.k_dim) {
      value = *reinterpret_cast<const uint4*>(static_cast<const bf*>(call.q) + (tile.first + row) * call.q_stride +
                                              head * call.k_dim + chunk * 8);
    }
    const uint32_t to = q_tile + (chunk / 8) * (kRows * 128) + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to), "r"(value.x), "r"(value.y), "r"(value.z),
                 "r"(value.w)
                 : "memory");
  }
  fence_async_proxy();
  named_barrier_sync(1 + group, 128);

  int pos[2], first[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + warp * 16 + lane / 4 + i * 8;
    pos[i] = row < tile.n ? call.pass.rows[tile.first + row].pos : -1;
    first[i] = first_key(pos[i], window);
  }
  // Bounds of this warpgroup's rows: what it must visit and where masks matter. Rows ascend in position.
  const int n_rows = min(64, tile.n - first_row);
  const int min_pos = n_rows > 0 ? call.pass.rows[tile.first + first_row].pos : -1;
  const int max_pos = n_rows > 0 ? call.pass.rows[tile.first + first_row + n_rows - 1].pos : -1;
  // With rows in both warpgroups they take turns at the tensor cores, and so make the same number of steps.
  const bool turns = tile.n > 64;
  const int my_end = turns ? end : max_pos >= 0 ? max_pos / S::kKeys + 1 : begin;
  const int my_turn = 3 + group, other_turn = 3 + (1 - group);  // named barriers
  if (turns && group == 1) named_barrier_arrive(other_turn, 256);
  const auto masked = [&](int at) {
    return at * S::kKeys + S::kKeys - 1 > min_pos || at * S::kKeys < first_key(max_pos, window);
  };
  const uint32_t q = q_tile + first_row * 128;

  Consumer<D> state;
  if (my_end > begin) {
    float s[Consumer<D>::kScores];
    uint32_t p[S::kKeys / 16][4];
    float old[2];
    barrier_wait(k_full(0), 0);
    Consumer<D>::scores(s, q, k_tiles);
    wgmma_wait<0>();
    if (thread == 0) barrier_arrive(k_empty(0));
    state.template softmax<kCap>(s, old, call, pos, first, begin * S::kKeys + lane % 4 * 2, masked(begin));
    Consumer<D>::pack(p, s);
    for (int at = begin + 1; at < my_end; ++at) {
      const int i = at - begin, stage = i % S::kStages, before = (i - 1) % S::kStages;
      barrier_wait(k_full(stage), (i / S::kStages) & 1);
      if (turns) named_barrier_sync(my_turn, 256);
      Consumer<D>::scores(s, q, k_tiles + stage * S::kTileBytes);
      barrier_wait(v_full(before), ((i - 1) / S::kStages) & 1);
      state.values(p, v_tiles + before * S::kTileBytes);
      if (turns) named_barrier_arrive(other_turn, 256);
      wgmma_wait<1>();  // the scores; the values of the tile before are still being multiplied
      if (thread == 0) barrier_arrive(k_empty(stage));
      state.template softmax<kCap>(s, old, call, pos, first, at * S::kKeys + lane % 4 * 2, masked(at));
      wgmma_wait<0>();
      if (thread == 0) barrier_arrive(v_empty(before));
      state.rescale(old);
      Consumer<D>::pack(p, s);
    }
    const int i = my_end - 1 - begin, stage = i % S::kStages;
    barrier_wait(v_full(stage), (i / S::kStages) & 1);
    state.values(p, v_tiles + stage * S::kTileBytes);
    wgmma_wait<0>();
    if (thread == 0) barrier_arrive(v_empty(stage));
  }
  // Tiles only the other warpgroup needs are released unread.
  for (int at = my_end; at < end; ++at) {
    const int i = at - begin, stage = i % S::kStages;
    barrier_wait(k_full(stage), (i / S::kStages) & 1);
    if (thread == 0) barrier_arrive(k_empty(stage));
    barrier_wait(v_full(stage), (i / S::kStages) & 1);
    if (thread == 0) barrier_arrive(v_empty(stage));
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float l = state.l[i];
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
    float factor = 1.f;
    if (call.sinks != nullptr) {
      const float sink = call.sinks[head];
      const float score = kCap ? state.m[i] : state.m[i] * call.scale;
      const float m = fmaxf(score, sink);
      factor = power_of_two((score - m) * kLog2E);
      l = l * factor + power_of_two((sink - m) * kLog2E);
    }
    const int row = first_row + warp * 16 + lane / 4 + i * 8;
    if (row >= tile.n) continue;
    const float inverse = factor / l;
    bf* out = static_cast<bf*>(call.o) + (tile.first + row) * call.o_stride + head * call.v_dim;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const int d = n * 8 + lane % 4 * 2;
      if (d < call.v_dim) {
        *reinterpret_cast<uint32_t*>(out + d) =
            pack_bf16(state.o[n * 4 + 2 * i] * inverse, state.o[n * 4 + 2 * i + 1] * inverse);
      }
    }
  }
}

// The cache of one layer as a matrix of rows [.., dim]; boxes of one page by 64 columns. Columns beyond dim read as
// zeros.
const CUtensorMap& map_of(const void* base, int dim) {
  static std::map<std::pair<const void*, int>, CUtensorMap> maps;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = maps.try_emplace({base, dim});
  if (!is_new) return it->second;
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    HAY_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
    HAY_CHECK(found == cudaDriverEntryPointSuccess);
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  // The number of rows only bounds coordinates, and block tables hold valid ones: the largest legal number serves every
  // cache.
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(dim), cuuint64_t{1} << 31};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(dim) * 2};
  const cuuint32_t box[2] = {64, kPage};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result = encode(&it->second, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), sizes,
                                 strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HAY_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled " + std::to_string(static_cast<int>(result)));
  return it->second;
}

template <int D, bool kCap>
void launch(CudaContext& context, const AttentionCall& call) {
  using S = Shape<D>;
  static std::once_flag once;
  std::call_once(once, [] {
    HAY_CUDA(cudaFuncSetAttribute(tiles_kernel<D, kCap>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(S::kShared)));
  });
  const unsigned blocks = static_cast<unsigned>(call.pass.n_tiles) * static_cast<unsigned>(call.n_heads);
  tiles_kernel<D, kCap><<<blocks, kThreads, S::kShared, context.stream()>>>(map_of(call.k, call.k_dim),
                                                                            map_of(call.v, call.v_dim), call);
  HAY_LAUNCHED();
}

template <int D>
void launch(CudaContext& context, const AttentionCall& call) {
  if (call.softcap > 0)
    launch<D, true>(context, call);
  else
    launch<D, false>(context, call);
}

}  // namespace

bool supports_sm90(const CudaContext& context, const AttentionCall& call) {
  return context.properties().major == 9 && call.k_dim == call.v_dim && call.k_dim % 8 == 0 && call.k_dim <= 256 &&
         call.q_stride % 8 == 0 && call.o_stride % 2 == 0;
}

void attention_tiles_sm90(CudaContext& context, const AttentionCall& call) {
  if (call.pass.n_tiles == 0) return;
  if (call.k_dim <= 64)
    launch<64>(context, call);
  else if (call.k_dim <= 128)
    launch<128>(context, call);
  else
    launch<256>(context, call);
}

}  // namespace hayfork::engine::cuda
