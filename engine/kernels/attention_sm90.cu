// Prefill attention on Hopper: wgmma on tiles that the copy engine brings, one producer and two consumer warpgroups
// (Shah et al. 2024, FlashAttention-3, sections 3.1 and 3.2: warp specialisation, softmax of one key tile under the
// matrix products of its neighbours). A block is 128 rows of one sequence and head; keys come in tiles of kKeys by
// absolute position, ascending, so a row's bits depend on itself alone. Needs a V page without NaN behind the last
// written slot: kv_write leaves zeros there.
#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "engine/kernels/attention.cuh"
#include "engine/kernels/hopper.cuh"
#include "engine/kernels/mma.cuh"
#include "engine/kernels/tensor_map.cuh"

namespace hayfork::engine::cuda {
namespace {

using bf = __nv_bfloat16;
constexpr int kPage = kBlockTokens;

template <int D>
struct Shape {
  // Warpgroups of 64 rows. Narrow heads have little to multiply beside their exponentials: a third hides these.
  static constexpr int kConsumers = D > 64 ? 2 : 3;
  static constexpr int kRows = kConsumers * 64;
  static constexpr int kThreads = (kConsumers + 1) * 128;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 24 : 32;
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 240 : 160;
  static constexpr int kKeys = D > 128 ? 64 : 128;  // keys a tile
  static constexpr int kStages = 2;
  static constexpr int kPanels = D / 64;  // of 64 columns, 128 bytes
  static constexpr uint32_t kTileBytes = kKeys * D * 2;
  static constexpr uint32_t kPanelBytes = kKeys * 128;
  static constexpr uint32_t kQBytes = kRows * D * 2;
  static constexpr size_t kShared = kQBytes + 2 * kStages * kTileBytes + 1024 + 256;  // alignment slack and barriers
};

// Without tanhf's branches, which would end the overlap with the tensor cores; 1e-7 absolute.
__device__ inline float straight_tanh(float x) {
  return 1.f - __fdividef(2.f, power_of_two(x * (2 * kLog2E)) + 1.f);
}

// One key tile against one warpgroup's 64 rows.
template <int D>
struct Consumer {
  using S = Shape<D>;
  static constexpr int kScores = S::kKeys / 2;  // accumulator elements a thread

  float o[D / 2] = {};
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};

  // Descriptors of the operands at the start of a tile; a step along them is an addition to the address field.
  __device__ static void scores(float (&s)[kScores], uint64_t q, uint64_t k) {
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < D / 16; ++kk) {
      const uint32_t panel = kk / 4, within = kk % 4 * 32;
      wgmma_ss(s, q + ((panel * (S::kRows * 128) + within) >> 4), k + ((panel * S::kPanelBytes + within) >> 4), kk > 0);
    }
    wgmma_commit();
  }

  __device__ void values(const uint32_t (&p)[S::kKeys / 16][4], uint64_t v) {
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < S::kKeys / 16; ++kk) wgmma_rs(o, p[kk], v + (kk * 2048 >> 4));
    wgmma_commit();
  }

  // Keys a row does not see: those before `first` and behind `pos`, counted from this lane's first column.
  __device__ static void mask(float (&s)[kScores], const int (&pos)[2], const int (&first)[2], int key0) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int from = first[i] - key0, to = pos[i] - key0;
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (n * 8 + j > to || n * 8 + j < from) s[n * 4 + 2 * i + j] = -INFINITY;
        }
      }
    }
  }

  // Folds s into m and l, leaves probabilities in s and the factor for older sums in `old`. With a cap, s are the
  // capped scores and c the change of base alone; without, the scale goes into c.
  __device__ void softmax(float (&s)[kScores], float (&old)[2], float c) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float max = m[i];
#pragma unroll
      for (int n = 0; n < S::kKeys / 8; ++n) max = fmaxf(max, fmaxf(s[n * 4 + 2 * i], s[n * 4 + 2 * i + 1]));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
      max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
      const float finite = max == -INFINITY ? 0.f : max;
      const float base = finite * c;
      // From the difference, so that a tile that leaves the maximum as it was, or is masked for this row altogether,
      // has a factor of exactly 1.
      old[i] = power_of_two((m[i] - finite) * c);
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

// The tiles of a call and how many heads are in flight together.
struct TileWork {
  const RowTile* tiles;
  int n_tiles, heads;
};

