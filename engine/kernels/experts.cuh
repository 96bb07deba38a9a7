// Experts on CUDA: their packed weights, rows sorted by expert, and the launches that multiply them. Included by .cu
// files only.
//
// bf16 and MXFP4 weights lie in units of 16 outputs by 64 inputs, in the order in which the lanes of a warp hold the A
// operand of mma.m16n8k16 (mma.cuh), so that every load is contiguous; a tile of 16 outputs is its units in ascending
// order of k. Gate and up rows share tiles: rows 0 … 7 of a tile are gates, rows 8 … 15 the ups they meet. What pads
// outputs or inputs is zero.
#pragma once

#include "engine/cuda/device.cuh"
#include "engine/kernels/moe.h"

namespace hayfork::engine::cuda {

constexpr int kUnitInputs = 64;
constexpr int kUnitBytes = 16 * kUnitInputs * 2;          // bf16: [slice of 16 k][lane][a0 … a3]
constexpr int kUnitBytesFp4 = 16 * kUnitInputs / 2 + 32;  // [lane][row g, row g+8][2 words], [g][4 exponents]
constexpr int kMaxExperts = 4096;
constexpr int kChunkRows = 128;  // rows that are sorted together

// One linear map of all experts.
struct ExpertMatrix {
  const void* weights = nullptr;  // packed, or float32 rows [E][n][k]
  const float* bias = nullptr;    // [E][n], null without
  const float* scale = nullptr;   // MXFP4: [E], what the exponents leave over (a power of two, nearly always 1)
  bool paired = false;            // gate and up
  bool fp4 = false;
  int n = 0, k = 0;
  int tiles = 0, units = 0;  // tiles an expert, units a tile
  int tile_bytes() const { return units * (fp4 ? kUnitBytesFp4 : kUnitBytes); }
};

// Rows of one expert that are multiplied together.
struct ExpertRows {
  int32_t expert, first, n;  // first: place in the sorted order
};

// Rows sorted by expert, in device memory. A pair is a row and one of its experts.
struct SortedRows {
  int32_t* offset = nullptr;      // [E], places
  int32_t* counts = nullptr;      // [chunks][E]
  ExpertRows* entries = nullptr;  // experts ascending
  int32_t* n_entries = nullptr;   // one number
  int32_t* row_of = nullptr;      // by place
  int32_t* place_of = nullptr;    // [rows][top_k], experts ascending
  float* weight_of = nullptr;     // likewise
};

// One launch over the sorted rows: gate and up with the activation, or down.
struct ExpertCall {
  ExpertMatrix w;
  const ExpertRows* entries = nullptr;
  const int32_t* n_entries = nullptr;
  int max_entries = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* row_of = nullptr;  // row of x by place; null: the place itself
  void* y = nullptr;                // by place; paired: [places, width], else [places, n]
  int64_t y_stride = 0;             // columns up to it are written, zeros behind the last
  int n_rows = 0;                   // of x
  bool entries_ready = false;       // made by a kernel before the one before
  ExpertActivation act;
};

// float32 weights, entries of at most kPlainRows rows.
constexpr int kPlainRows = 64;
void experts_plain(CudaContext& context, const ExpertCall& call);

// mma.sync, entries of at most 8 · column_tiles rows; column_tiles 1, 2, 4. x, and y when paired, hold the columns
// of each 64 in the order of lanes: see lane_order.
void experts_streamed(CudaContext& context, const ExpertCall& call, int column_tiles);

// wgmma, entries of at most kTensorRows rows; columns in their own order. Requires: compute capability 9, row_of null.
constexpr int kTensorRows = 128;
void experts_sm90(CudaContext& context, const ExpertCall& call);

// Where column k of a row goes so that a lane finds its operands of four slices side by side.
__host__ __device__ inline int lane_order(int k) {
  const int within = k % 16;
  return k / 64 * 64 + within % 8 / 2 * 16 + k % 64 / 16 * 4 + within / 8 * 2 + within % 2;
}

__host__ __device__ inline int64_t padded(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

// kFast: a few units in the last place of float32, for results that are rounded to bf16.
template <bool kFast>
__device__ inline float expert_activate(float gate, float up, const ExpertActivation& act) {
  const auto gated = [](float x, float alpha) {
    if constexpr (kFast) return __fdividef(x, 1.f + __expf(-alpha * x));
    return x / (1.f + expf(-alpha * x));
  };
  if (act.limit > 0) {
    const float g = fminf(gate, act.limit), u = fminf(fmaxf(up, -act.limit), act.limit);
    return (u + 1.f) * gated(g, act.alpha);
  }
  const float a = act.act == Activation::silu
                      ? gated(gate, 1.f)
                      : 0.5f * gate * (1.f + tanhf(0.7978845608028654f * (gate + 0.044715f * gate * gate * gate)));
  return a * up;
}

// ---- MXFP4 in packed words. A word is eight numbers: pair p is numbers 2p (low half of the bf16 pair) and 2p + 1.
// Their bits stand where one shift brings them to the places of sign (15), exponent (8, 7) and mantissa (6) of a bf16,
// whose value then is 2^-126 of the number's; the exponent bytes make up for that in the same product.
__host__ __device__ inline uint32_t pack_fp4(const uint8_t (&codes)[8]) {
  uint32_t pair[4];
  for (int p = 0; p < 4; ++p) {
    const uint32_t low = codes[2 * p], high = codes[2 * p + 1];
    pair[p] = (low & 7) << 6 | (low & 8) << 12 | (high & 7) << 22 | (high & 8) << 28;
  }
  const uint32_t last = (pair[3] & 0x81808180u) | (pair[3] & 0x00400040u) << 8;
  return pair[0] >> 6 | pair[1] >> 2 | pair[2] << 4 | pair[2] >> 28 | last;
}
template <int kPair>
__device__ inline uint32_t unpack_fp4(uint32_t word) {
  constexpr uint32_t kMask = 0x81C081C0u;
  if constexpr (kPair == 0) return word << 6 & kMask;
  if constexpr (kPair == 1) return word << 2 & kMask;
  if constexpr (kPair == 2) return __funnelshift_r(word, word, 4) & kMask;
  return (word & 0x81808180u) | (word >> 8 & 0x00400040u);
}
// The factor that an exponent's byte stands for (e + 126 − shift where the expert's scale is 2^shift), in both halves.
__device__ inline uint32_t exponent_factor(uint32_t bytes, int which) {
  return __byte_perm(bytes, 0,
                     0x4u | static_cast<uint32_t>(which) << 4 | 0x400u | static_cast<uint32_t>(which) << 12) >>
         1;
}
__device__ inline uint32_t scaled_pair(uint32_t pair, uint32_t factor) {
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), *reinterpret_cast<const __nv_bfloat162*>(&factor));
  return *reinterpret_cast<const uint32_t*>(&product);
}
// The A operand of slice 2·block + half of a unit, from the words and exponents of rows g and g + 8.
template <int kHalf>
__device__ inline void fp4_operand(uint32_t (&a)[4], uint32_t word0, uint32_t word1, uint32_t factor0,
                                   uint32_t factor1) {
  a[0] = scaled_pair(unpack_fp4<2 * kHalf>(word0), factor0);
  a[1] = scaled_pair(unpack_fp4<2 * kHalf>(word1), factor1);
  a[2] = scaled_pair(unpack_fp4<2 * kHalf + 1>(word0), factor0);
  a[3] = scaled_pair(unpack_fp4<2 * kHalf + 1>(word1), factor1);
}

}  // namespace hayfork::engine::cuda
