#include "engine/kernels/head_sm90.cuh"

#include <algorithm>
#include <mutex>

#include "engine/kernels/attention.cuh"
#include "engine/kernels/hopper.cuh"
#include "engine/kernels/mma.cuh"
#include "engine/kernels/tensor_map.cuh"

namespace hayfork::engine::cuda {
namespace {

// The blocks of a cluster share a tile of 256 ids, each block with 128 rows of its own (two warpgroups of 64): each
// brings its share of the ids' weights to all.
constexpr int kCluster = 2;
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

// The targets of a row, and the first of them: read ahead, since the fold cannot wait for memory.
struct RowTargets {
  int first = 0, end = 0, id = -1;
};
__device__ inline RowTargets targets_of(const Fold& fold, int row) {
  RowTargets targets;
  if (fold.first_target == nullptr || row >= fold.rows) return targets;
  targets.first = fold.first_target[row];
  targets.end = fold.first_target[row + 1];
  if (targets.first < targets.end) targets.id = fold.target_ids[targets.first];
  return targets;
}

// Row i of the two that a lane has a part of: elements 4c + 2i + j are columns 8c + 2·(lane % 4) + j.
template <int i>
__device__ __forceinline__ void give_logits(const float (&acc)[128], int row, int id0, const Fold& fold,
                                            const RowTargets& targets) {
  const int quad = threadIdx.x % 4;
  if (row >= fold.rows) return;
  for (int t = targets.first; t < targets.end; ++t) {
    const int column = (t == targets.first ? targets.id : fold.target_ids[t]) - id0;
    if (column < 0 || column >= kIds || column % 8 / 2 != quad) continue;
    const int index = column / 8 * 2 + column % 2;
    float v = 0;
#pragma unroll
    for (int e = 0; e < 64; ++e) v = chosen(v, acc[e / 2 * 4 + 2 * i + e % 2], e, index);
    fold.target_logits[t] = v;
  }
  if (fold.logits == nullptr) return;
  const int valid = fold.n - id0 - quad * 2;
  float* to = fold.logits + static_cast<int64_t>(row) * fold.n + id0 + quad * 2;
#pragma unroll
  for (int c = 0; c < 32; ++c) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (c * 8 + j < valid) to[c * 8 + j] = acc[c * 4 + 2 * i + j];
    }
  }
}

// Both rows of a lane, `row` and row + 8. The maximum first; what else there is to find hides behind the exponentials,
// which are the longest part. A logit that is NaN or +∞ makes its term NaN.
__device__ __forceinline__ void fold_rows(float (&acc)[128], int row, int id0, const Fold& fold) {
  const int quad = threadIdx.x % 4;
  if (id0 + kIds > fold.n) {
    const int valid = fold.n - id0 - quad * 2;  // columns of this lane: 8c + j < valid
#pragma unroll
    for (int e = 0; e < 128; ++e) acc[e] = e / 4 * 8 + e % 2 < valid ? acc[e] : -INFINITY;
  }
  float top1[2], top2[2], base[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float even = -INFINITY, odd = -INFINITY;
#pragma unroll
    for (int c = 0; c < 32; ++c) {
      even = fmaxf(even, acc[c * 4 + 2 * i]);
      odd = fmaxf(odd, acc[c * 4 + 2 * i + 1]);
    }
    top1[i] = fmaxf(even, odd);
  }
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) top1[i] = fmaxf(top1[i], __shfl_xor_sync(~0u, top1[i], offset));
  }
  constexpr int kChains = 4;  // so that an addition need not wait for the one before; which is part of the numerics
  float sums[2][kChains] = {};
  uint32_t equal[2][2] = {};  // which columns have the maximum: bit 2c + j
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    base[i] = top1[i] * kLog2E;
    top2[i] = -INFINITY;
  }
#pragma unroll
  for (int c = 0; c < 32; ++c) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float v = acc[c * 4 + 2 * i + j];
        sums[i][c % kChains] += power_of_two(fmaf(v, kLog2E, -base[i]));
        const bool is_top = v == top1[i];
        if (is_top) equal[i][c / 16] |= 1u << (c % 16 * 2 + j);
        top2[i] = fmaxf(top2[i], is_top ? -INFINITY : v);
      }
    }
  }
  float sum[2];
  int top[2], n_equal[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[i] = (sums[i][0] + sums[i][1]) + (sums[i][2] + sums[i][3]);
    n_equal[i] = __popc(equal[i][0]) + __popc(equal[i][1]);
    const int bit = equal[i][0] != 0 ? __ffs(equal[i][0]) - 1 : __ffs(equal[i][1]) + 31;
    top[i] = n_equal[i] > 0 ? id0 + quad * 2 + bit / 2 * 8 + bit % 2 : 0x7fffffff;
  }
