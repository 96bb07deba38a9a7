// The walk over chunks for decays per token and head.
#include "engine/kernels/chunk_scan.cuh"

namespace hayfork::engine::cuda {

void chunk_scan_scalar(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned) {
  launch_scan<Form::scalar>(context, call, sequences, aligned);
}

}  // namespace hayfork::engine::cuda
