// Loops of the recurrent mixers: a state of dk rows of dv columns, walked row by row, columns in registers. A column's
// sum is one chain over the rows, so it depends neither on the vector width nor on the threads.
#pragma once

#include "engine/kernels/simd/simd.h"
#include "engine/kernels/simd/vec.h"

namespace hayfork::engine::cpu::HAY_ISA {

// Calls body.template operator()<V>(column, width): V vectors of columns at once, then single ones, the last narrower.
template <typename Body>
inline void for_columns(int64_t n, const Body& body) {
  constexpr int64_t kWide = 4 * kLanes;
  int64_t c = 0;
  for (; c + kWide <= n; c += kWide) body.template operator()<4>(c, int64_t{kLanes});
  for (; c + kLanes <= n; c += kLanes) body.template operator()<1>(c, int64_t{kLanes});
  if (c < n) body.template operator()<1>(c, n - c);
}

inline void state_decay_read(float* s, int64_t dk, int64_t dv, float decay, const float* k, float* u) {
  for_columns(dv, [&]<int V>(int64_t c, int64_t w) {
    Vec sum[V] = {};
    for (int64_t i = 0; i < dk; ++i) {
      const Vec factor = splat(k[i]);
      for (int v = 0; v < V; ++v) {
        float* at = s + i * dv + c + v * kLanes;
        const Vec x = load_part(at, w) * decay;
        store_part(at, x, w);
        sum[v] = fma(factor, x, sum[v]);
      }
    }
    for (int v = 0; v < V; ++v) store_part(u + c + v * kLanes, sum[v], w);
  });
}

// decays: one a row, or null: `decay` for all.
inline void state_update_read(float* s, int64_t dk, int64_t dv, float decay, const float* decays, const float* k,
                              const float* d, const float* q, float* o) {
  for_columns(dv, [&]<int V>(int64_t c, int64_t w) {
    Vec sum[V] = {}, delta[V];
    for (int v = 0; v < V; ++v) delta[v] = load_part(d + c + v * kLanes, w);
    for (int64_t i = 0; i < dk; ++i) {
      const Vec key = splat(k[i]), query = splat(q[i]), keep = splat(decays == nullptr ? decay : decays[i]);
      for (int v = 0; v < V; ++v) {
        float* at = s + i * dv + c + v * kLanes;
        const Vec x = fma(key, delta[v], load_part(at, w) * keep);
        store_part(at, x, w);
        sum[v] = fma(query, x, sum[v]);
      }
    }
    for (int v = 0; v < V; ++v) store_part(o + c + v * kLanes, sum[v], w);
  });
}

inline void state_read(const float* s, int64_t dk, int64_t dv, const float* q, float* o) {
  for_columns(dv, [&]<int V>(int64_t c, int64_t w) {
    Vec sum[V] = {};
    for (int64_t i = 0; i < dk; ++i) {
      const Vec query = splat(q[i]);
      for (int v = 0; v < V; ++v) sum[v] = fma(query, load_part(s + i * dv + c + v * kLanes, w), sum[v]);
    }
    for (int v = 0; v < V; ++v) store_part(o + c + v * kLanes, sum[v], w);
  });
}

inline void conv_row(const float* const* x, const float* w, int64_t w_stride, const float* bias, int64_t taps, float* y,
                     int64_t n, bool silu) {
  for_columns(n, [&]<int V>(int64_t c, int64_t width) {
    for (int v = 0; v < V; ++v) {
      const int64_t at = c + v * kLanes;
      Vec sum = bias == nullptr ? Vec{} : load_part(bias + at, width);
      for (int64_t m = 0; m < taps; ++m)
        sum = fma(load_part(w + m * w_stride + at, width), load_part(x[m] + at, width), sum);
      if (silu) sum = sum / (exp(-sum) + 1.0F);
      store_part(y + at, sum, width);
    }
  });
}

}  // namespace hayfork::engine::cpu::HAY_ISA
