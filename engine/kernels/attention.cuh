// What the attention kernels share: parameters by value and the mask of one row.
#pragma once

#include "engine/cuda/device.cuh"
#include "engine/kernels/ops.h"

namespace hayfork::engine::cuda {

constexpr int kMaxKvHeadWindows = 64;

// One attention call, passed to kernels by value.
struct AttentionCall {
  const void* q;
  void* o;
  int64_t q_stride, o_stride;
  const void* k;
  const void* v;
  int n_heads, n_kv, group_size;  // G = n_heads / n_kv
  int k_dim, v_dim, table_group;
  float scale, softcap;
  const float* sinks;  // [n_heads] or null
  int window_base, window_output;
  int n_windows;  // 0: none
  int windows[kMaxKvHeadWindows];
  DevicePass pass;
};

__device__ inline int window_of(const AttentionCall& call, int kv_head, Stream stream) {
  if (call.n_windows > 0) return call.windows[kv_head];
  return stream == Stream::output ? call.window_output : call.window_base;
}
// First key the row may see.
__device__ inline int first_key(int pos, int window) {
  return window > 0 && pos + 1 > window ? pos + 1 - window : 0;
}

__device__ inline float capped(float s, float softcap) {
  return softcap > 0 ? softcap * tanhf(s / softcap) : s;
}

constexpr float kLog2E = 1.4426950408889634f;

// 2^x as the special-function unit gives it (2 ulp), denormals flushed; exp2f would add a range test to every element.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Tensor-core paths for bf16 queries and cache; Requires: supports_mma(call).
bool supports_mma(const AttentionCall& call);
void attention_tiles_mma(CudaContext& context, const AttentionCall& call);
void attention_split_mma(CudaContext& context, const AttentionCall& call);

// Hopper's tiles in place of attention_tiles_mma. Requires: supports_sm90(context, call).
bool supports_sm90(const CudaContext& context, const AttentionCall& call);
void attention_tiles_sm90(CudaContext& context, const AttentionCall& call);

}  // namespace hayfork::engine::cuda
