// The causal convolution on CUDA. Prefill rows go by chunk: the inputs before each chunk are set aside first, so that
// chunks can be overwritten at the same time; decode rows take theirs from the state.
#include <type_traits>

#include "engine/kernels/recurrent.cuh"
#include "engine/kernels/rowwise.cuh"
#include "engine/kernels/twins.h"

namespace hayfork::engine::cuda {
namespace {

constexpr int kThreads = 128;

struct ConvCall {
  void* x;
  int64_t stride;
  const float *w, *bias;  // [taps, channels], [channels] or null
  int channels, kept;     // taps − 1
  char* state;
  int64_t state_stride;
  void* halo;  // [cells of this launch][kept][channels] of the activation type
  int kind;
  DevicePass pass;
};

// A stretch of base rows that one block walks.
struct Stretch {
  int64_t row;
  int n;
  bool first, last;  // of the sequence's rows of this kind
};

// The new rows of a cell.
__device__ inline Stretch stretch_of_cell(const ConvCall& call, const ChunkCell& cell, const SequenceSpans& sequence) {
  const int n_base = sequence.n[0];
  if (n_base == 0) return {0, 0, false, false};
  const int position = call.pass.rows[sequence.first[0]].pos;
  constexpr int kChunk = static_cast<int>(kChunkRows);
  const int begin = max(cell.index * kChunk - position, 0), end = min((cell.index + 1) * kChunk - position, n_base);
  return {sequence.first[0] + begin, end - begin, begin == 0, end == n_base};
}

__device__ inline float* tail_of(const ConvCall& call, const SequenceSpans& sequence) {
  return reinterpret_cast<float*>(call.state + sequence.slot * call.state_stride);
}

// halo[m] = the input kept − m rows before the stretch; zeros before the sequence.
template <typename T>
__global__ void halo_kernel(const __grid_constant__ ConvCall call) {
  const ChunkCell cell = call.pass.cells[blockIdx.y];
  const SequenceSpans& sequence = call.pass.sequences[cell.seq];
  const Stretch stretch = stretch_of_cell(call, cell, sequence);
  if (stretch.n <= 0) return;
  const int before = static_cast<int>(stretch.row) - sequence.first[0];  // rows of the pass before the stretch
  const bool fresh = call.pass.rows[sequence.first[0]].pos == 0;
  const float* tail = tail_of(call, sequence);
  T* halo = static_cast<T*>(call.halo) + static_cast<int64_t>(blockIdx.y) * call.kept * call.channels;
  const int c = blockIdx.x * kThreads + threadIdx.x;
  if (c >= call.channels) return;
  for (int m = 0; m < call.kept; ++m) {
    const int back = call.kept - m;  // rows before the stretch
    T value;
    if (back <= before) {
      value = static_cast<const T*>(call.x)[(stretch.row - back) * call.stride + c];
    } else if (fresh) {
      store(&value, 0.f);
    } else {
      store(&value, tail[static_cast<int64_t>(call.kept - back + before) * call.channels + c]);
    }
    halo[static_cast<int64_t>(m) * call.channels + c] = value;
  }
}

template <typename T, int kWidth>
__device__ inline void get(float (&to)[kWidth], const T* from) {
  if constexpr (kWidth == 8) {
    load_eight(to, from);
  } else {
    to[0] = load(from);
  }
}
template <typename T, int kWidth>
__device__ inline void put(T* to, const float (&from)[kWidth]) {
  if constexpr (kWidth == 8) {
    store_eight(to, from);
  } else {
    store(to, from[0]);
  }
}

// kWidth channels a thread, rows in order with the last inputs in a window.
template <typename T, int kWidth, int kMaxKept>
__global__ void __launch_bounds__(kThreads) conv_kernel(const __grid_constant__ ConvCall call) {
  let_next_start();
  wait_for_previous();
  const bool decode = call.kind == 1;
  const int seq = decode ? static_cast<int>(blockIdx.y) : call.pass.cells[blockIdx.y].seq;
  const SequenceSpans& sequence = call.pass.sequences[seq];
  if (sequence.slot < 0) return;
  const Stretch stretch = decode ? Stretch{sequence.first[2], sequence.n[2], true, true}
                                 : stretch_of_cell(call, call.pass.cells[blockIdx.y], sequence);
  const int c = (blockIdx.x * kThreads + threadIdx.x) * kWidth;
  if (stretch.n <= 0 || c >= call.channels) return;
  const int kept = kMaxKept <= 3 ? min(call.kept, kMaxKept) : call.kept;
  float* const tail = tail_of(call, sequence) + c;
  const bool fresh = call.pass.rows[stretch.row].pos == 0;
  float window[kMaxKept][kWidth];  // the last inputs, oldest first; the newest is window[kMaxKept − 1]
#pragma unroll
  for (int m = 0; m < kMaxKept; ++m) {
    const int i = m - (kMaxKept - kept);  // index among the kept ones
#pragma unroll
    for (int j = 0; j < kWidth; ++j) window[m][j] = 0;
    if (i < 0 || fresh) continue;
    if (decode) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) window[m][j] = tail[static_cast<int64_t>(i) * call.channels + j];
    } else {
      get(window[m],
          static_cast<const T*>(call.halo) + (static_cast<int64_t>(blockIdx.y) * kept + i) * call.channels + c);
    }
  }
  float w[kMaxKept <= 3 ? kMaxKept + 1 : 1][kWidth];
  if constexpr (kMaxKept <= 3) {
#pragma unroll
    for (int m = 0; m <= kMaxKept; ++m) {
      const int i = m - (kMaxKept - kept);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) w[m][j] = i < 0 ? 0.f : call.w[static_cast<int64_t>(i) * call.channels + c + j];
    }
  }
  float bias[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) bias[j] = call.bias != nullptr ? call.bias[c + j] : 0.f;
  T* at = static_cast<T*>(call.x) + stretch.row * call.stride + c;
