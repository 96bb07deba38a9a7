// Experts of few rows (decode, rulings A3): the weights of every chosen expert stream through shared memory once and
// are the m16 operand of mma.sync, the rows the n8 columns. Persistent blocks; each quarter of a block takes every
// fourth tile of 16 outputs, its four warps contiguous stretches of k. The order of a sum depends on K alone: within a
// stretch even and odd slices of 16 apart, each ascending, then both, then the four stretches in order.
#include <algorithm>
#include <mutex>

#include "engine/kernels/experts.cuh"
#include "engine/kernels/mma.cuh"

namespace hayfork::engine::cuda {
namespace {

using bf = __nv_bfloat16;
constexpr int kWarps = 4;     // of a quarter
constexpr int kQuarters = 4;  // of a block

template <bool kFp4>
struct Ring {
  static constexpr int kUnit = kFp4 ? kUnitBytesFp4 : kUnitBytes;
  static constexpr int kStages = kFp4 ? 8 : 3;
  static constexpr int kBytes = kUnit * kStages;  // of a warp
};

template <bool kFp4, int NT>
constexpr size_t shared_bytes() {
  return static_cast<size_t>(kQuarters) * kWarps * (Ring<kFp4>::kBytes + NT * 128 * sizeof(float));
}

// What a lane holds of one unit's weights.
template <bool kFp4>
struct UnitWeights {
  uint4 words;  // MXFP4
  uint32_t factors[4];
  const unsigned char* at;  // bf16

