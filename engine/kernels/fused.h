// The fused ops as the ops they stand for, one after the other, on whichever device: the CPU twins, and what the CUDA
// twins do with shapes their kernels do not take. Parameters: ops.h.
#pragma once

#include "engine/kernels/ops.h"

namespace hayfork::engine {

void linear_then_act_mul(Context& context, Matrix y, Matrix fused, Matrix x, const LinearWeight& weight, Activation act,
                         RowKind kind);
void add_then_rmsnorm(Context& context, Matrix x, Matrix h, Matrix y, float scale, Vector w, float eps, NormKind kind,
                      NonfiniteCheck check);
void finish_qkv_in_steps(Context& context, const Pass& pass, Matrix q, Matrix k, Matrix v, const KvLayer& layer,
                         const QkvFinish& finish);

}  // namespace hayfork::engine
