// Experts of many rows (prefill) on Hopper. A block is 256 outputs of one expert by up to 128 of its rows: the weights
// go from their packed order through registers — MXFP4 is expanded there — into wgmma as its A operand, the rows are
// the B operand in shared memory, brought by the copy engine. One producer warp and two consumer warpgroups of 128
// outputs each; blocks are persistent and take the experts in order, so that an expert's weights are read from memory
// once. The sum of an output runs over k in ascending slices of 16 and depends on its row alone.
#include <algorithm>
#include <mutex>

#include "engine/kernels/experts.cuh"
#include "engine/kernels/hopper.cuh"
#include "engine/kernels/mma.cuh"
#include "engine/kernels/tensor_map.cuh"

namespace hayfork::engine::cuda {
namespace {

using bf = __nv_bfloat16;
constexpr int kOutputs = 256;  // of a block
constexpr int kConsumers = 2;  // warpgroups
constexpr int kThreads = (kConsumers + 1) * 128;
constexpr int kStages = 6;
constexpr int kAhead = 4;  // units that weights are brought into the L2 cache ahead
constexpr uint32_t kStageBytes = kTensorRows * kUnitInputs * 2;
constexpr int kStagedColumns = kOutputs / kConsumers + 8;  // bf16 a row, of one warpgroup: rows 4 banks apart
constexpr uint32_t kStagedBytes = kTensorRows * kStagedColumns * 2;
constexpr size_t kShared = kStages * kStageBytes + kConsumers * kStagedBytes + 1024 + 256;

// Registers that an asynchronous product still reads stay as they are up to here.
__device__ inline void keep(uint32_t (&a)[4]) {
  asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}

__device__ inline void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];\n" ::"l"(address));
}

// A warp's weights of one unit of its tile, as they come from memory.
template <bool kFp4>
struct Loaded;
template <>
struct Loaded<true> {
  uint4 words;
  uint32_t exponents;
  __device__ void read(const unsigned char* unit, int lane) {
    words = *reinterpret_cast<const uint4*>(unit + lane * 16);
    exponents = *reinterpret_cast<const uint32_t*>(unit + 512 + lane / 4 * 4);
  }
  // Slices 2·kBlock and 2·kBlock + 1.
  template <int kBlock>
  __device__ void operands(uint32_t (&a)[2][4]) const {
    const uint32_t word0 = kBlock == 0 ? words.x : words.y, word1 = kBlock == 0 ? words.z : words.w;
    const uint32_t factor0 = exponent_factor(exponents, kBlock), factor1 = exponent_factor(exponents, 2 + kBlock);
    fp4_operand<0>(a[0], word0, word1, factor0, factor1);
    fp4_operand<1>(a[1], word0, word1, factor0, factor1);
  }
};
template <>
struct Loaded<false> {
  uint4 words[4];
  __device__ void read(const unsigned char* unit, int lane) {
#pragma unroll
    for (int s = 0; s < 4; ++s) words[s] = *reinterpret_cast<const uint4*>(unit + s * 512 + lane * 16);
  }
  template <int kBlock>
  __device__ void operands(uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint4 v = words[2 * kBlock + s];
      // Times one, which the compiler does not see: plain copies make it wait for every product before the next.
      uint32_t one;
      asm volatile("mov.b32 %0, 0x3f803f80;\n" : "=r"(one));
      a[s][0] = scaled_pair(v.x, one);
      a[s][1] = scaled_pair(v.y, one);
      a[s][2] = scaled_pair(v.z, one);
      a[s][3] = scaled_pair(v.w, one);
    }
  }
};

struct Tile {
  ExpertRows rows;
  int first_tile;  // of 16 outputs
};

struct Barriers {
  uint32_t base;
  __device__ uint32_t full(int s) const { return base + s * 8; }
  __device__ uint32_t empty(int s) const { return base + (kStages + s) * 8; }
};

