// The walk over chunks for decays per channel.
#include "engine/kernels/chunk_scan.cuh"

namespace hayfork::engine::cuda {

void chunk_scan_channel(CudaContext& context, const RecurrentCall& call, int sequences, bool aligned) {
  launch_scan<Form::channel>(context, call, sequences, aligned);
}

}  // namespace hayfork::engine::cuda