#pragma unroll
  for (int offset = 1; offset < 4; offset *= 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sum[i] += __shfl_xor_sync(~0u, sum[i], offset);
      top2[i] = fmaxf(top2[i], __shfl_xor_sync(~0u, top2[i], offset));
      top[i] = min(top[i], __shfl_xor_sync(~0u, top[i], offset));
      n_equal[i] += __shfl_xor_sync(~0u, n_equal[i], offset);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (quad != i || row + 8 * i >= fold.rows) continue;
    if (n_equal[i] == 0) top[i] = id0;  // NaN everywhere: the row's answer fails, but an id is an id
    fold.folds[static_cast<int64_t>(row + 8 * i) * fold.n_tiles + id0 / kIds] = {
        top1[i], n_equal[i] > 1 ? top1[i] : top2[i], sum[i], top[i]};
  }
}

template <bool kCap>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
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
      barrier_init(empty(s), kCluster * kConsumers);  // every block fills a part of each stage of every block
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  cluster_sync();

  const int n_parts = (fold.rows + kCluster * kRows - 1) / (kCluster * kRows);
  const int n_work = n_parts * fold.n_tiles, n_steps = (fold.k + kDepth - 1) / kDepth;
  const int cluster = blockIdx.x / kCluster, n_clusters = gridDim.x / kCluster;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
  if (group == kConsumers) {
    registers_lower<24>();
    if (threadIdx.x == kConsumers * 128) {
      int i = 0;
      for (int work = cluster; work < n_work; work += n_clusters) {
        const int row0 = (work % n_parts * kCluster + static_cast<int>(rank)) * kRows;
        const int id0 = work / n_parts * kIds + static_cast<int>(rank) * (kIds / kCluster);
        for (int step = 0; step < n_steps; ++step, ++i) {
          const int stage = i % kStages, round = i / kStages;
          if (round > 0) barrier_wait(empty(stage), (round - 1) & 1);
          barrier_expect(full(stage), kXBytes + kWBytes);
          tensor_copy(x_tiles + stage * kXBytes, &x_map, step * kDepth, row0, full(stage));
          tensor_copy_to_cluster(w_tiles + stage * kWBytes + rank * (kWBytes / kCluster), &w_map, step * kDepth, id0,
                                 full(stage), (1 << kCluster) - 1);
        }
      }
    }
  } else {
    registers_raise<240>();
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const auto release = [&](int stage) {
      if (thread < kCluster) barrier_arrive_at(empty(stage), static_cast<uint32_t>(thread));
    };
    int i = 0;
    for (int work = cluster; work < n_work; work += n_clusters) {
      const int row0 = (work % n_parts * kCluster + static_cast<int>(rank)) * kRows + group * 64;
      const int id0 = work / n_parts * kIds;
      if (row0 >= fold.rows) {  // nothing to multiply; the stages are released all the same
        for (int step = 0; step < n_steps; ++step, ++i) {
          barrier_wait(full(i % kStages), (i / kStages) & 1);
          release(i % kStages);
        }
        continue;
      }
      const int row = row0 + warp * 16 + lane / 4;
      const RowTargets targets[2] = {targets_of(fold, row), targets_of(fold, row + 8)};
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
      give_logits<0>(acc, row, id0, fold, targets[0]);
      give_logits<1>(acc, row + 8, id0, fold, targets[1]);
      fold_rows(acc, row, id0, fold);
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
  const CUtensorMap w_map = tensor_map(weight.data(), weight.n, weight.k, weight.k_stride, kIds / kCluster);
  const int64_t work = (call.x.rows + kCluster * kRows - 1) / (kCluster * kRows) * fold.n_tiles;
  const auto blocks =
      static_cast<unsigned>(kCluster * std::min<int64_t>(context.properties().multiProcessorCount / kCluster, work));
  if (call.softcap > 0)
    head_kernel<true><<<blocks, kThreads, kShared, context.stream()>>>(x_map, w_map, fold);
  else
    head_kernel<false><<<blocks, kThreads, kShared, context.stream()>>>(x_map, w_map, fold);
  HAY_LAUNCHED();
}

}  // namespace hayfork::engine::cuda
