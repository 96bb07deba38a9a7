// Made-up weights where they are needed: the numbers of Weights::random, bit for bit, without a copy on the host.
#include <algorithm>

#include "engine/kernels/linear.cuh"

namespace hayfork::engine::cuda {
namespace {

// Rng(seed).next() of base/rng.h.
__device__ inline uint64_t first_draw(uint64_t seed) {
  uint64_t z = seed + 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

template <typename T>
__global__ void fill_kernel(T* to, int64_t stride, RandomPart part, int64_t n, int64_t k) {
  for (int64_t e = blockIdx.x * int64_t{256} + threadIdx.x; e < n * stride; e += gridDim.x * int64_t{256}) {
    const int64_t row = e / stride, column = e % stride;
    float v = 0;
    if (column < k) {
      const auto bits = static_cast<float>(first_draw(part.key + static_cast<uint64_t>(row * k + column)) >> 40);
      // Rounded step by step, as the host does without contraction.
      v = __fadd_rn(part.centre, __fmul_rn(part.spread, __fsub_rn(__fmul_rn(bits, 0x1p-23f), 1.f)));
      v = rounded<__nv_bfloat16>(v);
    }
    store(to + e, v);
  }
}

}  // namespace

void fill_random(CudaContext& context, void* to, DType type, int64_t stride, const RandomPart& part, int64_t n,
                 int64_t k) {
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>((n * stride + 255) / 256, 1, 1 << 16));
  with_type(type, [&](auto t) {
    using T = decltype(t);
    fill_kernel<<<blocks, 256, 0, context.stream()>>>(static_cast<T*>(to), stride, part, n, k);
  });
  HAY_LAUNCHED();
}

}  // namespace hayfork::engine::cuda
