// Linear of decode rows on Hopper (rulings A3): the weights stream through shared memory once, brought by bulk copies,
// and are the m16 operand of mma.sync; up to 64 rows are the n8 columns. Blocks are persistent, so that the copies of
// the next outputs run while the present ones are added up. The sum over k runs in an order fixed by K alone: eight
// warps take contiguous slices, each in ascending steps, and are added in order.
#include <algorithm>
#include <mutex>

#include "engine/kernels/hopper.cuh"
#include "engine/kernels/linear.cuh"
#include "engine/kernels/mma.cuh"

namespace hayfork::engine::cuda {
namespace {

using bf = __nv_bfloat16;
constexpr int kWarps = 8;
constexpr int kStep = 256;  // k of one copy: 512 bytes of a weight row
constexpr int kStages = 2;
constexpr int kRowBytes = kStep * 2 + 64;  // rows 16 banks apart: 16-byte reads of two rows do not collide
constexpr int kStageBytes = 16 * kRowBytes;
constexpr int kBarrierBytes = kWarps * kStages * 8;

__device__ inline void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

template <int NT, typename Out>
__global__ void __launch_bounds__(kWarps * 32, 1)
    stream_kernel(Out* __restrict__ y, int64_t y_stride, const bf* __restrict__ x, int64_t x_stride, int m,
                  const bf* __restrict__ w, int64_t w_stride, int n, int k, const float* __restrict__ bias) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t base = shared_address(shared);
  const uint32_t stages = base + warp * kStages * kStageBytes;
  const uint32_t barriers = base + kWarps * kStages * kStageBytes + warp * kStages * 8;
  float* partial =
      reinterpret_cast<float*>(shared + kWarps * kStages * kStageBytes + kBarrierBytes);  // [kWarps][NT · 128]
  if (lane == 0) {
    for (int s = 0; s < kStages; ++s) barrier_init(barriers + s * 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncwarp();

  const int slice = (k + kWarps * 32 - 1) / (kWarps * 32) * 32;  // multiples of the 32 that two products take
  const int begin = min(k, warp * slice), end = min(k, begin + slice);
  const int n_steps = (end - begin + kStep - 1) / kStep;
  const int n_tiles = (n + 15) / 16;
  const int my_tiles =
      (n_tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x);
  const int total = my_tiles * n_steps;  // copies of this warp, in the order they are used
  const auto fetch = [&](int i) {
    if (i >= total) return;
    const int tile = blockIdx.x + i / n_steps * gridDim.x, at = begin + i % n_steps * kStep;
    const int bytes = min(kStep, end - at) * 2;
    const int rows = min(16, n - tile * 16);
    const uint32_t to = stages + i % kStages * kStageBytes, barrier = barriers + i % kStages * 8;
    if (lane == 0) barrier_expect(barrier, static_cast<uint32_t>(rows * bytes));
    __syncwarp();
    if (lane < rows)
      bulk_copy(to + lane * kRowBytes, w + static_cast<int64_t>(tile * 16 + lane) * w_stride + at, bytes, barrier);
  };
  for (int s = 0; s < kStages; ++s) fetch(s);

  int i = 0;
  for (int tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
    float acc[NT][4] = {};
    for (int step = 0; step < n_steps; ++step, ++i) {
      const int at = begin + step * kStep, length = min(kStep, end - at);
      const uint32_t from = stages + i % kStages * kStageBytes;
      barrier_wait(barriers + i % kStages * 8, (i / kStages) & 1);
#pragma unroll 4
      for (int k0 = 0; k0 < length; k0 += 32) {
        uint32_t a0[4], a1[4];
        const uint32_t address = from + g * kRowBytes + (k0 + 8 * t) * 2;
        const bool in = k0 + 8 * t < length;  // lengths are multiples of 8
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(a0[0]), "=r"(a0[1]), "=r"(a0[2]), "=r"(a0[3])
                     : "r"(address));
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(a1[0]), "=r"(a1[1]), "=r"(a1[2]), "=r"(a1[3])
                     : "r"(address + 8 * kRowBytes));
        if (!in) {
#pragma unroll
          for (int j = 0; j < 4; ++j) a0[j] = a1[j] = 0;
        }
#pragma unroll
        for (int j = 0; j < NT; ++j) {
          const int row = j * 8 + g;
          const uint4 b =
              in && row < m ? *reinterpret_cast<const uint4*>(x + row * x_stride + at + k0 + 8 * t) : uint4{};
          mma_bf16(acc[j], a0[0], a1[0], a0[1], a1[1], b.x, b.y);
          mma_bf16(acc[j], a0[2], a1[2], a0[3], a1[3], b.z, b.w);
        }
      }
      __syncwarp();  // every lane has read the stage before it is filled again
      fetch(i + kStages);
    }
    __syncthreads();  // the sums of the tile before have been read
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) partial[warp * NT * 128 + j * 128 + e * 32 + lane] = acc[j][e];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < NT * 128; e += kWarps * 32) {
      float sum = 0;
#pragma unroll
      for (int s = 0; s < kWarps; ++s) sum += partial[s * NT * 128 + e];
      const int from = e % 32, part = e / 32 % 4;
      const int out = tile * 16 + from / 4 + part / 2 * 8;    // accumulator rows are weight rows
      const int row = e / 128 * 8 + from % 4 * 2 + part % 2;  // and its columns rows of x
      if (out < n && row < m) store(y + row * y_stride + out, sum + (bias != nullptr ? bias[out] : 0.f));
    }
  }
}

template <int NT, typename Out>
void launch(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight) {
  constexpr size_t kShared =
      static_cast<size_t>(kWarps) * kStages * kStageBytes + kBarrierBytes + kWarps * NT * 128 * sizeof(float);
  static std::once_flag once;
  std::call_once(once, [] {
    HAY_CUDA(cudaFuncSetAttribute(stream_kernel<NT, Out>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kShared)));
  });
  const int n_tiles = static_cast<int>((weight.n + 15) / 16);
  const int blocks = std::min(n_tiles, context.properties().multiProcessorCount);
  stream_kernel<NT, Out><<<static_cast<unsigned>(blocks), kWarps * 32, kShared, context.stream()>>>(
      static_cast<Out*>(y.data), y.stride, static_cast<const bf*>(x.data), x.stride, static_cast<int>(x.rows),
      static_cast<const bf*>(weight.data()), weight.k_stride, static_cast<int>(weight.n),
      static_cast<int>(weight.k_stride), weight.bias ? static_cast<const float*>(weight.bias->data()) : nullptr);
  HAY_LAUNCHED();
}

template <typename Out>
void by_rows(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight) {
  if (x.rows <= 8)
    launch<1, Out>(context, y, x, weight);
  else if (x.rows <= 16)
    launch<2, Out>(context, y, x, weight);
  else if (x.rows <= 32)
    launch<4, Out>(context, y, x, weight);
  else
    launch<8, Out>(context, y, x, weight);
}

}  // namespace

void linear_decode_sm90(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight) {
  HAY_CHECK(x.rows <= 64);
  if (y.dtype == DType::bf16)
    by_rows<bf>(context, y, x, weight);
  else
    by_rows<float>(context, y, x, weight);
}

}  // namespace hayfork::engine::cuda