template <int D, bool kCap>
__global__ void __launch_bounds__(Shape<D>::kThreads, 1)
    tiles_kernel(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                 const AttentionCall call, const TileWork work) {
  using S = Shape<D>;
  constexpr int kConsumers = S::kConsumers;
  // Sections of heads, so that the keys and values of those in flight stay in the L2 cache; in a section tiles in the
  // order of the list, in a tile the heads that share keys side by side.
  const int section = blockIdx.x / (work.n_tiles * work.heads);
  const int heads = min(work.heads, call.n_heads - section * work.heads);
  const int in_section = blockIdx.x - section * work.n_tiles * work.heads;
  const RowTile tile = work.tiles[in_section / heads];
  const int head = section * work.heads + in_section % heads, kv_head = head / call.group_size;
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

  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the same for a warp, and known to be
  if (group == kConsumers) {
    registers_lower<S::kProducerRegisters>();
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

  registers_raise<S::kConsumerRegisters>();
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
    const uint32_t to = q_tile + (chunk / 8) * (S::kRows * 128) + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
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
  const int my_end = n_rows > 0 ? max_pos / S::kKeys + 1 : begin;
  // Warpgroups with rows take turns at the tensor cores; one that is done passes its turn on.
  const int n_turns = (tile.n + 63) / 64;
  const bool turns = n_turns > 1 && n_rows > 0;
  const int my_turn = 1 + kConsumers + group, next_turn = 1 + kConsumers + (group + 1) % n_turns;  // named barriers
  if (turns && group == n_turns - 1) named_barrier_arrive(next_turn, 256);
  const int whole_from = first_key(max_pos, window), whole_to = min_pos + 1;  // keys all rows see
  const float c = kCap ? kLog2E : call.scale * kLog2E;
  const float cap_in = kCap ? call.scale / call.softcap : 0.f;
  const int lane_key = lane % 4 * 2;

  Consumer<D> state;
  // Scores of tile `at` become probabilities.
  const auto soften = [&](float(&s)[Consumer<D>::kScores], float(&old)[2], int at) {
    if (kCap) {
#pragma unroll
      for (int e = 0; e < Consumer<D>::kScores; ++e) s[e] = call.softcap * straight_tanh(s[e] * cap_in);
    }
    if (at * S::kKeys < whole_from || (at + 1) * S::kKeys > whole_to) {
      Consumer<D>::mask(s, pos, first, at * S::kKeys + lane_key);
    }
    state.softmax(s, old, c);
  };
  const auto k_at = [&](int stage) { return matrix_descriptor(k_tiles + stage * S::kTileBytes, 16, 1024); };
  const auto v_at = [&](int stage) { return matrix_descriptor(v_tiles + stage * S::kTileBytes, S::kPanelBytes, 1024); };
  if (my_end > begin) {
    const uint64_t q = matrix_descriptor(q_tile + first_row * 128, 16, 1024);
    float s[Consumer<D>::kScores];
    uint32_t p[S::kKeys / 16][4];
    float old[2];
    barrier_wait(k_full(0), 0);
    Consumer<D>::scores(s, q, k_at(0));
    wgmma_wait<0>();
    if (thread == 0) barrier_arrive(k_empty(0));
    soften(s, old, begin);
    Consumer<D>::pack(p, s);
    for (int at = begin + 1; at < my_end; ++at) {
      const int i = at - begin, stage = i % S::kStages, before = (i - 1) % S::kStages;
      barrier_wait(k_full(stage), (i / S::kStages) & 1);
      if (turns) named_barrier_sync(my_turn, 256);
      Consumer<D>::scores(s, q, k_at(stage));
      barrier_wait(v_full(before), ((i - 1) / S::kStages) & 1);
      state.values(p, v_at(before));
      if (turns) named_barrier_arrive(next_turn, 256);
      wgmma_wait<1>();  // the scores; the values of the tile before are still being multiplied
      if (thread == 0) barrier_arrive(k_empty(stage));
      soften(s, old, at);
      computed_before(state.l[0] + state.l[1]);
      wgmma_wait<0>();
      if (thread == 0) barrier_arrive(v_empty(before));
      state.rescale(old);
      Consumer<D>::pack(p, s);
    }
    const int i = my_end - 1 - begin, stage = i % S::kStages;
    barrier_wait(v_full(stage), (i / S::kStages) & 1);
    state.values(p, v_at(stage));
    wgmma_wait<0>();
    if (thread == 0) barrier_arrive(v_empty(stage));
  }
  // Tiles only other warpgroups need are released unread.
  for (int at = my_end; at < end; ++at) {
    const int i = at - begin, stage = i % S::kStages;
    barrier_wait(k_full(stage), (i / S::kStages) & 1);
    if (turns && i > 0) {
      named_barrier_sync(my_turn, 256);
      named_barrier_arrive(next_turn, 256);
    }
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
  // The number of rows only bounds coordinates, and block tables hold valid ones: the largest legal number serves every
  // cache.
  it->second = tensor_map(base, int64_t{1} << 31, dim, dim, kPage);
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
  static_assert(S::kRows == kTileRows || S::kRows == kWideTileRows);
  TileWork work{S::kRows == kTileRows ? call.pass.tiles : call.pass.wide_tiles,
                S::kRows == kTileRows ? call.pass.n_tiles : call.pass.n_wide_tiles, call.n_heads};
  if (call.n_windows == 0 && call.window_base == 0) {
    constexpr int64_t kSectionBytes = int64_t{32} << 20;
    const int64_t head_bytes = int64_t{4} * (call.pass.max_pos + 1) * call.k_dim;
    work.heads = static_cast<int>(std::clamp<int64_t>(kSectionBytes / head_bytes, 1, call.n_kv)) * call.group_size;
  }
  const unsigned blocks = static_cast<unsigned>(work.n_tiles) * static_cast<unsigned>(call.n_heads);
  tiles_kernel<D, kCap><<<blocks, S::kThreads, S::kShared, context.stream()>>>(map_of(call.k, call.k_dim),
                                                                               map_of(call.v, call.v_dim), call, work);
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
