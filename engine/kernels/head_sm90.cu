#include "engine/kernels/head_sm90.cuh"

#include <algorithm>
#include <mutex>

#include "engine/kernels/attention.cuh"
#include "engine/kernels/hopper.cuh"
#include "engine/kernels/mma.cuh"
#include "engine/kernels/tensor_map.cuh"

namespace hayfork::engine::cuda {
namespace {

// A cluster of two blocks shares a tile of 256 ids, each block with 128 rows of its own (two warpgroups of 64): each
// brings half of the ids' weights to both.
constexpr int kRows = 128, kIds = kHeadTile, kDepth = 64;
constexpr int kStages = 4;
constexpr int kConsumers = 2;
constexpr int kThreads = (kConsumers + 1) * 128;
constexpr uint32_t kXBytes = kRows * kDepth * 2, kWBytes = kIds * kDepth * 2;
constexpr size_t kShared = kStages * (kXBytes + kWBytes) + 1024 + 128;  // alignment slack and barriers

struct Fold {
  int rows, n, k, n_tiles;
  float softcap;
  HeadFold* folds;
  const int32_t* first_target;
  const int32_t* target_ids;
  float* target_logits;
  float* logits;
};

// x when `is` equals `want`, else v. Of opaque instructions: from plain ones the compiler makes an array in memory, and
// the accumulators with it.
__device__ inline float chosen(float v, float x, int is, int want) {
  asm("{\n.reg .pred p;\nsetp.eq.s32 p, %2, %3;\nselp.f32 %0, %1, %0, p;\n}\n" : "+f"(v) : "f"(x), "r"(is), "r"(want));
  return v;
}

// The two rows of a lane: accumulator elements 4c + 2i + j are columns 8c + 2·(lane % 4) + j of row i.
template <int i, bool kWhole>
__device__ __forceinline__ void fold_row(const float (&acc)[128], int row, int id0, const Fold& fold) {
  const int lane = threadIdx.x % 32, quad = lane % 4;
  const int valid = fold.n - id0 - quad * 2;  // columns of this lane: 8c + j < valid; all of them when kWhole
  const auto in = [&](int column) { return kWhole || column < valid; };
  // Four chains, so that a comparison need not wait for the one before; their order does not matter.
  constexpr int kChains = 4;
  float top1[kChains], top2[kChains];
  int top[kChains] = {};
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) top1[chain] = top2[chain] = -INFINITY;
#pragma unroll
  for (int c = 0; c < 32; ++c) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int chain = c % kChains;
      const float v = in(c * 8 + j) ? acc[c * 4 + 2 * i + j] : -INFINITY;
      top2[chain] = fmaxf(top2[chain], fminf(v, top1[chain]));
      if (v > top1[chain]) top[chain] = c * 8 + j;
      top1[chain] = fmaxf(top1[chain], v);
    }
  }
  const auto take = [&](float other1, float other2, int other) {
    top2[0] = fmaxf(fmaxf(top2[0], other2), fminf(top1[0], other1));
    if (other1 > top1[0] || (other1 == top1[0] && other < top[0])) {
      top1[0] = other1;
      top[0] = other;
    }
  };
#pragma unroll
  for (int chain = 1; chain < kChains; ++chain) take(top1[chain], top2[chain], top[chain]);
  top[0] += id0 + quad * 2;
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
    take(__shfl_xor_sync(~0u, top1[0], offset), __shfl_xor_sync(~0u, top2[0], offset),
         __shfl_xor_sync(~0u, top[0], offset));
  }
  // A logit that is NaN or +∞ makes its term NaN.
  const float base = top1[0] * kLog2E;
  float sums[kChains] = {};
#pragma unroll
  for (int c = 0; c < 32; ++c) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float e = power_of_two(fmaf(acc[c * 4 + 2 * i + j], kLog2E, -base));
      sums[c % kChains] += in(c * 8 + j) ? e : 0.f;
    }
  }
  float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (row >= fold.rows) return;
  if (quad == 0) fold.folds[static_cast<int64_t>(row) * fold.n_tiles + id0 / kIds] = {top1[0], top2[0], sum, top[0]};
  if (fold.first_target != nullptr) {
    for (int t = fold.first_target[row]; t < fold.first_target[row + 1]; ++t) {
      const int column = fold.target_ids[t] - id0;
      if (column < 0 || column >= kIds || column % 8 / 2 != quad) continue;
      const int index = column / 8 * 2 + column % 2;
      float v = 0;
#pragma unroll
      for (int e = 0; e < 64; ++e) v = chosen(v, acc[e / 2 * 4 + 2 * i + e % 2], e, index);
      fold.target_logits[t] = v;
    }
  }
  if (fold.logits != nullptr) {
    float* to = fold.logits + static_cast<int64_t>(row) * fold.n + id0 + quad * 2;
#pragma unroll
    for (int c = 0; c < 32; ++c) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (c * 8 + j < valid) to[c * 8 + j] = acc[c * 4 + 2 * i + j];
      }
    }
  }
}

