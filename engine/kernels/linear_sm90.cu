// Linear of decode rows on Hopper: the weights stream through shared memory once, brought by bulk copies,
// and are the m16 operand of mma.sync; up to 64 rows are the n8 columns. Blocks are persistent, so that the copies of
// the next outputs run while the present ones are added up. The sum over k runs in an order fixed by K alone: eight
// warps take adjacent pieces of k, one after the other, so that a block reads long stretches of each weight row; their
// sums are added in order.
#include <algorithm>
#include <mutex>

#include "engine/kernels/hopper.cuh"
#include "engine/kernels/linear.cuh"
#include "engine/kernels/mma.cuh"
#include "engine/kernels/rowwise.cuh"

namespace hayfork::engine::cuda {
namespace {

using bf = __nv_bfloat16;
constexpr int kWarps = 8;
constexpr int kPiece = 256;  // k of a warp's piece at most: part of the numerics

// How much is in flight, by the number of n8 columns of rows; nothing here changes the order of a sum.
template <int NT, bool kPaired>
struct Shape {
  // m16 tiles of weight rows a warp multiplies with one read of x. Many rows of x do not fit the first cache: the more
  // tiles, the less often they are read again.
  static constexpr int kTiles = NT <= 2 ? 1 : 2;
  static constexpr int kDepth = NT <= 2 && !kPaired ? 256 : 128;  // k of one copy
  static constexpr int kStages = 2;
  static constexpr int kBlocks = kPaired ? 2 : 1;    // a multiprocessor
  static constexpr int kRowBytes = kDepth * 2 + 64;  // rows 16 banks apart: 16-byte reads of two rows do not collide
  static constexpr int kStageBytes = 16 * kTiles * kRowBytes;
  static constexpr int kBarrierBytes = kWarps * kStages * 8;
  static constexpr size_t kShared =
      static_cast<size_t>(kWarps) * kStages * kStageBytes + kBarrierBytes + kWarps * NT * 128 * sizeof(float);
};

__device__ inline void bulk_copy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline uint4 read_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}

template <typename Out>
struct StreamCall {
  Out* y;
  int64_t y_stride;
  const bf* x;
  int64_t x_stride;
  int m;  // rows of x
  const bf* w;
  int64_t w_stride;
  int n, k;  // outputs; of a gated call those of one half
  const float* bias;
  Activation act;  // of a gated call
};

// A warp's copies in the order it uses them: (outputs, half, round, part of the round's piece).
struct Copies {
  int k, piece, depth;  // k a piece, k a copy
  int n_rounds, n_parts;
  int halves, total;

