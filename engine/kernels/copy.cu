// Many small copies within the device's memory as few launches: a block of K/V that two sequences shared is copied in
// every layer, and a driver call for each would take longer than the copies.
#include <algorithm>

#include "engine/cuda/device.cuh"
#include "engine/kernels/copy.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kCopies = 128;  // a launch, in the kernel's parameters
constexpr int kThreads = 256;
struct Copies {
  DeviceCopy copy[kCopies];
};

__global__ void __launch_bounds__(kThreads) copy_kernel(Copies copies) {
  const DeviceCopy copy = copies.copy[blockIdx.y];
  const auto n = static_cast<int64_t>(copy.bytes / sizeof(uint4));
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < n; i += gridDim.x * int64_t{kThreads}) {
    static_cast<uint4*>(copy.to)[i] = static_cast<const uint4*>(copy.from)[i];
  }
}

}  // namespace

void copy_many(Context& context, std::span<const DeviceCopy> copies) {
  for (size_t begin = 0; begin < copies.size(); begin += kCopies) {
    const auto some = copies.subspan(begin, std::min<size_t>(kCopies, copies.size() - begin));
    Copies batch{};
    size_t largest = 0;
    for (size_t i = 0; i < some.size(); ++i) {
      HAY_CHECK(some[i].bytes % sizeof(uint4) == 0);
      batch.copy[i] = some[i];
      largest = std::max(largest, some[i].bytes);
    }
    const auto blocks = static_cast<unsigned>(std::clamp<size_t>(largest / (kThreads * sizeof(uint4) * 4), 1, 64));
    copy_kernel<<<dim3(blocks, static_cast<unsigned>(some.size())), kThreads, 0, of(context).stream()>>>(batch);
    HAY_LAUNCHED();
  }
}

}  // namespace hayfork::engine::cuda