__device__ void produce(const CUtensorMap* map, const ExpertCall& call, uint32_t ring, Barriers barriers, int n_items,
                        int per_entry) {
  int stage = 0, round = 0;
  for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
    const int first = call.entries[item / per_entry].first;
    for (int unit = 0; unit < call.w.units; ++unit) {
      if (round > 0) barrier_wait(barriers.empty(stage), (round - 1) & 1);
      barrier_expect(barriers.full(stage), kStageBytes);
      tensor_copy(ring + stage * kStageBytes, map, unit * kUnitInputs, first, barriers.full(stage));
      if (++stage == kStages) {
        stage = 0;
        ++round;
      }
    }
  }
}

// Outputs of this warpgroup's accumulators into its staging rows, bias and activation on the way.
__device__ void stage_outputs(const float (&acc)[2][64], const ExpertCall& call, const Tile& tile, int group, int warp,
                              int lane, bf* staged) {
  const ExpertMatrix& m = call.w;
  const float scale = m.scale != nullptr ? m.scale[tile.rows.expert] : 1.f;
  const float* bias = m.bias != nullptr ? m.bias + static_cast<int64_t>(tile.rows.expert) * m.n : nullptr;
  const int g = lane / 4, t = lane % 4, width = m.n / 2;
#pragma unroll
  for (int b = 0; b < 2; ++b) {
    const int local = b * 4 + warp, at = tile.first_tile + group * 8 + local;  // tile of 16
    if (m.paired) {
      const int output = at * 8 + g;
      const bool there = output < width;
      const float gate_bias = there && bias != nullptr ? bias[output] : 0.f;
      const float up_bias = there && bias != nullptr ? bias[width + output] : 0.f;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float v = expert_activate<true>(acc[b][4 * j + i] * scale + gate_bias,
                                                acc[b][4 * j + 2 + i] * scale + up_bias, call.act);
          store(staged + (8 * j + 2 * t + i) * kStagedColumns + local * 8 + g, there ? v : 0.f);
        }
      }
    } else {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int output = at * 16 + g + r * 8;
        const float add = output < m.n && bias != nullptr ? bias[output] : 0.f;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
#pragma unroll
          for (int i = 0; i < 2; ++i)
            store(staged + (8 * j + 2 * t + i) * kStagedColumns + local * 16 + g + r * 8,
                  acc[b][4 * j + 2 * r + i] * scale + add);
        }
      }
    }
  }
}

__device__ void write_outputs(const ExpertCall& call, const Tile& tile, int group, const bf* staged) {
  const int chunks = call.w.paired ? 8 : 16;  // 16-byte chunks of a row of this warpgroup
  const int first = (tile.first_tile + group * 8) * (call.w.paired ? 8 : 16);
  const int there = (static_cast<int>(call.y_stride) - first) / 8;  // strides are multiples of 64
  for (int e = threadIdx.x % 128; e < tile.rows.n * chunks; e += 128) {
    const int row = e / chunks, chunk = e % chunks;
    if (chunk >= there) continue;
    *reinterpret_cast<uint4*>(static_cast<bf*>(call.y) + (tile.rows.first + row) * call.y_stride + first + chunk * 8) =
        *reinterpret_cast<const uint4*>(staged + row * kStagedColumns + chunk * 8);
  }
}

template <bool kFp4>
__device__ void consume(const ExpertCall& call, uint32_t ring, Barriers barriers, bf* staged, int n_items,
                        int per_entry) {
  constexpr int kUnit = kFp4 ? kUnitBytesFp4 : kUnitBytes;
  const ExpertMatrix& m = call.w;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  int stage = 0, phase = 0;
  for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
    const Tile tile{call.entries[item / per_entry], item % per_entry * (kOutputs / 16)};
    const unsigned char* weights[2];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int at = min(tile.first_tile + group * 8 + b * 4 + warp, m.tiles - 1);  // behind the last: not stored
      weights[b] = static_cast<const unsigned char*>(m.weights) +
                   (static_cast<int64_t>(tile.rows.expert) * m.tiles + at) * m.units * kUnit;
    }
    float acc[2][64] = {};
    Loaded<kFp4> next[2];