#pragma unroll 4
  for (int t = 0; t < stretch.n; ++t, at += call.stride) {
    float x[kWidth], y[kWidth];
    get(x, at);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) y[j] = bias[j];
    if constexpr (kMaxKept <= 3) {
#pragma unroll
      for (int m = 0; m < kMaxKept; ++m)
#pragma unroll
        for (int j = 0; j < kWidth; ++j) y[j] = fmaf(w[m][j], window[m][j], y[j]);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) y[j] = fmaf(w[kMaxKept][j], x[j], y[j]);
    } else {
      for (int i = 0; i < kept; ++i)
        y[0] = fmaf(call.w[static_cast<int64_t>(i) * call.channels + c], window[kMaxKept - kept + i][0], y[0]);
      y[0] = fmaf(call.w[static_cast<int64_t>(kept) * call.channels + c], x[0], y[0]);
    }
#pragma unroll
    for (int m = 0; m + 1 < kMaxKept; ++m)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) window[m][j] = window[m + 1][j];
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      window[kMaxKept - 1][j] = x[j];
      y[j] = silu_of<T>(y[j]);
    }
    put(at, y);
  }
  if (!stretch.last) return;
#pragma unroll
  for (int m = 0; m < kMaxKept; ++m) {
    const int i = m - (kMaxKept - kept);
    if (i < 0) continue;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) tail[static_cast<int64_t>(i) * call.channels + j] = window[m][j];
  }
}

template <typename T>
void launch(CudaContext& context, const ConvCall& call, Matrix x, int n_items) {
  const auto run = [&](auto width, auto most) {
    constexpr int kWidth = decltype(width)::value;
    const int blocks = (call.channels / kWidth + kThreads - 1) / kThreads;
    launch_early(context, conv_kernel<T, kWidth, decltype(most)::value>,
                 dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(n_items)), kThreads, 0, call);
  };
  if (call.kept > 3) {
    run(std::integral_constant<int, 1>{}, std::integral_constant<int, 63>{});
  } else if (by_eight({x}, x.cols)) {
    run(std::integral_constant<int, 8>{}, std::integral_constant<int, 3>{});
  } else {
    run(std::integral_constant<int, 1>{}, std::integral_constant<int, 3>{});
  }
}

}  // namespace

void causal_conv_silu(Context& base, const Pass& pass, Matrix x, Vector w, Vector bias, int64_t taps, StateView state) {
  if (pass.rows.empty()) return;
  CudaContext& context = of(base);
  HAY_CHECK(taps <= 64);
  ConvCall call{x.data,
                x.stride,
                w.data,
                bias.data,
                static_cast<int>(x.cols),
                static_cast<int>(taps - 1),
                state.base + state.offset,
                state.stride,
                nullptr,
                0,
                context.pass()};
  int n_prefill = 0, n_decode = 0;
  for (const SequenceSpans& s : context.sequences()) n_prefill += s.n[0], n_decode += s.n[2];
  with_type(x.dtype, [&](auto t) {
    using T = decltype(t);
    if (n_prefill > 0) {
      const size_t n_cells = context.cells().size();
      const size_t halo = n_cells * static_cast<size_t>(call.kept * x.cols) * sizeof(T);
      call.halo = halo <= context.workspace_bytes() ? context.workspace() : context.op_scratch(halo);
      const dim3 grid(static_cast<unsigned>((call.channels + kThreads - 1) / kThreads), static_cast<unsigned>(n_cells));
      halo_kernel<T><<<grid, kThreads, 0, context.stream()>>>(call);
      HAY_LAUNCHED();
      launch<T>(context, call, x, static_cast<int>(n_cells));
    }
    if (n_decode > 0) {
      call.kind = 1;
      launch<T>(context, call, x, call.pass.n_sequences);
    }
  });
}

}  // namespace hayfork::engine::cuda
