// The walk over chunks for the delta rule.
#include "engine/kernels/chunk_scan.cuh"

namespace hayfork::engine::cuda {

void chunk_scan_delta(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned) {
  launch_scan<Form::delta>(context, call, sequences, aligned);
}

}  // namespace hayfork::engine::cuda