#pragma unroll
    for (int b = 0; b < 2; ++b) next[b].read(weights[b], lane);
    int before = -1;  // stage of the unit before
    for (int unit = 0; unit < m.units; ++unit) {
      Loaded<kFp4> now[2];
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        now[b] = next[b];
        if (unit + 1 < m.units) next[b].read(weights[b] + int64_t{unit + 1} * kUnit, lane);
        if (unit + kAhead < m.units && lane * 128 < kUnit)
          prefetch(weights[b] + int64_t{unit + kAhead} * kUnit + lane * 128);
      }
      uint32_t a[2][2][2][4];  // [half of the unit][tile][slice]
      const uint32_t rows = ring + stage * kStageBytes;
      const auto multiply = [&](uint32_t(&operand)[2][2][4], int half) {
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const uint64_t b_rows = matrix_descriptor(rows + (2 * half + s) * 32, 16, 1024);
#pragma unroll
          for (int b = 0; b < 2; ++b) wgmma_rs<true>(acc[b], operand[b][s], b_rows);
        }
        wgmma_commit();
      };
#pragma unroll
      for (int b = 0; b < 2; ++b) now[b].template operands<0>(a[0][b]);
      barrier_wait(barriers.full(stage), phase);
      multiply(a[0], 0);
      wgmma_wait<1>();  // the unit before is done
      if (before >= 0 && threadIdx.x % 128 == 0) barrier_arrive(barriers.empty(before));
#pragma unroll
      for (int b = 0; b < 2; ++b) now[b].template operands<1>(a[1][b]);
      multiply(a[1], 1);
      wgmma_wait<1>();
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        keep(a[0][b][0]);
        keep(a[0][b][1]);
      }
      before = stage;
      if (++stage == kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) barrier_arrive(barriers.empty(before));
    // The warpgroups do not wait for each other: one's outputs are written under the other's products.
    named_barrier_sync(1 + group, 128);  // the outputs before have been written
    stage_outputs(acc, call, tile, group, warp, lane, staged);
    named_barrier_sync(1 + group, 128);
    write_outputs(call, tile, group, staged);
  }
}

template <bool kFp4>
__global__ void __launch_bounds__(kThreads, 1)
    tiles_kernel(const __grid_constant__ CUtensorMap map, const __grid_constant__ ExpertCall call) {
  extern __shared__ unsigned char raw[];
  const uint32_t address = shared_address(raw), ring = (address + 1023) / 1024 * 1024;  // swizzle atoms are 1,024 bytes
  const Barriers barriers{ring + kStages * kStageBytes + kConsumers * kStagedBytes};
  bf* staged = reinterpret_cast<bf*>(raw + (ring - address) + kStages * kStageBytes);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(barriers.full(s), 1);
      barrier_init(barriers.empty(s), kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();
  const int per_entry = (call.w.tiles + kOutputs / 16 - 1) / (kOutputs / 16);
  const int n_items = *call.n_entries * per_entry;
  if (threadIdx.x >= kConsumers * 128) {
    registers_lower<24>();
    if (threadIdx.x == kConsumers * 128) produce(&map, call, ring, barriers, n_items, per_entry);
    return;
  }
  registers_raise<240>();
  consume<kFp4>(call, ring, barriers, staged + threadIdx.x / 128 * (kStagedBytes / 2), n_items, per_entry);
}

template <bool kFp4>
void launch(CudaContext& context, const ExpertCall& call) {
  static std::once_flag once;
  std::call_once(once, [] {
    HAY_CUDA(cudaFuncSetAttribute(tiles_kernel<kFp4>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kShared)));
  });
  const int64_t items = int64_t{call.max_entries} * ((call.w.tiles + kOutputs / 16 - 1) / (kOutputs / 16));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(items, context.properties().multiProcessorCount));
  const CUtensorMap map = tensor_map(call.x, call.n_rows, call.x_stride, call.x_stride, kTensorRows);
  tiles_kernel<kFp4><<<blocks, kThreads, kShared, context.stream()>>>(map, call);
  HAY_LAUNCHED();
}

}  // namespace

void experts_sm90(CudaContext& context, const ExpertCall& call) {
  HAY_CHECK(call.row_of == nullptr);
  if (call.w.fp4)
    launch<true>(context, call);
  else
    launch<false>(context, call);
}

}  // namespace hayfork::engine::cuda
