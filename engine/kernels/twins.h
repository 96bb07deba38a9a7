// The CPU and CUDA twins of the ops, same names and parameters in two namespaces. Only ops.cc calls them.
#pragma once

#include "engine/kernels/conv.h"
#include "engine/kernels/decay_attention.h"
#include "engine/kernels/gated_delta.h"
#include "engine/kernels/mixing.h"
#include "engine/kernels/moe.h"
#include "engine/kernels/ops.h"

namespace hayfork::engine::cpu {
#include "engine/kernels/twins.inc"
}  // namespace hayfork::engine::cpu

#if defined(HAYFORK_WITH_CUDA)
namespace hayfork::engine::cuda {
#include "engine/kernels/twins.inc"
QueuedHead head_queue(Context& context, Matrix hidden, const LinearWeight& weight, float softcap,
                      std::span<const HeadRow> rows);
}  // namespace hayfork::engine::cuda
#endif
