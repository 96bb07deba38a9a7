// Experts of few rows (decode): the weights of every chosen expert stream through shared memory once and
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

constexpr int kListed = 256;  // entries that a block keeps at hand

template <bool kFp4>
struct Ring {
  static constexpr int kUnit = kFp4 ? kUnitBytesFp4 : kUnitBytes;
  static constexpr int kChunk = kFp4 ? 4 : 1;  // units of one stage
  static constexpr int kStages = 3;
  static constexpr int kStageBytes = kUnit * kChunk;
  static constexpr int kBytes = kStageBytes * kStages;  // of a warp
};

template <bool kFp4, int NT>
constexpr size_t shared_bytes() {
  return static_cast<size_t>(kQuarters) * kWarps * (Ring<kFp4>::kBytes + 2 * NT * 128 * sizeof(float));
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

// The tiles of a quarter, in the order it takes them.
struct Walk {
  int entry, tile, step_entry, step_tile, tiles;

  __device__ Walk(int first, int step, int n_tiles)
      : entry(first / n_tiles),
        tile(first % n_tiles),
        step_entry(step / n_tiles),
        step_tile(step % n_tiles),
        tiles(n_tiles) {}
  __device__ void advance() {
    entry += step_entry;
    tile += step_tile;
    if (tile >= tiles) {
      tile -= tiles;
      ++entry;
    }
  }
};

template <bool kFp4, int NT>
__global__ void __launch_bounds__(kQuarters* kWarps * 32, 1) streamed_kernel(const ExpertCall call) {
  using R = Ring<kFp4>;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ ExpertRows listed[kListed];
  const int quarter = threadIdx.x / (kWarps * 32), warp = threadIdx.x / 32 % kWarps, lane = threadIdx.x % 32;
  const int g = lane / 4, t = lane % 4, thread = threadIdx.x % (kWarps * 32);
  unsigned char* ring = shared + (quarter * kWarps + warp) * R::kBytes;
  float* partial = reinterpret_cast<float*>(shared + kQuarters * kWarps * R::kBytes) + quarter * 2 * kWarps * NT * 128;
  const ExpertMatrix& m = call.w;

  if (!call.entries_ready) wait_for_previous();
  const int n_entries = *call.n_entries;
  for (int e = threadIdx.x; e < min(n_entries, kListed); e += blockDim.x) listed[e] = call.entries[e];
  __syncthreads();
  const auto entry_at = [&](int e) { return e < kListed ? listed[e] : call.entries[e]; };
  const int begin = warp * m.units / kWarps, end = (warp + 1) * m.units / kWarps;
  const int64_t tile_bytes = int64_t{m.units} * R::kUnit;
  const auto* weights = static_cast<const unsigned char*>(m.weights);
  const Walk start(static_cast<int>(blockIdx.x + quarter * gridDim.x), static_cast<int>(kQuarters * gridDim.x),
                   m.tiles);

  // Copies run ahead over the tiles of this quarter, kStages − 1 chunks.
  Walk ahead = start;
  int ahead_unit = begin, ahead_stage = 0;
  const unsigned char* ahead_from = nullptr;
  const auto locate = [&] {
    if (ahead.entry >= n_entries) return;
    ahead_from = weights + (static_cast<int64_t>(entry_at(ahead.entry).expert) * m.tiles + ahead.tile) * tile_bytes;
  };
  const auto fetch = [&] {
    if (ahead.entry < n_entries && begin < end) {
      const int bytes = min(R::kChunk, end - ahead_unit) * R::kUnit;
      const unsigned char* from = ahead_from + int64_t{ahead_unit} * R::kUnit + lane * 16;
      const uint32_t to = shared_address(ring + ahead_stage * R::kStageBytes) + lane * 16;
#pragma unroll
      for (int c = 0; c < R::kStageBytes; c += 512) {
        if (c + lane * 16 < bytes) copy_async_16(to + c, from + c, 16);
      }
      ahead_stage = ahead_stage + 1 == R::kStages ? 0 : ahead_stage + 1;
      ahead_unit += R::kChunk;
      if (ahead_unit >= end) {
        ahead_unit = begin;
        ahead.advance();
        locate();
      }
    }
    copy_async_commit();
  };
  locate();
  for (int s = 0; s + 1 < R::kStages; ++s) fetch();
  if (call.entries_ready) wait_for_previous();
  let_next_start();

  int stage = 0, round = 0;
  for (Walk at = start; at.entry < n_entries; at.advance(), ++round) {
    const ExpertRows rows = entry_at(at.entry);
    const int n_columns = (rows.n + 7) / 8;
    int row_of[NT];  // −1: none
#pragma unroll
    for (int j = 0; j < NT; ++j) {
      const int place = rows.first + j * 8 + g;
      row_of[j] = j * 8 + g >= rows.n ? -1 : call.row_of != nullptr ? call.row_of[place] : place;
    }
    // What the end of the tile needs: this thread's output and what is added to it.
    const int output = m.paired ? at.tile * 8 + lane / 4 : at.tile * 16 + lane / 4 + warp / 2 * 8;
    const bool there = output < (m.paired ? m.n / 2 : m.n);
    const float scale = m.scale != nullptr ? m.scale[rows.expert] : 1.f;
    float bias = 0, up_bias = 0;
    if (there && m.bias != nullptr) {
      const float* all = m.bias + static_cast<int64_t>(rows.expert) * m.n;
      bias = all[output];
      if (m.paired) up_bias = all[m.n / 2 + output];
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
    for (int unit = begin; unit < end; unit += R::kChunk) {
      const int n_units = min(R::kChunk, end - unit);
      constexpr int kHeld = NT <= 2 ? R::kChunk : 1;  // units whose rows are read before the weights are waited for
      uint4 b[kHeld][2][NT];
#pragma unroll
      for (int u = 0; u < kHeld; ++u) {
        if (u >= n_units) continue;
        read(b[u][0], unit + u, 0);
        read(b[u][1], unit + u, 1);
      }
      copy_async_wait<R::kStages - 2>();
      __syncwarp();
#pragma unroll
      for (int u = 0; u < R::kChunk; ++u) {
        if (u >= n_units) break;
        if (u >= kHeld) {
          read(b[0][0], unit + u, 0);
          read(b[0][1], unit + u, 1);
        }
        const UnitWeights<kFp4> w(ring + stage * R::kStageBytes + u * R::kUnit);
        multiply_slices<0>(acc, w, b[u < kHeld ? u : 0][0], n_columns);
        multiply_slices<1>(acc, w, b[u < kHeld ? u : 0][1], n_columns);
      }
      __syncwarp();  // every lane has read the stage before it is filled again
      fetch();
      stage = stage + 1 == R::kStages ? 0 : stage + 1;
    }
    float* sums = partial + round % 2 * kWarps * NT * 128;  // in turn: the other may still be read
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[(warp * NT + j) * 128 + e * 32 + lane] = acc[0][j][e] + acc[1][j][e];
    }
    asm volatile("bar.sync %0, %1;\n" ::"r"(1 + quarter), "n"(kWarps * 32) : "memory");
    const auto sum = [&](int j, int e) {
      float s = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) s += sums[(w * NT + j) * 128 + e * 32 + lane];
      return s * scale;
    };
    // Accumulator rows are outputs, its columns rows of x. A warp sums the same accumulator of every column tile.
    const int part = m.paired ? warp % 2 : warp;
    for (int j = m.paired ? warp / 2 : 0; j < n_columns; j += m.paired ? 2 : 1) {
      const int row = j * 8 + t * 2 + part % 2;
      if (row >= rows.n) continue;
      bf* y = static_cast<bf*>(call.y) + (rows.first + row) * call.y_stride;
      if (!m.paired) {
        if (there) store(y + output, sum(j, part) + bias);
      } else {
        store(y + lane_order(output),
              there ? expert_activate<true>(sum(j, part) + bias, sum(j, part + 2) + up_bias, call.act) : 0.f);
      }
    }
    // Behind the last output the next product reads zeros.
    if (m.paired && at.tile == m.tiles - 1) {
      const int behind = static_cast<int>(call.y_stride) - 8 * m.tiles;
      for (int e = thread; e < rows.n * behind; e += kWarps * 32) {
        store(
            static_cast<bf*>(call.y) + (rows.first + e / behind) * call.y_stride + lane_order(8 * m.tiles + e % behind),
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
  launch_early(context, streamed_kernel<kFp4, NT>, static_cast<unsigned>(blocks), kQuarters * kWarps * 32,
               shared_bytes<kFp4, NT>(), call);
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