  __device__ explicit UnitWeights(const unsigned char* unit) : words{}, factors{}, at(unit) {
    const int lane = threadIdx.x % 32;
    at += lane * 16;
    if constexpr (kFp4) {
      words = *reinterpret_cast<const uint4*>(at);
      const uint32_t exponents = *reinterpret_cast<const uint32_t*>(unit + 512 + lane / 4 * 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) factors[i] = exponent_factor(exponents, i);
    }
  }
  template <int kSlice>
  __device__ void operand(uint32_t (&a)[4]) const {
    if constexpr (kFp4) {
      constexpr int kBlock = kSlice / 2;
      fp4_operand<kSlice % 2>(a, kBlock == 0 ? words.x : words.y, kBlock == 0 ? words.z : words.w, factors[kBlock],
                              factors[2 + kBlock]);
    } else {
      const uint4 v = *reinterpret_cast<const uint4*>(at + kSlice * 512);
      a[0] = v.x;
      a[1] = v.y;
      a[2] = v.z;
      a[3] = v.w;
    }
  }
};

// Slices 2·kPart and 2·kPart + 1; b[j]: this lane's numbers of row 8j + g in both.
template <int kPart, bool kFp4, int NT>
__device__ inline void multiply_slices(float (&acc)[2][NT][4], const UnitWeights<kFp4>& w, const uint4 (&b)[NT],
                                       int n_columns) {
  uint32_t a[4], c[4];
  w.template operand<2 * kPart>(a);
  w.template operand<2 * kPart + 1>(c);
#pragma unroll
  for (int j = 0; j < NT; ++j) {
    if (j >= n_columns) break;
    mma_bf16(acc[0][j], a[0], a[1], a[2], a[3], b[j].x, b[j].y);
    mma_bf16(acc[1][j], c[0], c[1], c[2], c[3], b[j].z, b[j].w);
  }
}

template <bool kFp4, int NT>
__global__ void __launch_bounds__(kQuarters* kWarps * 32, 1) streamed_kernel(const ExpertCall call) {
  using R = Ring<kFp4>;
  extern __shared__ __align__(128) unsigned char shared[];
  const int quarter = threadIdx.x / (kWarps * 32), warp = threadIdx.x / 32 % kWarps, lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4, thread = threadIdx.x % (kWarps * 32);
  unsigned char* ring = shared + (quarter * kWarps + warp) * R::kBytes;
  float* partial = reinterpret_cast<float*>(shared + kQuarters * kWarps * R::kBytes) + quarter * kWarps * NT * 128;
  const ExpertMatrix& m = call.w;
  const int tiles = m.tiles, n_items = *call.n_entries * tiles;
  const int begin = warp * m.units / kWarps, end = (warp + 1) * m.units / kWarps;
  const int64_t tile_bytes = int64_t{m.units} * R::kUnit;
  const auto* weights = static_cast<const unsigned char*>(m.weights);
  const auto item_of = [&](int i) {
    return static_cast<int>(blockIdx.x) + (kQuarters * i + quarter) * static_cast<int>(gridDim.x);
  };

  // Copies run ahead over the items of this quarter, kStages − 1 units.
  int ahead_item = item_of(0), ahead_index = 0, ahead_unit = begin, ahead_stage = 0;
  const unsigned char* ahead_from = nullptr;
  const auto locate = [&] {
    if (ahead_item >= n_items || begin == end) return;
    const int expert = call.entries[ahead_item / tiles].expert;
    ahead_from = weights + (static_cast<int64_t>(expert) * tiles + ahead_item % tiles) * tile_bytes;
  };
  const auto fetch = [&] {
    if (ahead_item < n_items && begin < end) {
      const unsigned char* from = ahead_from + int64_t{ahead_unit} * R::kUnit;
      const uint32_t to = shared_address(ring + ahead_stage * R::kUnit);
      for (int c = lane; c < R::kUnit / 16; c += 32) copy_async_16(to + c * 16, from + c * 16, 16);
      ahead_stage = ahead_stage + 1 == R::kStages ? 0 : ahead_stage + 1;
      if (++ahead_unit == end) {
        ahead_unit = begin;
        ahead_item = item_of(++ahead_index);
        locate();
      }
    }
    copy_async_commit();
  };
  locate();
  for (int s = 0; s + 1 < R::kStages; ++s) fetch();

  int stage = 0;
  for (int i = 0; item_of(i) < n_items; ++i) {
    const int item = item_of(i), tile = item % tiles;
    const ExpertRows rows = call.entries[item / tiles];
    const int n_columns = (rows.n + 7) / 8;
    int row_of[NT];  // −1: none
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      const int place = rows.first + j * 8 + g;
      row_of[j] = j * 8 + g >= rows.n ? -1 : call.row_of != nullptr ? call.row_of[place] : place;
    }
    const auto read = [&](uint4(&b)[NT], int unit, int part) {
#pragma unroll
      for (int j = 0; j < NT; ++j) {
        b[j] = row_of[j] < 0
                   ? uint4{}
                   : *reinterpret_cast<const uint4*>(static_cast<const bf*>(call.x) + row_of[j] * call.x_stride +
                                                     unit * kUnitInputs + t * 16 + part * 8);
      }
    };
    float acc[2][NT][4] = {};
    for (int unit = begin; unit < end; ++unit) {
      uint4 b[NT], c[NT];
      read(b, unit, 0);
      if constexpr (NT <= 2) read(c, unit, 1);
      copy_async_wait<R::kStages - 2>();
      __syncwarp();
      const UnitWeights<kFp4> w(ring + stage * R::kUnit);
      multiply_slices<0>(acc, w, b, n_columns);
      if constexpr (NT > 2) read(c, unit, 1);
      multiply_slices<1>(acc, w, c, n_columns);
      __syncwarp();  // every lane has read the stage before it is filled again
      fetch();
      stage = stage + 1 == R::kStages ? 0 : stage + 1;
    }
    asm volatile("bar.sync %0, %1;\n" ::"r"(1 + quarter), "n"(kWarps * 32) : "memory");  // sums before have been read
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) partial[(warp * NT + j) * 128 + e * 32 + lane] = acc[0][j][e] + acc[1][j][e];
    }
    asm volatile("bar.sync %0, %1;\n" ::"r"(1 + quarter), "n"(kWarps * 32) : "memory");
    const auto sum = [&](int j, int e, int from) {
      float s = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) s += partial[(w * NT + j) * 128 + e * 32 + from];
      return m.scale != nullptr ? s * m.scale[rows.expert] : s;
    };
    const float* bias = m.bias != nullptr ? m.bias + static_cast<int64_t>(rows.expert) * m.n : nullptr;
    // Accumulator rows are outputs, its columns rows of x.
    for (int e = thread; e < n_columns * (m.paired ? 64 : 128); e += kWarps * 32) {
      const int j = e / (m.paired ? 64 : 128), part = e / 32 % (m.paired ? 2 : 4), from = e % 32;
      const int row = j * 8 + from % 4 * 2 + part % 2;
      if (row >= rows.n) continue;
      bf* y = static_cast<bf*>(call.y) + (rows.first + row) * call.y_stride;
      if (!m.paired) {
        const int output = tile * 16 + from / 4 + part / 2 * 8;
        if (output < m.n) store(y + output, sum(j, part, from) + (bias != nullptr ? bias[output] : 0.f));
        continue;
      }
      const int width = m.n / 2, output = tile * 8 + from / 4;
      float v = 0;
      if (output < width) {
        v = expert_activate<true>(sum(j, part, from) + (bias != nullptr ? bias[output] : 0.f),
                                  sum(j, part + 2, from) + (bias != nullptr ? bias[width + output] : 0.f), call.act);
      }
      store(y + lane_order(output), v);
    }
    // Behind the last output the next product reads zeros.
    if (m.paired && tile == tiles - 1) {
      const int behind = static_cast<int>(call.y_stride) - 8 * tiles;
      for (int e = thread; e < rows.n * behind; e += kWarps * 32) {
        store(static_cast<bf*>(call.y) + (rows.first + e / behind) * call.y_stride + lane_order(8 * tiles + e % behind),
              0.f);
      }
    }
  }
}

template <bool kFp4, int NT>
void launch(CudaContext& context, const ExpertCall& call) {
  static std::once_flag once;
  std::call_once(once, [] {
    HAY_CUDA(cudaFuncSetAttribute(streamed_kernel<kFp4, NT>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(shared_bytes<kFp4, NT>())));
  });
  const int64_t items = int64_t{call.max_entries} * call.w.tiles;
  const int blocks = static_cast<int>(std::min<int64_t>(items, context.properties().multiProcessorCount));
  streamed_kernel<kFp4, NT>
      <<<static_cast<unsigned>(blocks), kQuarters * kWarps * 32, shared_bytes<kFp4, NT>(), context.stream()>>>(call);
  HAY_LAUNCHED();
}

template <bool kFp4>
void by_columns(CudaContext& context, const ExpertCall& call, int column_tiles) {
  switch (column_tiles) {
    case 1:
      return launch<kFp4, 1>(context, call);
    case 2:
      return launch<kFp4, 2>(context, call);
    default:
      return launch<kFp4, 4>(context, call);
  }
}

}  // namespace

void experts_streamed(CudaContext& context, const ExpertCall& call, int column_tiles) {
  if (call.w.fp4)
    by_columns<true>(context, call, column_tiles);
  else
    by_columns<false>(context, call, column_tiles);
}

}  // namespace hayfork::engine::cuda
