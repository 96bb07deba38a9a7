// Gated DeltaNet in every form the families use: one fused projection, optional short convolution,
// SiLU, normalised q and k, the gated delta rule, an RMS norm per head with an optional gate. In Orthros-H the output
// stream's query bypasses the convolution (docs/orthros.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/kernels/gated_delta.h"
#include "engine/loader.h"
#include "engine/mixers/mixer.h"

namespace hayfork::engine {

struct GdnSpec {
  GatedDeltaParams heads;
  // Rows of the checkpoint's tensors that make up each part, in the order of the heads.
  std::vector<Loader::Part> q, k, v, gate, a, b;  // gate empty: none
  // Convolution kernels [channels, 1, taps] over q, k, v in this order; empty: no convolution.
  std::vector<std::pair<std::string, int64_t>> conv;  // tensor, channels
  int32_t taps = 0;
  std::string a_log, dt_bias;
  NormSpec out_norm;          // per head, over dv
  bool gate_sigmoid = false;  // instead of SiLU
  std::string o;              // without ".weight"
  // Orthros-H.
  bool output_query_silu = true;
  std::string output_affine;  // "<…>.q_affine.output"; empty: none
};

// Throws: as Loader.
std::unique_ptr<Mixer> make_gdn(Loader& loader, const GdnSpec& spec, int64_t hidden);

}  // namespace hayfork::engine