  __device__ Copies(int k_, int depth_, int n_outputs, int halves_, int warp) : k(k_), depth(depth_), halves(halves_) {
    const int rounds = (k + kWarps * kPiece - 1) / (kWarps * kPiece);
    piece = (k + kWarps * rounds * 32 - 1) / (kWarps * rounds * 32) * 32;  // multiples of 32: two products
    n_rounds = max(0, min(rounds, (k - warp * piece + kWarps * piece - 1) / (kWarps * piece)));
    n_parts = (piece + depth - 1) / depth;
    total = n_outputs * halves * n_rounds * n_parts;
  }
  __device__ int begin(int round, int part, int warp) const { return (round * kWarps + warp) * piece + part * depth; }
  // k that a copy brings; 0 behind the end of K.
  __device__ int length(int at, int part) const { return max(0, min(min(depth, piece - part * depth), k - at)); }
};

// kGated: outputs n … 2n of the weight are multiplied by the activated outputs 0 … n; a block makes both halves of its
// outputs, the gates first, each rounded as if it had been stored.
template <int NT, typename Out, bool kGated, bool kPaired>
__global__ void __launch_bounds__(kWarps * 32, Shape<NT, kPaired>::kBlocks) stream_kernel(const StreamCall<Out> call) {
  using S = Shape<NT, kPaired>;
  constexpr int kOutputs = 16 * S::kTiles;  // a block's at a time
  extern __shared__ __align__(128) unsigned char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t base = shared_address(shared);
  const uint32_t stages = base + warp * S::kStages * S::kStageBytes;
  const uint32_t barriers = base + kWarps * S::kStages * S::kStageBytes + warp * S::kStages * 8;
  float* partial = reinterpret_cast<float*>(shared + kWarps * S::kStages * S::kStageBytes + S::kBarrierBytes);
  if (lane == 0) {
    for (int s = 0; s < S::kStages; ++s) barrier_init(barriers + s * 8, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncwarp();

  const int n = call.n, n_groups = (n + kOutputs - 1) / kOutputs, n_blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  constexpr int kHalves = kGated ? 2 : 1;
  const Copies copies(call.k, S::kDepth, (n_groups - block + n_blocks - 1) / n_blocks, kHalves, warp);
  const auto fetch_weights = [&](int i) {
    if (i >= copies.total) return;
    const int part = i % copies.n_parts, round = i / copies.n_parts % copies.n_rounds;
    const int step = i / (copies.n_parts * copies.n_rounds);
    const int half = step % kHalves, first = (block + step / kHalves * n_blocks) * kOutputs;
    const int at = copies.begin(round, part, warp), bytes = copies.length(at, part) * 2;
    const int rows = min(kOutputs, n - first);
    const uint32_t to = stages + i % S::kStages * S::kStageBytes, barrier = barriers + i % S::kStages * 8;
    if (lane == 0) barrier_expect(barrier, static_cast<uint32_t>(rows * bytes));
    __syncwarp();
#pragma unroll
    for (int row = lane; row < kOutputs; row += 32) {
      if (row < rows && bytes > 0) {
        bulk_copy(to + row * S::kRowBytes, call.w + (static_cast<int64_t>(half) * n + first + row) * call.w_stride + at,
                  bytes, barrier);
      }
    }
  };
  // Weights depend on no kernel: their first copies are under way before the rows are there.
  for (int s = 0; s < S::kStages; ++s) fetch_weights(s);
  let_next_start();
  wait_for_previous();

  constexpr int kOwn = (NT * 128 + kWarps * 32 - 1) / (kWarps * 32);  // outputs of a thread
  int i = 0;
  for (int group = block; group < n_groups; group += n_blocks) {
    [[maybe_unused]] float gates[S::kTiles][kOwn];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float acc[S::kTiles][NT][4] = {};
      for (int round = 0; round < copies.n_rounds; ++round) {
        for (int part = 0; part < copies.n_parts; ++part, ++i) {
          const int at = copies.begin(round, part, warp), length = copies.length(at, part);
          const uint32_t from = stages + i % S::kStages * S::kStageBytes;
          barrier_wait(barriers + i % S::kStages * 8, (i / S::kStages) & 1);
#pragma unroll(NT <= 2 ? 4 : 2)
          for (int k0 = 0; k0 < length; k0 += 32) {
            const uint32_t column = (k0 + 8 * t) * 2;
            const bool in = k0 + 8 * t < length;  // lengths are multiples of 8
            uint4 a0[S::kTiles], a1[S::kTiles];
#pragma unroll
            for (int tile = 0; tile < S::kTiles; ++tile) {
              a0[tile] = read_shared(from + (tile * 16 + g) * S::kRowBytes + column);
              a1[tile] = read_shared(from + (tile * 16 + g + 8) * S::kRowBytes + column);
              if (!in) a0[tile] = a1[tile] = {};
            }
#pragma unroll
            for (int j = 0; j < NT; ++j) {
              const int row = j * 8 + g;
              const uint4 b = in && row < call.m
                                  ? *reinterpret_cast<const uint4*>(call.x + row * call.x_stride + at + k0 + 8 * t)
                                  : uint4{};
#pragma unroll
              for (int tile = 0; tile < S::kTiles; ++tile) {
                mma_bf16(acc[tile][j], a0[tile].x, a1[tile].x, a0[tile].y, a1[tile].y, b.x, b.y);
                mma_bf16(acc[tile][j], a0[tile].z, a1[tile].z, a0[tile].w, a1[tile].w, b.z, b.w);
              }
            }
          }
          __syncwarp();  // every lane has read the stage before it is filled again
          fetch_weights(i + S::kStages);
        }
      }
#pragma unroll
      for (int tile = 0; tile < S::kTiles; ++tile) {
        __syncthreads();  // the sums of the tile before have been read
#pragma unroll
        for (int j = 0; j < NT; ++j) {
#pragma unroll
          for (int e = 0; e < 4; ++e) partial[warp * NT * 128 + j * 128 + e * 32 + lane] = acc[tile][j][e];
        }
        __syncthreads();
#pragma unroll
        for (int own = 0; own < kOwn; ++own) {
          const int e = own * kWarps * 32 + static_cast<int>(threadIdx.x);
          if (e >= NT * 128) break;
          float sum = 0;
#pragma unroll
          for (int s = 0; s < kWarps; ++s) sum += partial[s * NT * 128 + e];
          const int of = e % 32, quarter = e / 32 % 4;
          const int out = group * kOutputs + tile * 16 + of / 4 + quarter / 2 * 8;  // accumulator rows are weight rows
          const int row = e / 128 * 8 + of % 4 * 2 + quarter % 2;                   // and its columns rows of x
          if (out >= n || row >= call.m) continue;
          sum += call.bias != nullptr ? call.bias[half * n + out] : 0.f;
          if constexpr (!kGated) {
            store(call.y + row * call.y_stride + out, sum);
          } else if (half == 0) {
            gates[tile][own] = rounded<Out>(activate(rounded<Out>(sum), call.act));
          } else {
            store(call.y + row * call.y_stride + out, gates[tile][own] * rounded<Out>(sum));
          }
        }
      }
    }
  }
}

template <int NT, typename Out, bool kGated, bool kPaired>
void launch(CudaContext& context, const StreamCall<Out>& call) {
  using S = Shape<NT, kPaired>;
  static std::once_flag once;
  std::call_once(once, [] {
    HAY_CUDA(cudaFuncSetAttribute(stream_kernel<NT, Out, kGated, kPaired>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(S::kShared)));
  });
  const int n_groups = (call.n + 16 * S::kTiles - 1) / (16 * S::kTiles);
  const int blocks = std::min(n_groups, context.properties().multiProcessorCount * S::kBlocks);
  launch_early(context, stream_kernel<NT, Out, kGated, kPaired>, static_cast<unsigned>(blocks), kWarps * 32, S::kShared,
               call);
}

// Two blocks a multiprocessor hand over to the next kernel more smoothly, unless that leaves many without work in the
// last round.
template <int NT, typename Out, bool kGated>
void launch_few(CudaContext& context, const StreamCall<Out>& call) {
  const int n_groups = (call.n + 15) / 16;
  const auto rounds = [&](int blocks) { return (n_groups + blocks - 1) / blocks; };
  const int most = context.properties().multiProcessorCount;
  if (2 * rounds(2 * most) <= rounds(most) + rounds(most) / 16)
    launch<NT, Out, kGated, true>(context, call);
  else
    launch<NT, Out, kGated, false>(context, call);
}

template <typename Out, bool kGated>
void by_rows(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight, Activation act) {
  const StreamCall<Out> call{static_cast<Out*>(y.data),
                             y.stride,
                             static_cast<const bf*>(x.data),
                             x.stride,
                             static_cast<int>(x.rows),
                             static_cast<const bf*>(weight.data()),
                             weight.k_stride,
                             static_cast<int>(kGated ? weight.n / 2 : weight.n),
                             static_cast<int>(weight.k_stride),
                             weight.bias ? static_cast<const float*>(weight.bias->data()) : nullptr,
                             act};
  if (x.rows <= 8)
    launch_few<1, Out, kGated>(context, call);
  else if (x.rows <= 16)
    launch_few<2, Out, kGated>(context, call);
  else if (x.rows <= 32)
    launch<4, Out, kGated, false>(context, call);
  else
    launch<8, Out, kGated, false>(context, call);
}

}  // namespace

void linear_decode_sm90(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight) {
  HAY_CHECK(x.rows <= 64);
  if (y.dtype == DType::bf16)
    by_rows<bf, false>(context, y, x, weight, Activation::silu);
  else
    by_rows<float, false>(context, y, x, weight, Activation::silu);
}

void linear_act_mul_decode_sm90(CudaContext& context, Matrix y, Matrix x, const LinearOnDevice& weight,
                                Activation act) {
  HAY_CHECK(x.rows <= 64 && y.dtype == DType::bf16);
  by_rows<bf, true>(context, y, x, weight, act);
}

}  // namespace hayfork::engine::cuda