template <bool kCap>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    head_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap w_map, const Fold fold) {
  extern __shared__ unsigned char raw[];
  const uint32_t base = (shared_address(raw) + 1023) / 1024 * 1024;  // swizzle atoms are 1,024 bytes
  const uint32_t x_tiles = base, w_tiles = base + kStages * kXBytes;
  const uint32_t barriers = w_tiles + kStages * kWBytes;
  const auto full = [&](int s) { return barriers + s * 8; };
  const auto empty = [&](int s) { return barriers + kStages * 8 + s * 8; };
  const uint32_t rank = block_in_cluster();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(full(s), 1);
      barrier_init(empty(s), 2 * kConsumers);  // both blocks' warpgroups: each block's stage is filled by both
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  cluster_sync();

  const int pairs = (fold.rows + 2 * kRows - 1) / (2 * kRows);
  const int n_work = pairs * fold.n_tiles, n_steps = (fold.k + kDepth - 1) / kDepth;
  const int cluster = blockIdx.x / 2, n_clusters = gridDim.x / 2;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == kConsumers) {
    registers_lower<24>();
    if (threadIdx.x == kConsumers * 128) {
      int i = 0;
      for (int work = cluster; work < n_work; work += n_clusters) {
        const int row0 = (work % pairs * 2 + static_cast<int>(rank)) * kRows;
        const int id0 = work / pairs * kIds + static_cast<int>(rank) * (kIds / 2);
        for (int step = 0; step < n_steps; ++step, ++i) {
          const int stage = i % kStages, round = i / kStages;
          if (round > 0) barrier_wait(empty(stage), (round - 1) & 1);
          barrier_expect(full(stage), kXBytes + kWBytes);
          tensor_copy(x_tiles + stage * kXBytes, &x_map, step * kDepth, row0, full(stage));
          tensor_copy_to_cluster(w_tiles + stage * kWBytes + rank * (kWBytes / 2), &w_map, step * kDepth, id0,
                                 full(stage), 3);
        }
      }
    }
  } else {
    registers_raise<240>();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const auto release = [&](int stage) {
      if (thread < 2) barrier_arrive_at(empty(stage), static_cast<uint32_t>(thread));
    };
    int i = 0;
    for (int work = cluster; work < n_work; work += n_clusters) {
      const int row0 = (work % pairs * 2 + static_cast<int>(rank)) * kRows + group * 64;
      const int id0 = work / pairs * kIds;
      if (row0 >= fold.rows) {  // nothing to multiply; the stages are released all the same
        for (int step = 0; step < n_steps; ++step, ++i) {
          barrier_wait(full(i % kStages), (i / kStages) & 1);
          release(i % kStages);
        }
        continue;
      }
      float acc[128];
      for (int step = 0; step < n_steps; ++step, ++i) {
        const int stage = i % kStages;
        barrier_wait(full(stage), (i / kStages) & 1);
        const uint64_t x = matrix_descriptor(x_tiles + stage * kXBytes + group * (64 * 128), 16, 1024);
        const uint64_t w = matrix_descriptor(w_tiles + stage * kWBytes, 16, 1024);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < kDepth / 16; ++kk) wgmma_ss(acc, x + (kk * 32 >> 4), w + (kk * 32 >> 4), step + kk > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (step > 0) release((i - 1) % kStages);
      }
      wgmma_wait<0>();
      release((i - 1) % kStages);
      if (kCap) {
#pragma unroll
        for (int e = 0; e < 128; ++e) acc[e] = fold.softcap * tanhf(acc[e] / fold.softcap);
      }
      const int row = row0 + warp * 16 + lane / 4;
      if (id0 + kIds <= fold.n) {
        fold_row<0, true>(acc, row, id0, fold);
        fold_row<1, true>(acc, row + 8, id0, fold);
      } else {
        fold_row<0, false>(acc, row, id0, fold);
        fold_row<1, false>(acc, row + 8, id0, fold);
      }
    }
  }
  __syncwarp();
  cluster_sync();  // no block leaves while another may arrive at its barriers
}

}  // namespace

bool supports_head_sm90(const CudaContext& context, Matrix x, const LinearOnDevice& weight) {
  return context.properties().major == 9 && weight.dtype == DType::bf16 && x.dtype == DType::bf16 &&
         x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void head_sm90(CudaContext& context, const HeadCall& call) {
  const LinearOnDevice& weight = *call.weight;
  const Fold fold{static_cast<int>(call.x.rows),
                  static_cast<int>(weight.n),
                  static_cast<int>(weight.k),
                  static_cast<int>((weight.n + kIds - 1) / kIds),
                  call.softcap,
                  call.folds,
                  call.first_target,
                  call.target_ids,
                  call.target_logits,
                  call.logits};
  static std::once_flag once;
  std::call_once(once, [] {
    for (const auto& kernel : {head_kernel<false>, head_kernel<true>}) {
      HAY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared)));
    }
  });
  const CUtensorMap x_map = tensor_map(call.x.data, call.x.rows, weight.k, call.x.stride, kRows);
  const CUtensorMap w_map = tensor_map(weight.data(), weight.n, weight.k, weight.k_stride, kIds / 2);
  const int64_t work = (call.x.rows + 2 * kRows - 1) / (2 * kRows) * fold.n_tiles;
  const auto blocks = static_cast<unsigned>(2 * std::min<int64_t>(context.properties().multiProcessorCount / 2, work));
  if (call.softcap > 0)
    head_kernel<true><<<blocks, kThreads, kShared, context.stream()>>>(x_map, w_map, fold);
  else
    head_kernel<false><<<blocks, kThreads, kShared, context.stream()>>>(x_map, w_map, fold);
  HAY_LAUNCHED();
}

}  // namespace hayfork::engine::cuda
