// The vocabulary head on Hopper: one matrix product whose epilogue folds each tile of logits at once, so that no logit
// goes to memory unless it is asked for. The arithmetic of a row depends on nothing but the row and the weight.
#pragma once

#include "engine/kernels/linear.cuh"

namespace hayfork::engine::cuda {

// Ids of a tile of the vocabulary, folded: at [row · n_tiles + tile].
struct HeadFold {
  float top1, top2;
  float sum;    // of exp(logit − top1); NaN when a logit was not finite
  int32_t top;  // the lowest id that has top1
};
constexpr int kHeadTile = 256;

struct HeadCall {
  Matrix x;  // [rows, K]
  const LinearOnDevice* weight;
  float softcap;
  HeadFold* folds;
  // Logits of targets: those of row r are first_target[r] … first_target[r + 1]. Device memory; null: none.
  const int32_t* first_target = nullptr;
  const int32_t* target_ids = nullptr;
  float* target_logits = nullptr;
  float* logits = nullptr;  // [rows, N] all of them, or null
};

bool supports_head_sm90(const CudaContext& context, Matrix x, const LinearOnDevice& weight);
void head_sm90(CudaContext& context, const HeadCall& call);

}  // namespace hayfork::engine::cuda
